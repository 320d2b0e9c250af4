"""A recipe in every environment asked for, one row each. Results are kept and used again until anything changes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from fairway.debug.versions.environments import SOURCE, EnvironmentSpec, NotMade, fairways_version
from fairway.debug.versions.inside import NOTHING, NOWHERE, Row, RunSettings, run_inside
from fairway.diagnostics.errors import complain

Maker = Callable[[EnvironmentSpec], Path]
"""Answers the Python of an environment, or raises NotMade."""

_MADE = (".onnx", ".data", ".fairway.json", ".pyc")
"""What runs leave behind; it is not part of a recipe."""


def fill(
    recipe: str,
    every: Sequence[EnvironmentSpec],
    maker: Maker,
    how: RunSettings,
    kept: Path | None,
    again: bool,
    heard: Callable[[Any], None],
) -> list[Row]:
    """The rows, in order. An environment that cannot be made, or a run that dies, is a row; the others go on."""
    address = locate(recipe)
    print_ = fingerprint(address, how, kept)
    rows = []
    for number, wanted in enumerate(every):
        if len(every) > 1:
            heard(("part", f"{number + 1} of {len(every)}:"))
        place = None if kept is None else kept / f"{print_}-{wanted.key()}.json"
        row = None if again or place is None else recall(place)
        if row is None:
            row = _one(address, wanted, maker, how, heard)
            if place is not None and row.verdict not in (NOTHING, NOWHERE):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(json.dumps(asdict(row)))
        rows.append(row)
    return rows


def _one(address: str, wanted: EnvironmentSpec, maker: Maker, how: RunSettings, heard: Callable[[Any], None]) -> Row:
    heard(("stage", f"an environment with {wanted}"))
    try:
        python = maker(wanted)
    except NotMade as error:
        return Row(dict(wanted.pins), NOWHERE, reason=f"FW606: {error}")
    heard(("stage", f"the recipe with {wanted}"))
    return run_inside(python, address, how, wanted)


def locate(recipe: str) -> str:
    """The recipe as it is named from here. Other environments have no modules of the user's, so it must be a file.

    Findings quote the path, and tables go into READMEs: one below the current folder is named from there.
    """
    where, colon, name = recipe.partition(":")
    path = Path(where)
    if not path.is_file() or path.suffix != ".py":
        raise complain(
            "FW101",
            f"{where!r:.200} is no Python file",
            todo=("Name the recipe as a file, path/to/recipe.py[:name]: another environment has no modules of yours.",),
        )
    near = os.path.relpath(path.resolve())
    return f"{path.resolve() if near.startswith('..') else near}{colon}{name}"


def fingerprint(address: str, how: RunSettings, kept: Path | None = None) -> str:
    """Of the recipe, its folder, this Fairway and how it is run. Code counts by content, data by size and time.

    The cache, where results are `kept`, may lie in the recipe's folder; it is no part of it.
    """
    cache = () if kept is None else (kept.resolve(), kept.parent.resolve() / "environments")
    where, _, name = address.partition(":")
    digest = hashlib.sha256(json.dumps([Path(where).name, name, fairways_version(), asdict(how)]).encode())
    for root in (Path(where).parent, SOURCE):
        for path in sorted(root.resolve().rglob("*")):
            parts = path.relative_to(root.resolve()).parts
            if any(part.startswith((".", "__pycache__")) for part in parts) or not path.is_file():
                continue
            if path.name.endswith(_MADE) or any(map(path.is_relative_to, cache)):
                continue
            digest.update("/".join(parts).encode())
            if path.suffix in (".py", ".toml"):
                digest.update(path.read_bytes())
            else:
                digest.update(f"{path.stat().st_size} {path.stat().st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def recall(place: Path) -> Row | None:
    """A row as it was kept; nothing where the file is missing or is anything else."""
    try:
        return row_from(json.loads(place.read_text()))
    except (OSError, ValueError):
        return None


def row_from(data: Any) -> Row:
    """A row read back. ValueError where it is none."""
    kinds: dict[str, type | tuple[type, ...]] = {
        "wanted": dict,
        "verdict": str,
        "route": (str, type(None)),
        "remedies": list,
        "seconds": (int, float),
        "installed": dict,
        "reason": str,
    }
    assert set(kinds) == {f.name for f in fields(Row)}
    if not isinstance(data, dict) or set(data) != set(kinds):
        raise ValueError("not a row")
    for name, kind in kinds.items():
        if not isinstance(data[name], kind):
            raise ValueError(f"{name} is {data[name]!r:.80}")
    return Row(**{**data, "remedies": tuple(map(str, data["remedies"]))})
