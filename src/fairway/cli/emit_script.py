"""--emit-script: the Python that does what the command line says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairway.model.recipe import Overrides


def emit(
    recipe: str,
    output: Path,
    said: Overrides,
    level: str,
    routes: tuple[str, ...],
    opset: int | None,
    remedies: bool,
    timeout: float,
    memory: int,
    data: Path | None,
    overwrite: bool,
    weights: str | None,
) -> str:
    """A script that loads the same recipe with the same overrides and exports it with the same settings."""
    overrides = _call(
        "Overrides",
        inputs=said.inputs or None,
        bounds=dict(said.bounds) or None,
        multiples=dict(said.multiples) or None,
        checkpoint=_path(said.checkpoint),
        trust=said.trust or None,
    )
    settings = (level, routes, opset, remedies, timeout, memory, *(() if weights is None else (weights,)))
    return "\n".join(
        (
            "from pathlib import Path",
            "",
            "from fairway.convert.export import export_subject, make_settings",
            "from fairway.model.recipe import Overrides, load_subject",
            "",
            f"subject = load_subject({recipe!r}, {overrides})",
            f"settings = make_settings({', '.join(map(repr, settings))})",
            f"result = export_subject(subject, {_path(output)}, settings, data={_path(data)}, overwrite={overwrite!r})",
            "print(result)",
            "raise SystemExit(0 if result.verified else 1)",
        )
    )


class _Code(str):
    def __repr__(self) -> str:
        return str(self)


def _path(path: Path | None) -> _Code | None:
    return None if path is None else _Code(f"Path({str(path)!r})")


def _call(name: str, **arguments: Any) -> str:
    given = ", ".join(f"{key}={value!r}" for key, value in arguments.items() if value is not None)
    return f"{name}({given})"
