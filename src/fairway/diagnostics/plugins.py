"""What other distributions add, by entry points, loaded when it is first asked for.

Groups: `fairway.remedies` (a Remedy), `fairway.translations` (a mapping from operators to functions) and
`fairway.knowledge` (a package or a folder with TOML files). What cannot be loaded or used is left out, with a finding
that names the distribution; an export goes on without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

from fairway.diagnostics import Finding

REMEDIES, TRANSLATIONS, KNOWLEDGE = "fairway.remedies", "fairway.translations", "fairway.knowledge"

_LOG = logging.getLogger(__name__)
_refused: list[Finding] = []


@dataclass(frozen=True)
class Plugin:
    """One entry point's object, with who brings it."""

    distribution: str
    name: str
    value: Any


@cache
def plugins(group: str) -> tuple[Plugin, ...]:
    """What the installed distributions declare in a group, in the order of their names."""
    found = []
    for point in sorted(metadata.entry_points(group=group), key=lambda p: (_owner(p), p.name)):
        try:
            found.append(Plugin(_owner(point), point.name, point.load()))
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:  # a plug-in may do anything while it is imported, sys.exit included
            refuse(_owner(point), f"{group}: {point.name} cannot be loaded: {type(error).__name__}: {error!s:.300}")
    return tuple(found)


def accepted(group: str, complaint: Callable[[Any], str]) -> list[Plugin]:
    """The plug-ins of a group of which there is nothing to complain."""
    good = []
    for plugin in plugins(group):
        try:
            said = complaint(plugin.value)
        except Exception as error:
            said = f"{type(error).__name__}: {error!s:.300}"
        if said:
            refuse(plugin.distribution, f"{group}: {plugin.name} cannot be used: {said}")
        else:
            good.append(plugin)
    return good


def refuse(distribution: str, why: str) -> None:
    """Notes a plug-in that is left out."""
    finding = Finding("FW117", f"{distribution}: {why}")
    if finding not in _refused:
        _refused.append(finding)
        _LOG.warning("%s", finding.seen)


def refused() -> Sequence[Finding]:
    """A finding for each plug-in that was left out so far."""
    return tuple(_refused)


def _owner(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown distribution"
