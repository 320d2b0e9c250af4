"""Rules for every remedy, so that a new remedy cannot be added without its evidence."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from fairway.convert.ladder.route import ROUTES
from fairway.convert.remedies.catalogue import BUILT_IN as CATALOGUE
from fairway.convert.remedies.contract import STAGES
from fairway.diagnostics.codes import _ROWS
from fairway.testing import check_apply, check_detect, check_metadata, make_case

ROOT = Path(__file__).parents[2]
SOURCES, TESTS = ROOT / "src/fairway/convert/remedies", ROOT / "tests/remedies"

every_remedy = pytest.mark.parametrize("name", CATALOGUE)


def test_every_test_file_has_a_remedy() -> None:
    assert {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")} == set(CATALOGUE)


def test_remedies_are_sorted_by_stage_and_order_and_no_two_share_both() -> None:
    places = [(STAGES.index(remedy.stage), remedy.order) for remedy in CATALOGUE.values()]
    assert places == sorted(set(places))


@every_remedy
def test_the_file_bears_the_remedys_name(name: str) -> None:
    assert CATALOGUE[name].name == name
    assert sys.modules[f"fairway.convert.remedies.{name}"].REMEDY is CATALOGUE[name]


@every_remedy
def test_its_record_is_whole(name: str) -> None:
    check_metadata(CATALOGUE[name])


def test_no_two_remedies_cure_the_same_finding() -> None:
    cured = [remedy.cures for remedy in CATALOGUE.values()]
    assert len(cured) == len(set(cured))


@every_remedy
def test_the_docstring_makes_a_claim_and_says_when_it_refuses(name: str) -> None:
    docstring = sys.modules[f"fairway.convert.remedies.{name}"].__doc__ or ""
    assert docstring.splitlines()[0].endswith(".")
    assert "efuse" in docstring


@every_remedy
def test_the_file_and_its_functions_are_short(name: str) -> None:
    source = (SOURCES / f"{name}.py").read_text()
    assert len(source.splitlines()) <= 250
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 60, node.name


@every_remedy
def test_it_has_a_test_file_with_at_least_four_tests(name: str) -> None:
    tree = ast.parse((TESTS / f"test_{name}.py").read_text())
    tests = [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
    assert len(tests) >= 4
    assert any("twice" in test for test in tests)
    assert any("refused" in test for test in tests)


@pytest.mark.parametrize("route", ROUTES)
@every_remedy
def test_detect_answers_and_changes_nothing(name: str, route: str) -> None:
    check_detect(CATALOGUE[name], make_case(route))


@pytest.mark.parametrize("route", ROUTES)
@every_remedy
def test_apply_leaves_everything_as_it_was_also_after_an_error(name: str, route: str) -> None:
    if not check_apply(CATALOGUE[name], make_case(route)):
        pytest.skip("it refuses the case")


def test_every_code_stands_once_and_in_order() -> None:
    codes = [row.code for row in _ROWS]
    assert codes == sorted(set(codes))
