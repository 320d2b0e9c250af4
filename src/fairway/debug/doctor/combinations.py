"""Versions that do not work together, as users reported them or as packages declare.

The reports are in the table combinations.toml, each row with its sources. The table is checked when it is read.
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

from fairway.diagnostics import Code, Finding
from fairway.diagnostics.extras import DISTRIBUTION

_UPSTREAM_LINK = re.compile(r"[\w.-]+/[\w.-]+#\d+")


class BadCombinationError(Exception):
    """Fairway's own table is wrong."""


@dataclass(frozen=True)
class Combination:
    """A row: versions that fail together, the reason, what to do, and where it was reported."""

    together: dict[str, SpecifierSet]
    why: str
    todo: str
    links: tuple[str, ...]

    def applies(self, versions: Mapping[str, str]) -> bool:
        """Return whether every package of the row is installed within its range, ignoring local parts such as +cpu."""
        return all(
            name in versions and range_.contains(versions[name].partition("+")[0], prereleases=True)
            for name, range_ in self.together.items()
        )


@cache
def load_combinations() -> tuple[Combination, ...]:
    """Load the table that comes with Fairway."""
    return parse_combinations(resources.files(__package__).joinpath("combinations.toml").read_text(encoding="utf-8"))


def parse_combinations(text: str) -> tuple[Combination, ...]:
    """Parse the rows of a table; anything missing, misspelled or without a source is an error."""
    try:
        rows = tomllib.loads(text)["combination"]
        return tuple(_parse_row(row) for row in rows)
    except (tomllib.TOMLDecodeError, InvalidSpecifier, KeyError, TypeError) as error:
        raise BadCombinationError(f"{type(error).__name__}: {error}") from error


def _parse_row(row: dict[str, object]) -> Combination:
    together, why, todo, links = row.pop("together"), row.pop("why"), row.pop("todo"), row.pop("links")
    if row:
        raise BadCombinationError(f"unknown keys: {', '.join(row)}")
    if not isinstance(together, dict) or len(together) < 2:
        raise BadCombinationError(f"expected two packages or more, got {together!r}")
    if not (
        why and todo and isinstance(links, list) and links and all(_UPSTREAM_LINK.fullmatch(link) for link in links)
    ):
        raise BadCombinationError(f"{', '.join(together)}: a row needs why, todo, and links such as owner/repo#number")
    return Combination({name: SpecifierSet(r) for name, r in together.items()}, str(why), str(todo), tuple(links))


def find_conflicts(versions: Mapping[str, str]) -> list[Finding]:
    """Return a finding for each known conflict of the installed versions."""
    findings = []
    for row in load_combinations():
        if row.applies(versions):
            seen = " and ".join(f"{name} {versions[name]}" for name in row.together)
            findings.append(Finding(Code.VERSIONS_CLASH, seen, why=row.why, todo=(row.todo,), upstream=row.links))
    return [*findings, *find_unmet_requirements(versions)]


def find_unmet_requirements(versions: Mapping[str, str]) -> list[Finding]:
    """Return a finding for each package that is installed with a version of another that it excludes."""
    findings = []
    for package in ("fairway", *versions):
        for requirement in _list_requirements(package):
            installed = versions.get(requirement.name.lower().replace("_", "-"))
            if installed is not None and not requirement.specifier.contains(installed, prereleases=True):
                findings.append(
                    Finding(
                        Code.VERSIONS_CLASH,
                        f"{package} requires {requirement.name}{requirement.specifier}, but {installed} is installed",
                        todo=(f"pip install '{requirement.name}{requirement.specifier}'",),
                    )
                )
    return findings


def _list_requirements(package: str) -> Iterator[Requirement]:
    try:
        lines = metadata.requires(DISTRIBUTION if package == "fairway" else package) or ()
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement
