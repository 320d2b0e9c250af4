"""The command line as a whole: its help, its version, options that commands share, swapped arguments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import fairway as package
from fairway.cli.app import app
from fairway.cli.options import parse_duration, parse_percentage
from fairway.diagnostics.codes import CODES, Code
from fairway.diagnostics.errors import UserError

from .command_line import QUICK, Fairway

PANELS = ["Export:", "Diagnose:", "Tune:", "Deploy:"]


def commands() -> Iterator[tuple[str, Any]]:
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        yield name, command
        for below, inner in getattr(command, "commands", {}).items():
            yield f"{name} {below}", inner


def test_version_prints_the_version(fairway: Fairway) -> None:
    result = fairway("--version")
    assert (result.code, result.out, result.err) == (0, f"fairway {fairway_version()}\n", "")


def fairway_version() -> str:
    return package.__version__


@pytest.mark.parametrize("columns", ["100", "80"])
def test_help_lists_every_command_in_a_panel_on_one_line(
    fairway: Fairway, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = fairway("--help").out.splitlines()
    assert [line for line in lines if line in PANELS] == PANELS
    assert [line for line in lines if len(line) > int(columns)] == []
    for name, command in commands():
        if " " not in name:
            summary = command.help.strip().splitlines()[0]
            assert [line.split() for line in lines].count([name, *summary.split()]) == 1
    assert "..." not in "\n".join(lines[4:])


def test_an_option_has_one_form_in_all_commands() -> None:
    forms: dict[str, set[tuple[object, ...]]] = {}
    for _, command in commands():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                form = (tuple(parameter.opts), parameter.metavar)
                forms.setdefault(parameter.opts[0], set()).add(form)
    for option in ("--recipe", "--timeout", "--data", "--memory", "--json", "--input", "--dim", "--checkpoint"):
        assert len(forms[option]) == 1, forms[option]
    assert {metavar for _, metavar in forms["--level"]} == {"quick|standard|deep", "none|quick|standard|deep"}


def test_no_option_takes_a_recipe_but_recipe() -> None:
    for name, command in commands():
        for parameter in command.params:
            if parameter.metavar == "RECIPE" and parameter.param_type_name == "option":
                assert parameter.opts == ["--recipe"], name


@pytest.mark.parametrize(
    ("words", "seen", "order"),
    [
        (
            ("verify", "recipe.py", "out.onnx"),
            "MODEL.onnx: expected an ONNX file, got the recipe 'recipe.py'",
            "verify MODEL.onnx RECIPE",
        ),
        (
            ("locate", "recipe.py:net", "out.onnx"),
            "MODEL.onnx: expected an ONNX file, got the recipe 'recipe.py:net'",
            "locate MODEL.onnx RECIPE",
        ),
        (
            ("export", "out.onnx", "-o", "new.onnx"),
            "RECIPE: expected a recipe, got the ONNX file 'out.onnx'",
            "",
        ),
        (
            ("optimize", "out.onnx", "--recipe", "out.onnx"),
            "--recipe: expected a recipe, got the ONNX file 'out.onnx'",
            "optimize MODEL.onnx",
        ),
        (
            ("run", "out.onnx", "other.onnx", "-o", "folder"),
            "DATA: expected data, got the ONNX file 'other.onnx'",
            "run MODEL.onnx DATA",
        ),
    ],
)
def test_swapped_arguments_are_named(fairway: Fairway, words: tuple[str, ...], seen: str, order: str) -> None:
    result = fairway(*words)
    assert result.code == 2
    assert result.err.splitlines() == [
        "FW025 error: The command line is invalid",
        f"  seen      {seen}",
        "  why       A command, an argument or an option is missing, unknown, misspelled or in the wrong place.",
        f"  do        1. Give the arguments in this order: fairway {order}"
        if order
        else "  do        1. To judge an ONNX file against its model: fairway verify out.onnx RECIPE",
    ]


def test_a_percentage_that_is_none_is_refused(fairway: Fairway, folder: Path) -> None:
    result = fairway("quantize", "out.onnx", "-o", "small.onnx", "--max-drop", "foo")
    assert result.err.splitlines()[:2] == [
        "FW006 error: An option has an invalid value",
        "  seen      --max-drop: expected a percentage such as 1% or 0.01, got 'foo'",
    ]
    assert result.code == 2
    assert (parse_percentage("--max-drop", "1 %"), parse_percentage("--max-drop", "0.01")) == (0.01, 0.01)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("1.5m", 90.0), ("1h", 3600.0)])
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration("--timeout", text) == seconds


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="--timeout: expected a time such as 90s, 5m or 1h, got 'soon'"):
        parse_duration("--timeout", "soon")


def test_the_script_calls_export_with_what_differs_from_the_defaults(fairway: Fairway) -> None:
    result = fairway("export", "recipe.py", "-o", "out.onnx", *QUICK, "--dim", "batch=2..8", "--emit-script")
    assert result.out.splitlines() == [
        "import fairway",
        "from fairway.model.recipe import Overrides, load_model",
        "",
        "loaded = load_model('recipe.py', Overrides())",
        "recipe = loaded.recipe",
        "result = fairway.export(",
        "    loaded.model,",
        "    recipe.inputs,",
        "    'out.onnx',",
        "    dims=recipe.dims,",
        "    bounds={**recipe.bounds, **{'batch': (2, 8)}},",
        "    multiples=recipe.multiples,",
        "    example=recipe.example,",
        "    input_names=recipe.input_names,",
        "    output_names=recipe.output_names,",
        "    patches=recipe.patches,",
        "    translations=recipe.translations,",
        "    level='quick',",
        "    routes=('trace',),",
        "    timeout=600.0,",
        ")",
        "print(result)",
        "raise SystemExit(0 if result.verified else 1)",
    ]


def test_every_code_has_a_name_that_is_its_pages_name() -> None:
    assert list(CODES) == [code.value for code in Code] or set(CODES) == {code.value for code in Code}
    assert [row.name for row in CODES.values()] == [Code(code).name.lower().replace("_", "-") for code in CODES]
    assert Code.LOOP_UNROLLED == "FW206"
