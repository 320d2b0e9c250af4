"""Every upstream bug that is known here is an entry in a TOML file beside this module, checked when it is read.

One file per project, named after it. An entry that is incomplete, misspelt or contradicts itself is an error at once,
so that nothing half known is ever shown.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from types import ModuleType
from typing import Any

from fairway.diagnostics.plugins import KNOWLEDGE, accepted

STATUSES = ("open", "closed", "unreported")
"""Of the upstream thread on the date given; `unreported` where none was found."""

NOT_UPSTREAM = ("your model", "your settings", "your installation", "whoever wrote the file")
"""Whose fault it may be other than a project's."""

_LINK = re.compile(r"[\w.-]+/[\w.-]+#\d+")
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_FIXED = re.compile(r"(?P<by>by )?(?P<package>[a-z][a-z-]*) (?P<version>\d+(\.\d+)*)")
_PLAIN = re.compile(r"\\.|\[[^\]]*\]")
_ENDLESS = re.compile(r"[*+]|\{\d*,\}")


class BadEntryError(Exception):
    """A data file of ours is wrong."""


@dataclass(frozen=True)
class KnownBug:
    """One upstream bug."""

    id: str
    title: str
    project: str
    """Where it is filed: the name of the file."""
    signature: str
    """A regular expression for the error's text, without `*` and `+`, since it is searched in texts that anybody wrote
    and must not take its time; empty where the file is wrong without a word."""
    affected: str
    """Versions in which it was seen or reported."""
    fixed: str
    """The first version without it, as in `torch 2.9`; `by torch 2.13.0` where only that one is known; or empty."""
    status: str
    date: date
    """When the status was looked up."""
    link: str
    """owner/repo#number, or empty: no known upstream issue."""
    todo: str
    whose: str
    """Whose fault: one of NOT_UPSTREAM, or empty: the project's."""
    remedy: str
    """The name of Fairway's remedy, or empty."""
    seen: str
    """The versions on which its reproducer runs, or empty."""

    def matches(self, text: str) -> bool:
        """Whether an error's text is this bug's. A bug that says nothing matches nothing."""
        return bool(self.signature) and re.search(self.signature, text) is not None

    @property
    def fixed_in(self) -> tuple[str, str, bool] | None:
        """The package, the version, and whether it is the first one without the bug."""
        found = _FIXED.fullmatch(self.fixed)
        return (found["package"], found["version"], not found["by"]) if found else None


@cache
def entries() -> tuple[KnownBug, ...]:
    """Everything known: Fairway's own, then the plug-ins'. A plug-in with a bad entry is left out whole."""
    found = list(shipped())

    def complaint(source: Any) -> str:
        new = read_entries(folder_of(source))
        known = {entry.id for entry in found}
        twice = sorted(entry.id for entry in new if entry.id in known)
        if twice:
            return f"declared already: {', '.join(twice)}"
        found.extend(new)
        return ""

    accepted(KNOWLEDGE, complaint)
    return tuple(found)


@cache
def shipped() -> tuple[KnownBug, ...]:
    """What comes with Fairway, in the order of the files."""
    return tuple(read_entries(resources.files(__package__)))


def folder_of(source: Any) -> Traversable:
    """The folder that a plug-in names: a package, or a path."""
    if isinstance(source, ModuleType):
        return resources.files(source)
    if isinstance(source, str | Path):
        return Path(source)
    if isinstance(source, Traversable):
        return source
    raise BadEntryError(f"a package or a path is wanted, not {source!r:.100}")


def read_entries(folder: Traversable) -> list[KnownBug]:
    """The entries of all TOML files in a folder, each file named after a project."""
    found: list[KnownBug] = []
    for path in sorted(folder.iterdir(), key=lambda p: p.name):
        if path.name.endswith(".toml"):
            project = path.name.removesuffix(".toml")
            found += parse_entries(project, path.read_text(encoding="utf-8"))
    twice = {e.id for e in found if sum(o.id == e.id for o in found) > 1}
    if twice:
        raise BadEntryError(f"declared twice: {', '.join(sorted(twice))}")
    if not found:
        raise BadEntryError(f"no TOML file with entries in {folder}")
    return found


def parse_entries(project: str, text: str) -> list[KnownBug]:
    """The entries of one file."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadEntryError(f"{project}: {error}") from error
    if set(tables) != {"bug"}:
        raise BadEntryError(f"{project}: entries stand under [[bug]]; found {', '.join(tables) or 'nothing'}")
    return [_entry(project, table) for table in tables["bug"]]


def _entry(project: str, table: Mapping[str, Any]) -> KnownBug:
    named = f"{project}: {table.get('id', 'an entry without id')}"
    wanted = {f.name for f in fields(KnownBug)} - {"project"}
    if set(table) != wanted:
        odd = sorted(set(table) ^ wanted)
        raise BadEntryError(f"{named}: missing or unknown: {', '.join(odd)}")
    for name, value in table.items():
        if not isinstance(value, date if name == "date" else str):
            raise BadEntryError(f"{named}: {name} is {value!r}")
    entry = KnownBug(project=project, **table)
    for complaint in _complaints(entry):
        raise BadEntryError(f"{named}: {complaint}")
    return entry


def _complaints(entry: KnownBug) -> list[str]:
    found = []
    if not _ID.fullmatch(entry.id):
        found.append("an id is words-joined-by-dashes")
    if entry.link and not _LINK.fullmatch(entry.link):
        found.append(f"the link {entry.link!r} is not owner/repo#number")
    if entry.status not in STATUSES:
        found.append(f"the status {entry.status!r} is none of {', '.join(STATUSES)}")
    if (entry.status == "unreported") != (entry.link == ""):
        found.append("a bug has a link or is unreported")
    if entry.fixed and not _FIXED.fullmatch(entry.fixed):
        found.append(f"fixed is {entry.fixed!r}, not as in 'torch 2.9' or 'by torch 2.13.0'")
    if entry.whose and entry.whose not in NOT_UPSTREAM:
        found.append(f"whose is {entry.whose!r}, none of {', '.join(NOT_UPSTREAM)}")
    found += [f"{name} is empty" for name in ("title", "affected", "todo") if not getattr(entry, name).strip()]
    try:
        re.compile(entry.signature)
    except re.error as error:
        found.append(f"the signature does not compile: {error}")
    endless = _ENDLESS.search(_PLAIN.sub("x", entry.signature))
    if endless:
        found.append(f"the signature repeats without an end: write {{0,100}} instead of {endless[0]}")
    return found
