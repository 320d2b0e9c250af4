"""The command line. It parses options, calls the library and prints the result."""

from fairway.cli.app import main

__all__ = ["main"]
