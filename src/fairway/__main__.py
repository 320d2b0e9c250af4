"""`python -m fairway`, if the command is not on the path."""

from fairway.cli import main

main()
