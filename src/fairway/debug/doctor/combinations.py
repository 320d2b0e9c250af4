"""Versions that do not go together: those that somebody met and reported, and those that packages themselves rule out.

The reported ones are a table, combinations.toml, each row with its threads. It is checked when it is read.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata, resources

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from fairway.diagnostics import Finding

_LINK = re.compile(r"[\w.-]+/[\w.-]+#\d+")


class BadCombinationError(Exception):
    """Our own table is wrong."""


@dataclass(frozen=True)
class Combination:
    """A row: ranges that are known not to go together, what happens, what to do, where it was reported."""

    together: dict[str, SpecifierSet]
    why: str
    todo: str
    links: tuple[str, ...]

    def applies(self, versions: Mapping[str, str]) -> bool:
        """Whether every package of the row is installed within its range; a local part such as +cpu does not count."""
        return all(
            name in versions and range_.contains(versions[name].partition("+")[0], prereleases=True)
            for name, range_ in self.together.items()
        )


@cache
def known() -> tuple[Combination, ...]:
    """The table that comes with Fairway."""
    return parse(resources.files(__package__).joinpath("combinations.toml").read_text(encoding="utf-8"))


def parse(text: str) -> tuple[Combination, ...]:
    """The rows of a table; anything missing, misspelt or unsourced is an error at once."""
    try:
        rows = tomllib.loads(text)["combination"]
        return tuple(_row(row) for row in rows)
    except (tomllib.TOMLDecodeError, InvalidSpecifier, KeyError, TypeError) as error:
        raise BadCombinationError(f"{type(error).__name__}: {error}") from error


def _row(row: dict[str, object]) -> Combination:
    together, why, todo, links = row.pop("together"), row.pop("why"), row.pop("todo"), row.pop("links")
    if row:
        raise BadCombinationError(f"unknown: {', '.join(row)}")
    if not isinstance(together, dict) or len(together) < 2:
        raise BadCombinationError(f"a combination is of two packages or more: {together!r}")
    if not (why and todo and isinstance(links, list) and links and all(_LINK.fullmatch(link) for link in links)):
        raise BadCombinationError(f"{', '.join(together)}: a row says why, what to do, and owner/repo#number")
    return Combination({name: SpecifierSet(r) for name, r in together.items()}, str(why), str(todo), tuple(links))


def clashes(versions: Mapping[str, str]) -> list[Finding]:
    """What is known against the versions installed."""
    found = []
    for row in known():
        if row.applies(versions):
            seen = " and ".join(f"{name} {versions[name]}" for name in row.together)
            found.append(Finding("FW603", seen, why=row.why, todo=(row.todo,), upstream=row.links))
    return [*found, *ruled_out(versions)]


def ruled_out(versions: Mapping[str, str]) -> list[Finding]:
    """Packages installed beside a version of another that they declare they cannot use."""
    found = []
    for package in ("fairway", *versions):
        for need in _needs(package):
            here = versions.get(need.name.lower().replace("_", "-"))
            if here is not None and not need.specifier.contains(here, prereleases=True):
                found.append(
                    Finding(
                        "FW603",
                        f"{package} asks for {need.name}{need.specifier}, and {here} is installed",
                        todo=(f"pip install '{need.name}{need.specifier}'",),
                    )
                )
    return found


def _needs(package: str) -> Iterator[Requirement]:
    try:
        lines = metadata.requires(package) or ()
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        try:
            need = Requirement(line)
        except InvalidRequirement:
            continue
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            yield need
