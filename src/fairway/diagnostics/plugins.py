"""Plug-ins: objects that other distributions add by entry points, loaded on first use.

Groups: `fairway.remedies` (a Remedy), `fairway.translations` (a mapping from operators to functions) and
`fairway.knowledge` (a package or a folder with TOML files). A plug-in that cannot be loaded or used is left out, with
a finding that names the distribution, and the export continues without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

from fairway.diagnostics import Code, Finding

REMEDIES, TRANSLATIONS, KNOWLEDGE = "fairway.remedies", "fairway.translations", "fairway.knowledge"

_LOG = logging.getLogger(__name__)
_refusals: list[Finding] = []


@dataclass(frozen=True)
class Plugin:
    """The object behind one entry point, and its distribution."""

    distribution: str
    name: str
    value: Any


@cache
def find_plugins(group: str) -> tuple[Plugin, ...]:
    """Return the plug-ins of a group, ordered by distribution and name."""
    loaded = []
    for point in sorted(metadata.entry_points(group=group), key=lambda p: (_get_distribution(p), p.name)):
        try:
            loaded.append(Plugin(_get_distribution(point), point.name, point.load()))
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:  # a plug-in may do anything while it is imported, sys.exit included
            refuse_plugin(
                _get_distribution(point),
                f"{group}: {point.name} cannot be loaded: {type(error).__name__}: {error!s:.300}",
            )
    return tuple(loaded)


def accept_plugins(group: str, check: Callable[[Any], str]) -> list[Plugin]:
    """Return the plug-ins of a group for which `check` returns no message, and refuse the others."""
    good = []
    for plugin in find_plugins(group):
        try:
            problem = check(plugin.value)
        except Exception as error:
            problem = f"{type(error).__name__}: {error!s:.300}"
        if problem:
            refuse_plugin(plugin.distribution, f"{group}: {plugin.name} cannot be used: {problem}")
        else:
            good.append(plugin)
    return good


def refuse_plugin(distribution: str, why: str) -> None:
    """Record that a plug-in is left out."""
    finding = Finding(Code.PLUGIN_LEFT_OUT, f"{distribution}: {why}")
    if finding not in _refusals:
        _refusals.append(finding)
        _LOG.warning("%s", finding.seen)


def list_refusals() -> Sequence[Finding]:
    """Return a finding for each plug-in that was left out so far."""
    return tuple(_refusals)


def _get_distribution(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown distribution"
