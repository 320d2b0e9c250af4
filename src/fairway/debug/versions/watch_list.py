"""The list of recipes that are blocked upstream: stored in a file, tested again, with news on those that now work.

The file is JSON and belongs in the project's repository. Recipes in it are relative to the file's folder.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Literal

from fairway.debug.versions.environments import EnvironmentSpec
from fairway.debug.versions.inside import NO_RESULT, MatrixRow
from fairway.debug.versions.matrix import MatrixRun, fill_matrix, locate_recipe, parse_row
from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.diagnostics.render import format_markdown_table
from fairway.model.memory_check import is_regular_file
from fairway.record.progress import EventSink, PartStarted
from fairway.workers.workshop import replace_file

WATCH_LIST_FORMAT = 1
MAX_LIST_BYTES = 16 * 2**20

UPSTREAM_LINK = re.compile(r"[\w.-]+/[\w.-]+#\d+")

State = Literal["not tested", "blocked", "possible now", "possible", "broken again"]


@dataclass(frozen=True)
class BlockedRecipe:
    """A recipe that fails, what it waits for, and the result of its last test."""

    recipe: str
    blocked_by: str
    """owner/repo#number, or a few words if nothing was reported."""
    why: str
    since: str
    tested: str = ""
    state: State = "not tested"
    rows: tuple[MatrixRow, ...] = ()

    @property
    def is_possible(self) -> bool:
        return any(row.is_verified for row in self.rows)


def read_watch_list(path: Path) -> list[BlockedRecipe]:
    """Read the list; a file with anything else in it is a finding, and nothing of it is used."""
    if not path.exists():
        todo = ("Put the first recipe on it: fairway watch add RECIPE --blocked-by owner/repo#number",)
        raise complain(Code.WATCH_UNREADABLE, f"{path} does not exist", todo=todo)
    try:
        if not is_regular_file(path) or path.stat().st_size > MAX_LIST_BYTES:
            raise ValueError(f"expected a plain file of at most {MAX_LIST_BYTES} bytes")
        data = json.loads(path.read_text())
        if not isinstance(data, dict) or data.get("format") != WATCH_LIST_FORMAT or set(data) != {"format", "blocked"}:
            raise ValueError(f"expected a list of format {WATCH_LIST_FORMAT}")
        return [_parse_entry(entry) for entry in data["blocked"]]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise complain(Code.WATCH_UNREADABLE, f"{path}: {str(error)[:300]}") from error


def _parse_entry(data: object) -> BlockedRecipe:
    if not isinstance(data, dict) or set(data) != set(BlockedRecipe.__dataclass_fields__):
        raise ValueError(f"expected an entry, got {data!r:.80}")
    rows = tuple(parse_row(row) for row in data.pop("rows"))
    for name, value in data.items():
        if not isinstance(value, str):
            raise ValueError(f"{name} is {value!r:.80}, expected text")
    return BlockedRecipe(**data, rows=rows)


def write_watch_list(path: Path, entries: Sequence[BlockedRecipe]) -> None:
    """Replace the file atomically."""
    text = json.dumps({"format": WATCH_LIST_FORMAT, "blocked": [asdict(entry) for entry in entries]}, indent=1)
    try:
        replace_file(path, text + "\n")
    except OSError as error:
        raise complain(Code.CANNOT_WRITE, f"{path}: {error.strerror}") from error


def add_blocked_recipe(path: Path, recipe: str, blocked_by: str, why: str) -> list[BlockedRecipe]:
    """Put a recipe on the list; an entry for the same recipe is replaced."""
    address = locate_recipe(recipe)
    file, colon, name = address.partition(":")
    relative = f"{os.path.relpath(file, path.resolve().parent)}{colon}{name}"
    entries = read_watch_list(path) if path.exists() else []
    others = [entry for entry in entries if entry.recipe != relative]
    entries_after = [*others, BlockedRecipe(relative, blocked_by, why, date.today().isoformat())]
    write_watch_list(path, entries_after)
    return entries_after


def retest(
    path: Path,
    entries: Sequence[BlockedRecipe],
    environments: Sequence[EnvironmentSpec],
    run: MatrixRun,
    on_event: EventSink,
) -> list[BlockedRecipe]:
    """Run every entry again in each environment; an entry whose recipe is gone stays blocked."""
    retested = []
    for entry in entries:
        on_event(PartStarted(entry.recipe))
        try:
            rows = fill_matrix(str(path.resolve().parent / entry.recipe), environments, run, on_event)
        except UserError as error:
            rows = [MatrixRow({}, NO_RESULT, reason=f"{error.finding.code}: {error.finding.seen}")]
        tested = replace(entry, rows=tuple(rows), tested=date.today().isoformat())
        retested.append(replace(tested, state=_choose_state(entry, tested)))
    return retested


def _choose_state(before: BlockedRecipe, after: BlockedRecipe) -> State:
    if after.is_possible:
        return "possible" if before.is_possible else "possible now"
    return "broken again" if before.is_possible else "blocked"


def render_watch_table(entries: Sequence[BlockedRecipe]) -> str:
    """Return the list as a Markdown table for a README."""
    cells = [["recipe", "waits for", "since", "state", "with", "why"]]
    for entry in entries:
        best = next((row for row in entry.rows if row.is_verified), entry.rows[-1] if entry.rows else None)
        versions = "" if best is None else _format_versions(best)
        reason = "" if best is None or best.is_verified else best.reason
        cells.append([entry.recipe, entry.blocked_by, entry.since, entry.state, versions, reason or entry.why])
    return "\n".join(format_markdown_table(cells))


def _format_versions(row: MatrixRow) -> str:
    versions = row.requested or {n: v for n, v in row.installed.items() if n in ("torch", "transformers", "onnxscript")}
    route = f" ({row.route})" if row.route else ""
    return ", ".join(f"{name} {version}" for name, version in versions.items()) + route


def list_news(entries: Sequence[BlockedRecipe]) -> list[str]:
    """Return one sentence for each entry whose state changed, and one that counts the rest."""
    sentences = []
    for entry in entries:
        if entry.state == "possible now":
            best = next(row for row in entry.rows if row.is_verified)
            waited = f"it waited for {entry.blocked_by}"
            sentences.append(f"{entry.recipe} has become possible with {_format_versions(best)}; {waited}.")
        elif entry.state == "broken again":
            sentences.append(f"{entry.recipe} was possible and is broken again: {entry.rows[-1].reason}")
    left = sum(entry.state in ("blocked", "not tested") for entry in entries)
    return [*sentences, f"{left} of {len(entries)} still blocked."]
