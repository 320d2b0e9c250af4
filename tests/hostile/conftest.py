"""The command line's fixtures, borrowed."""

from cli.conftest import fairway as fairway
from cli.conftest import folder as folder
