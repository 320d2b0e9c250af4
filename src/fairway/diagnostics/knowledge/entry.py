"""Known upstream bugs: entries in TOML files beside this module, checked when they are read.

There is one file per project, named after it. An entry that is incomplete, misspelled or contradictory is an error.
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

from fairway.diagnostics.plugins import KNOWLEDGE, accept_plugins

STATUSES = ("open", "closed", "unreported")
"""The status of the upstream thread on the given date; `unreported` if there is none."""

NOT_UPSTREAM = ("your model", "your settings", "your installation", "the tool that wrote the file")
"""Possible causes other than the project itself."""

_LINK = re.compile(r"[\w.-]+/[\w.-]+#\d+")
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_FIXED = re.compile(r"(?P<by>by )?(?P<package>[a-z][a-z-]*) (?P<version>\d+(\.\d+)*)")
_PLAIN = re.compile(r"\\.|\[[^\]]*\]")
_ENDLESS = re.compile(r"[*+]|\{\d*,\}")


class BadEntryError(Exception):
    """A file with known bugs is invalid."""


@dataclass(frozen=True)
class KnownBug:
    """One known upstream bug."""

    id: str
    title: str
    project: str
    """The project: the name of the file."""
    signature: str
    """A regular expression for the error's text, or empty if there is no error, only a wrong file. It has no `*` and no
    `+`, because it is searched in unknown texts and must be fast."""
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
        """Return whether an error's text matches. A bug without a signature matches nothing."""
        return bool(self.signature) and re.search(self.signature, text) is not None

    @property
    def fixed_in(self) -> tuple[str, str, bool] | None:
        """The package, the version, and whether that is the first one without the bug."""
        match = _FIXED.fullmatch(self.fixed)
        return (match["package"], match["version"], not match["by"]) if match else None


@cache
def load_entries() -> tuple[KnownBug, ...]:
    """Return all entries: Fairway's, then those of plug-ins. A plug-in with a bad entry is left out completely."""
    known_bugs = list(load_shipped_entries())

    def check(source: object) -> str:
        new = read_entries(find_folder(source))
        known = {entry.id for entry in known_bugs}
        twice = sorted(entry.id for entry in new if entry.id in known)
        if twice:
            return f"declared already: {', '.join(twice)}"
        known_bugs.extend(new)
        return ""

    accept_plugins(KNOWLEDGE, check)
    return tuple(known_bugs)


@cache
def load_shipped_entries() -> tuple[KnownBug, ...]:
    """Return the entries that come with Fairway, in the order of the files."""
    return tuple(read_entries(resources.files(__package__)))


def find_folder(source: object) -> Traversable:
    """Return the folder of a plug-in, which is a package or a path."""
    if isinstance(source, ModuleType):
        return resources.files(source)
    if isinstance(source, str | Path):
        return Path(source)
    if isinstance(source, Traversable):
        return source
    raise BadEntryError(f"expected a package or a path, got {source!r:.100}")


def read_entries(folder: Traversable) -> list[KnownBug]:
    """Return the entries of all TOML files in a folder. Each file is named after a project."""
    bugs: list[KnownBug] = []
    for path in sorted(folder.iterdir(), key=lambda p: p.name):
        if path.name.endswith(".toml"):
            project = path.name.removesuffix(".toml")
            bugs += parse_entries(project, path.read_text(encoding="utf-8"))
    twice = {bug.id for bug in bugs if sum(other.id == bug.id for other in bugs) > 1}
    if twice:
        raise BadEntryError(f"declared twice: {', '.join(sorted(twice))}")
    if not bugs:
        raise BadEntryError(f"no TOML file with entries in {folder}")
    return bugs


def parse_entries(project: str, text: str) -> list[KnownBug]:
    """Return the entries of one file."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadEntryError(f"{project}: {error}") from error
    if set(tables) != {"bug"}:
        raise BadEntryError(f"{project}: expected entries under [[bug]], got {', '.join(tables) or 'nothing'}")
    return [_parse_entry(project, table) for table in tables["bug"]]


def _parse_entry(project: str, table: Mapping[str, Any]) -> KnownBug:
    named = f"{project}: {table.get('id', 'an entry without id')}"
    expected = {f.name for f in fields(KnownBug)} - {"project"}
    if set(table) != expected:
        odd = sorted(set(table) ^ expected)
        raise BadEntryError(f"{named}: missing or unknown: {', '.join(odd)}")
    for name, value in table.items():
        if not isinstance(value, date if name == "date" else str):
            raise BadEntryError(f"{named}: {name} is {value!r}")
    entry = KnownBug(project=project, **table)
    for complaint in _list_complaints(entry):
        raise BadEntryError(f"{named}: {complaint}")
    return entry


def _list_complaints(entry: KnownBug) -> list[str]:
    complaints = []
    if not _ID.fullmatch(entry.id):
        complaints.append("an id is words-joined-by-dashes")
    if entry.link and not _LINK.fullmatch(entry.link):
        complaints.append(f"the link {entry.link!r} is not owner/repo#number")
    if entry.status not in STATUSES:
        complaints.append(f"the status {entry.status!r} is none of {', '.join(STATUSES)}")
    if (entry.status == "unreported") != (entry.link == ""):
        complaints.append("a bug has a link or is unreported")
    if entry.fixed and not _FIXED.fullmatch(entry.fixed):
        complaints.append(f"fixed is {entry.fixed!r}, not as in 'torch 2.9' or 'by torch 2.13.0'")
    if entry.whose and entry.whose not in NOT_UPSTREAM:
        complaints.append(f"whose is {entry.whose!r}, none of {', '.join(NOT_UPSTREAM)}")
    complaints += [f"{name} is empty" for name in ("title", "affected", "todo") if not getattr(entry, name).strip()]
    try:
        re.compile(entry.signature)
    except re.error as error:
        complaints.append(f"the signature does not compile: {error}")
    endless = _ENDLESS.search(_PLAIN.sub("x", entry.signature))
    if endless:
        complaints.append(f"the signature repeats without an end: write {{0,100}} instead of {endless[0]}")
    return complaints
