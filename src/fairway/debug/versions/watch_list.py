"""The list of what is blocked upstream: kept in a file, tested again, and what has become possible is said.

The file is JSON and belongs into the project's repository. A recipe in it is named from the file's folder.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal

from fairway.debug.versions.environments import EnvironmentSpec
from fairway.debug.versions.inside import NOTHING, Row, RunSettings
from fairway.debug.versions.matrix import Maker, fill, locate, row_from
from fairway.diagnostics.errors import UserError, complain
from fairway.diagnostics.render import markdown
from fairway.model.memory_check import is_regular

FORMAT = 1
LARGEST = 16 * 2**20
"""Bytes of the file."""

LINK = re.compile(r"[\w.-]+/[\w.-]+#\d+")

State = Literal["not tested", "blocked", "possible now", "possible", "broken again"]


@dataclass(frozen=True)
class Blocked:
    """A recipe that does not go through, what it waits for, and how it came out when it was tested last."""

    recipe: str
    blocked_by: str
    """owner/repo#number, or a few words where nothing is reported."""
    why: str
    since: str
    tested: str = ""
    state: State = "not tested"
    rows: tuple[Row, ...] = ()

    @property
    def possible(self) -> bool:
        return any(row.verified for row in self.rows)


def read(path: Path) -> list[Blocked]:
    """The list as it was kept. Anything else in the file is a finding, and nothing of it is used."""
    if not path.exists():
        todo = ("Put the first recipe on it: fairway watch add RECIPE --blocked-by owner/repo#number",)
        raise complain("FW118", f"{path} does not exist", todo=todo)
    try:
        if not is_regular(path) or path.stat().st_size > LARGEST:
            raise ValueError(f"not a plain file of at most {LARGEST} bytes")
        data = json.loads(path.read_text())
        if not isinstance(data, dict) or data.get("format") != FORMAT or set(data) != {"format", "blocked"}:
            raise ValueError(f"not a list of format {FORMAT}")
        return [_entry(one) for one in data["blocked"]]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise complain("FW118", f"{path}: {str(error)[:300]}") from error


def _entry(data: Any) -> Blocked:
    if not isinstance(data, dict) or set(data) != set(Blocked.__dataclass_fields__):
        raise ValueError(f"not an entry: {data!r:.80}")
    rows = tuple(row_from(row) for row in data.pop("rows"))
    for name, value in data.items():
        if not isinstance(value, str):
            raise ValueError(f"{name} is {value!r:.80}")
    return Blocked(**data, rows=rows)


def write(path: Path, entries: Sequence[Blocked]) -> None:
    """Whole or not at all: written beside the list, then renamed."""
    text = json.dumps({"format": FORMAT, "blocked": [asdict(entry) for entry in entries]}, indent=1)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text + "\n")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise complain("FW009", f"{path}: {error.strerror}") from error


def add(path: Path, recipe: str, blocked_by: str, why: str) -> list[Blocked]:
    """Puts a recipe on the list, in place of what was said of it before."""
    address = locate(recipe)
    where, colon, name = address.partition(":")
    near = f"{os.path.relpath(where, path.resolve().parent)}{colon}{name}"
    entries = read(path) if path.exists() else []
    kept = [entry for entry in entries if entry.recipe != near]
    found = [*kept, Blocked(near, blocked_by, why, date.today().isoformat())]
    write(path, found)
    return found


def retest(
    path: Path,
    entries: Sequence[Blocked],
    every: Sequence[EnvironmentSpec],
    maker: Maker,
    how: RunSettings,
    heard: Callable[[Any], None],
) -> list[Blocked]:
    """Every entry, run anew in each environment; a recipe that is gone is an entry that stays blocked."""
    found = []
    for entry in entries:
        heard(("part", entry.recipe))
        try:
            rows = fill(str(path.resolve().parent / entry.recipe), every, maker, how, None, True, heard)
        except UserError as error:
            rows = [Row({}, NOTHING, reason=f"{error.finding.code}: {error.finding.seen}")]
        after = replace(entry, rows=tuple(rows), tested=date.today().isoformat())
        found.append(replace(after, state=_state(entry, after)))
    return found


def _state(before: Blocked, after: Blocked) -> State:
    if after.possible:
        return "possible" if before.possible else "possible now"
    return "broken again" if before.possible else "blocked"


def watch_table(entries: Sequence[Blocked]) -> str:
    """The list for a README."""
    cells = [["recipe", "waits for", "since", "state", "with", "why"]]
    for entry in entries:
        best = next((row for row in entry.rows if row.verified), entry.rows[-1] if entry.rows else None)
        versions = "" if best is None else _versions(best)
        reason = "" if best is None or best.verified else best.reason
        cells.append([entry.recipe, entry.blocked_by, entry.since, entry.state, versions, reason or entry.why])
    return "\n".join(markdown(cells))


def _versions(row: Row) -> str:
    told = row.wanted or {n: v for n, v in row.installed.items() if n in ("torch", "transformers", "onnxscript")}
    route = f" ({row.route})" if row.route else ""
    return ", ".join(f"{name} {version}" for name, version in told.items()) + route


def news(entries: Sequence[Blocked]) -> list[str]:
    """One sentence for each entry whose state changed, and one that counts the rest."""
    found = []
    for entry in entries:
        if entry.state == "possible now":
            best = next(row for row in entry.rows if row.verified)
            waited = f"it waited for {entry.blocked_by}"
            found.append(f"{entry.recipe} has become possible with {_versions(best)}; {waited}.")
        elif entry.state == "broken again":
            found.append(f"{entry.recipe} was possible and is broken again: {entry.rows[-1].reason}")
    left = sum(entry.state in ("blocked", "not tested") for entry in entries)
    return [*found, f"{left} of {len(entries)} still blocked."]
