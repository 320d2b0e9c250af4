"""Small modules in the ways people write models. Importing the package fills `case.IDIOMS`."""

from . import (
    attention,
    constants,
    decisions,
    dtypes,
    indexing,
    interface,
    loops,
    recurrent,
    shapes,
    signal,
    size_branches,
    sizes_made_numbers,
    teams,
    time_loops,
)

__all__ = [
    "attention",
    "constants",
    "decisions",
    "dtypes",
    "indexing",
    "interface",
    "loops",
    "recurrent",
    "shapes",
    "signal",
    "size_branches",
    "sizes_made_numbers",
    "teams",
    "time_loops",
]
