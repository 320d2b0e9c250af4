"""Every case by name. The part before the slash is the suite."""

from __future__ import annotations

from collections.abc import Callable

import diagnostic_cases
import exportdb_cases
import module_cases
import op_cases
from case import Case

SUITES = {"op": op_cases, "module": module_cases, "exportdb": exportdb_cases, "diagnostic": diagnostic_cases}


def list_names(suite: str) -> list[str]:
    lister: Callable[[], list[str]] = SUITES[suite].list_names
    return lister()


def build(name: str) -> Case:
    builder: Callable[[str], Case] = SUITES[name.partition("/")[0]].build
    return builder(name)
