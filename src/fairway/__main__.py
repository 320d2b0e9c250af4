"""`python -m fairway`, for where the command itself is not on the path."""

from fairway.cli import main

main()
