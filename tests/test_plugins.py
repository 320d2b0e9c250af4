"""Plug-ins from folders with a dist-info on sys.path, as pip leaves them: good ones, bad ones, and what is left out."""

from __future__ import annotations

import logging
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fairway
from fairway.convert.remedies.catalogue import BUILT_IN, CATALOGUE, Catalogue
from fairway.convert.remedies.contract import STAGES, Match, Refusal
from fairway.convert.remedies.plugin_remedies import load_plugin_translations
from fairway.diagnostics import plugins
from fairway.diagnostics.knowledge.entry import load_entries, load_shipped_entries
from fairway.testing import check_apply, make_case

EXAMPLE = Path(__file__).parents[1] / "examples/plugin"

REMEDY = """\
from contextlib import contextmanager
import torch
from fairway.convert.remedies.contract import Match, Refusal, Remedy, add_translations

def apply_nothing(case, match):
    return add_translations(case, {})

def make(name, stage="translation", detect=lambda case: Match("here"), apply=apply_nothing):
    return Remedy(name, "FW304", "Title", stage, {"torch": ">=2.9"}, (), "Safe.", detect, apply)
"""

Install = Callable[..., None]


def forget() -> None:
    plugins.find_plugins.cache_clear()
    plugins._refusals.clear()
    load_entries.cache_clear()
    vars(CATALOGUE).pop("_remedies", None)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a module of a distribution with entry points, each a (group, object)."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()

    def add(distribution: str, source: str, *points: tuple[str, str]) -> None:
        module = distribution.replace("-", "_")
        monkeypatch.delitem(sys.modules, module, raising=False)  # a recipe of another test may have the same name
        (tmp_path / f"{module}.py").write_text(REMEDY + source)
        lines = [f"[{group}]\np{number} = {module}:{name}\n" for number, (group, name) in enumerate(points)]
        folder = tmp_path / f"{module}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text("".join(lines))

    yield add
    forget()
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def left_out() -> list[str]:
    return [finding.seen for finding in plugins.list_refusals()]


def test_without_plugins_the_catalogue_is_fairways_own() -> None:
    assert list(Catalogue()) == list(BUILT_IN)
    assert [STAGES.index(remedy.stage) for remedy in BUILT_IN.values()] == sorted(
        STAGES.index(remedy.stage) for remedy in BUILT_IN.values()
    )


def test_nothing_is_loaded_before_it_is_asked_for(install: Install) -> None:
    install("early-bird", "remedy = make('early')", ("fairway.remedies", "remedy"))
    catalogue = Catalogue()
    assert "early_bird" not in sys.modules
    assert "early" in catalogue
    assert "early_bird" in sys.modules


def test_a_remedy_stands_after_fairways_own_of_its_stage(install: Install) -> None:
    source = "one = make('one_more')\nfirst = make('at_the_library', stage='library')"
    install("good", source, ("fairway.remedies", "one"), ("fairway.remedies", "first"))
    names = list(Catalogue())
    ours = list(BUILT_IN)
    assert names.index("one_more") == names.index("mul_scalar") + 1
    assert names.index("at_the_library") < names.index("missing_translation")
    assert [name for name in names if name in ours] == ours
    assert left_out() == []


