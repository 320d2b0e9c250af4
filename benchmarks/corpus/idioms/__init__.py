"""Small modules in the ways people write models. Importing the package fills `case.IDIOMS`."""

from . import (
    attention,
    decisions,
    dtypes,
    indexing,
    interface,
    loops,
    recurrent,
    shapes,
    signal,
    teams,
    time_loops,
)

__all__ = [
    "attention",
    "decisions",
    "dtypes",
    "indexing",
    "interface",
    "loops",
    "recurrent",
    "shapes",
    "signal",
    "teams",
    "time_loops",
]
