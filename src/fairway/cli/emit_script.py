"""The Python script that --emit-script prints: a call of `fairway.export` equal to the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fairway.model.recipe import Overrides

_TEMPLATE = """\
{imports}import fairway
from fairway.model.recipe import Overrides, load_model

loaded = load_model({recipe!r}, {overrides})
recipe = loaded.recipe
result = fairway.export(
    loaded.model,
{arguments}
)
print(result)
raise SystemExit(0 if result.verified else 1)"""


class _Expression(str):
    """Python source to insert as it is."""

    def __repr__(self) -> str:
        return str(self)


def write_script(recipe: str, output: Path, overrides: Overrides, settings: Mapping[str, object]) -> str:
    """Return a script that loads the recipe and calls `fairway.export` with the settings that are not None."""
    arguments: dict[str, object] = {
        "dims": None if overrides.inputs else _Expression("recipe.dims"),
        "bounds": _merge("recipe.bounds", overrides.bounds),
        "multiples": _merge("recipe.multiples", overrides.multiples),
        **{name: _Expression(f"recipe.{name}") for name in ("example", "input_names", "output_names")},
        **{name: _Expression(f"recipe.{name}") for name in ("patches", "translations")},
        **settings,
    }
    lines = [
        repr(list(overrides.inputs)) if overrides.inputs else "recipe.inputs",
        repr(str(output)),
        *(f"{name}={value!r}" for name, value in arguments.items() if value is not None),
    ]
    loading = {
        "inputs": overrides.inputs or None,
        "checkpoint": None if overrides.checkpoint is None else _Expression(f"Path({str(overrides.checkpoint)!r})"),
        "trust": overrides.trust or None,
        "checkpoint_key": overrides.checkpoint_key,
    }
    given = ", ".join(f"{name}={value!r}" for name, value in loading.items() if value is not None)
    return _TEMPLATE.format(
        imports="" if overrides.checkpoint is None else "from pathlib import Path\n\n",
        recipe=recipe,
        overrides=f"Overrides({given})",
        arguments="\n".join(f"    {line}," for line in lines),
    )


def _merge(base: str, changes: Mapping[str, object]) -> _Expression:
    return _Expression(f"{{**{base}, **{dict(changes)!r}}}" if changes else base)
