"""Run a recipe in every requested environment, one row each. Results are kept and reused until anything changes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from fairway.debug.versions.environments import SOURCE_FOLDER, EnvironmentNotMade, EnvironmentSpec, read_fairway_version
from fairway.debug.versions.inside import NO_ENVIRONMENT, NO_RESULT, MatrixRow, RunSettings, run_inside
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.record.progress import EventSink, PartStarted, StageStarted

EnvironmentMaker = Callable[[EnvironmentSpec], Path]
"""Returns the Python of an environment, or raises EnvironmentNotMade."""

_OUTPUT_SUFFIXES = (".onnx", ".data", ".fairway.json", ".pyc")
"""Files that runs leave behind; they are not part of a recipe."""


@dataclass(frozen=True)
class MatrixRun:
    """The way to run recipes in environments."""

    maker: EnvironmentMaker
    settings: RunSettings
    results: Path | None = None
    """The folder in which rows are kept; None to keep none."""
    rerun: bool = False
    """Run again what has a kept row."""


def fill_matrix(
    recipe: str, environments: Sequence[EnvironmentSpec], run: MatrixRun, on_event: EventSink
) -> list[MatrixRow]:
    """Return the rows, in order. An environment that cannot be made or a run that crashes is a row, too."""
    address = locate_recipe(recipe)
    digest = hash_recipe(address, run.settings, run.results)
    rows = []
    for number, environment in enumerate(environments):
        if len(environments) > 1:
            on_event(PartStarted(f"{number + 1} of {len(environments)}:"))
        row_file = None if run.results is None else run.results / f"{digest}-{environment.key()}.json"
        row = None if run.rerun or row_file is None else read_kept_row(row_file)
        if row is None:
            row = _run_one(address, environment, run, on_event)
            if row_file is not None and row.verdict not in (NO_RESULT, NO_ENVIRONMENT):
                row_file.parent.mkdir(parents=True, exist_ok=True)
                row_file.write_text(json.dumps(asdict(row)))
        rows.append(row)
    return rows


def _run_one(address: str, environment: EnvironmentSpec, run: MatrixRun, on_event: EventSink) -> MatrixRow:
    on_event(StageStarted(f"an environment with {environment}"))
    try:
        python = run.maker(environment)
    except EnvironmentNotMade as error:
        return MatrixRow(dict(environment.pins), NO_ENVIRONMENT, reason=f"FW606: {error}")
    on_event(StageStarted(f"the recipe with {environment}"))
    return run_inside(python, address, run.settings, environment)


def locate_recipe(recipe: str) -> str:
    """Return the recipe's address relative to the current folder. It must be a file: other environments lack the
    user's modules.

    Findings quote the path and tables go into READMEs, so a recipe below the current folder is named from there.
    """
    file, colon, name = recipe.partition(":")
    path = Path(file)
    if not path.is_file() or path.suffix != ".py":
        raise complain(
            Code.RECIPE_MISSING,
            f"{file!r:.200}: expected a Python file",
            todo=(
                "Name the recipe as a file, path/to/recipe.py[:name]: another environment does not have your modules.",
            ),
        )
    relative = os.path.relpath(path.resolve())
    return f"{path.resolve() if relative.startswith('..') else relative}{colon}{name}"


def hash_recipe(address: str, settings: RunSettings, results: Path | None = None) -> str:
    """Return a hash of the recipe, its folder, this Fairway and the settings. Code counts by content, data by size and
    time.

    The cache folder `results` may be in the recipe's folder; it is not part of it.
    """
    cache = () if results is None else (results.resolve(), results.parent.resolve() / "environments")
    file, _, name = address.partition(":")
    digest = hashlib.sha256(json.dumps([Path(file).name, name, read_fairway_version(), asdict(settings)]).encode())
    for root in (Path(file).parent, SOURCE_FOLDER):
        for path in sorted(root.resolve().rglob("*")):
            parts = path.relative_to(root.resolve()).parts
            if any(part.startswith((".", "__pycache__")) for part in parts) or not path.is_file():
                continue
            if path.name.endswith(_OUTPUT_SUFFIXES) or any(map(path.is_relative_to, cache)):
                continue
            digest.update("/".join(parts).encode())
            if path.suffix in (".py", ".toml"):
                digest.update(path.read_bytes())
            else:
                digest.update(f"{path.stat().st_size} {path.stat().st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def read_kept_row(path: Path) -> MatrixRow | None:
    """Return a kept row; None if the file is missing or invalid."""
    try:
        return parse_row(json.loads(path.read_text()))
    except (OSError, ValueError):
        return None


def parse_row(data: object) -> MatrixRow:
    """Return the row; raise ValueError if the data is not a row."""
    kinds: dict[str, type | tuple[type, ...]] = {
        "requested": dict,
        "verdict": str,
        "route": (str, type(None)),
        "remedies": list,
        "seconds": (int, float),
        "installed": dict,
        "reason": str,
    }
    assert set(kinds) == {f.name for f in fields(MatrixRow)}
    if not isinstance(data, dict) or set(data) != set(kinds):
        raise ValueError("not a row")
    for name, kind in kinds.items():
        if not isinstance(data[name], kind):
            raise ValueError(f"{name} is {data[name]!r:.80}")
    return MatrixRow(**{**data, "remedies": tuple(map(str, data["remedies"]))})
