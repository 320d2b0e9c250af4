"""What holds for every remedy, so that a new one cannot be added without its evidence."""

from __future__ import annotations

import ast
import copy
import re
import sys
from pathlib import Path

import pytest
import torch
from packaging.specifiers import SpecifierSet
from torch import nn

from fairway.findings import CODES
from fairway.ladder.route import ROUTES, parse_route
from fairway.remedies.catalogue import CATALOGUE
from fairway.remedies.contract import Case, Match, Refusal

ROOT = Path(__file__).parents[2]
SOURCES, TESTS = ROOT / "src/fairway/remedies", ROOT / "tests/remedies"
NOT_REMEDIES = {"__init__", "catalogue", "contract"}

every_remedy = pytest.mark.parametrize("name", CATALOGUE)


class Mixed(nn.Module):
    """Something of everything that remedies look for."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 4, 2, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.rnn(x, torch.zeros(2, len(x), 4))
        return self.encoder(hidden) * (1.0 - mask)[..., None]


def case_of(route: str) -> Case:
    args = (torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.int64))
    return Case(Mixed().eval(), args, {}, parse_route(route), (), ("x", "mask"), ("x",))


def test_every_file_is_in_the_table_and_nothing_else_is() -> None:
    files = {path.stem for path in SOURCES.glob("*.py")} - NOT_REMEDIES
    assert files == set(CATALOGUE)


@every_remedy
def test_the_file_bears_the_remedys_name(name: str) -> None:
    assert CATALOGUE[name].name == name
    assert sys.modules[f"fairway.remedies.{name}"].REMEDY is CATALOGUE[name]


@every_remedy
def test_it_cures_a_finding_that_exists(name: str) -> None:
    assert CATALOGUE[name].cures in CODES


def test_no_two_remedies_cure_the_same_finding() -> None:
    cured = [remedy.cures for remedy in CATALOGUE.values()]
    assert len(cured) == len(set(cured))


@every_remedy
def test_a_finding_that_a_remedy_cures_names_it_or_says_what_to_do(name: str) -> None:
    assert CODES[CATALOGUE[name].cures].todo


@every_remedy
def test_the_affected_versions_are_specifiers(name: str) -> None:
    assert CATALOGUE[name].affected
    for package, versions in CATALOGUE[name].affected.items():
        assert re.fullmatch(r"[a-z][a-z0-9-]*", package)
        SpecifierSet(versions)


@every_remedy
def test_upstream_issues_can_be_looked_up(name: str) -> None:
    for reference in CATALOGUE[name].upstream:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", reference)


@every_remedy
def test_safety_and_title_are_one_line(name: str) -> None:
    for text in (CATALOGUE[name].safety, CATALOGUE[name].title):
        assert text.strip()
        assert "\n" not in text
    assert CATALOGUE[name].safety.endswith(".")


@every_remedy
def test_the_docstring_makes_a_claim_and_says_when_it_refuses(name: str) -> None:
    docstring = sys.modules[f"fairway.remedies.{name}"].__doc__ or ""
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
    case = case_of(route)
    weights, before = copy.deepcopy(case.model.state_dict()), copy.copy(case)
    answer = CATALOGUE[name].detect(case)
    assert isinstance(answer, Match | Refusal)
    assert answer.note if isinstance(answer, Match) else answer.reason
    assert case == before
    assert case.translations == {}
    assert case.passes == []
    assert not any(module.training for module in case.model.modules())
    assert all(torch.equal(weights[key], value) for key, value in case.model.state_dict().items())


@pytest.mark.parametrize("route", ROUTES)
@every_remedy
def test_apply_leaves_everything_as_it_was_also_after_an_error(name: str, route: str) -> None:
    case = case_of(route)
    answer = CATALOGUE[name].detect(case)
    if isinstance(answer, Refusal):
        pytest.skip(answer.reason)
    before = patched_places()

    def fail() -> None:
        with CATALOGUE[name].apply(case, answer):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert patched_places() == before
    assert (case.translations, case.passes) == ({}, [])
    assert not any(m._forward_pre_hooks or "forward" in vars(m) for m in case.model.modules())


def patched_places() -> list[object]:
    """The library functions that remedies replace, and the settings they change."""
    return [
        torch.vmap,
        torch.func.vmap,
        nn.modules.rnn._VF,
        nn.modules.transformer._detect_is_causal_mask,
        nn.functional._in_projection_packed,
        torch.backends.mha.get_fastpath_enabled(),
        torch._dynamo.config.allow_rnn,
        nn.GRU.forward,
    ]