@pytest.mark.parametrize(
    ("source", "group", "said"),
    [
        ("1 / 0", "fairway.remedies", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "fairway.knowledge", "cannot be loaded: SystemExit: 3"),
        ("", "fairway.translations", "cannot be loaded: AttributeError: module 'bad' has no attribute 'thing'"),
        ("thing = 3", "fairway.remedies", "cannot be used: expected a Remedy, got 3"),
        ("thing = make('x', stage='magic')", "fairway.remedies", "cannot be used: expected one of the stages source, "),
        ("thing = make('mul_scalar')", "fairway.remedies", "cannot be used: there is a remedy mul_scalar already"),
        (
            "thing = [3]",
            "fairway.translations",
            "cannot be used: translations: expected a mapping of operators to functions, got list",
        ),
        (
            "thing = {'aten.relu': print}",
            "fairway.translations",
            "cannot be used: translations: expected an operator such as torch.ops.aten.add.Tensor, got 'aten.relu'",
        ),
        ("thing = 3", "fairway.knowledge", "cannot be used: BadEntryError: expected a package or a path, got 3"),
        ("thing = '/nowhere'", "fairway.knowledge", "cannot be used: FileNotFoundError: "),
    ],
)
def test_what_cannot_be_used_is_left_out_and_its_distribution_named(
    install: Install, source: str, group: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    install("bad", source, (group, "thing"))
    with caplog.at_level(logging.WARNING, logger="fairway.diagnostics.plugins"):
        assert list(Catalogue()) == list(BUILT_IN)
        assert load_plugin_translations() == {}
        assert load_entries() == load_shipped_entries()
    assert len(left_out()) == 1
    assert left_out()[0].startswith(f"bad: {group}: p0 {said}")
    assert plugins.list_refusals()[0].code == "FW117"
    assert "bad: " in caplog.text


def test_of_two_plugins_the_first_counts(install: Install) -> None:
    table = "table = {torch.ops.aten.relu.default: NAME}"
    install("aa", table.replace("NAME", "abs"), ("fairway.translations", "table"))
    install("bb", table.replace("NAME", "max"), ("fairway.translations", "table"))
    assert load_plugin_translations() == {torch.ops.aten.relu.default: abs}
    assert left_out() == [
        "bb: fairway.translations: p0 cannot be used: translated by another plug-in already: aten.relu.default"
    ]


def test_a_remedy_that_raises_breaks_nothing(install: Install) -> None:
    source = (
        "def fail(*_): raise RuntimeError('no')\n"
        "looks = make('looks', detect=fail)\n"
        "does = make('does', apply=fail)\n"
        "@contextmanager\n"
        "def patch(case, match):\n"
        "    case.passes.append(fail)\n"
        "    try: yield\n"
        "    finally: case.passes.clear()\n"
        "good = make('good', apply=patch)\n"
    )
    install("raising", source, *(("fairway.remedies", name) for name in ("looks", "does", "good")))
    catalogue, case = Catalogue(), make_case("export-dynamic")
    assert catalogue["looks"].detect(case) == Refusal("raising failed in detect: RuntimeError: no")
    with catalogue["does"].apply(case, Match("")):
        pass
    with catalogue["good"].apply(case, Match("")):
        assert len(case.passes) == 1
    assert case.passes == []
    assert check_apply(catalogue["good"], case)


def test_an_export_uses_the_example_and_reports_a_broken_plugin(install: Install, tmp_path: Path) -> None:
    install("broken", "1 / 0", ("fairway.remedies", "thing"))
    declared = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]
    shutil.copytree(EXAMPLE / "src/fairway_softclip", tmp_path / "fairway_softclip")
    install("softclip-metadata", "")
    points = "".join(f"[{g}]\n" + "".join(f"{n} = {v}\n" for n, v in p.items()) for g, p in declared.items())
    (tmp_path / "softclip_metadata-1.0.dist-info/entry_points.txt").write_text(points)
    layer: Any = __import__("fairway_softclip").SoftClip(0.5)

    options: dict[str, Any] = {"bounds": {"n": (1, 5)}, "level": "quick", "routes": ("export-dynamic",)}
    result = fairway.export(layer, ["x: float32[n]"], tmp_path / "s.onnx", **options)
    assert (result.verdict, result.remedies) == ("verified", ("missing_translation",))
    assert [(f.code, f.severity) for f in result.findings] == [("FW117", "warning")]
    assert result.findings[0].seen.startswith("broken: fairway.remedies: p0 cannot be loaded")
    assert "softclip-not-scriptable" in {entry.id for entry in load_entries()}

    refused = fairway.export(layer, ["x: float32[n]"], tmp_path / "t.onnx", remedies=False, **options)
    assert [finding.code for finding in refused.findings] == ["FW304"]
