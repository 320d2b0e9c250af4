"""The command line: prints, and knows nothing else."""

from fairway.cli.app import main

__all__ = ["main"]
