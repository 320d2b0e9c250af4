"""The checks for plug-ins fail for each kind of mistake, and name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from onnxscript import opset18 as op

from fairway.convert.remedies.catalogue import BUILT_IN
from fairway.convert.remedies.contract import Case, Match, Refusal
from fairway.diagnostics import knowledge
from fairway.diagnostics.knowledge.entry import load_shipped_entries
from fairway.testing import check_knowledge, check_remedy, check_translations
from fairway.torch_internals import patch_attribute

GOOD = BUILT_IN["mul_scalar"]
RELU = torch.ops.aten.relu.default


def trains(case: Case) -> Match:
    case.model.train()
    return Match("here")


def leaves(case: Case) -> Match:
    case.passes.append(lambda model: False)
    return Match("here")


def spoils(case: Case) -> Refusal:
    with torch.no_grad():
        next(case.model.parameters()).add_(1)
    return Refusal("no")


@contextmanager
def swallows(case: Case, match: Match) -> Iterator[None]:
    with suppress(ZeroDivisionError):
        yield


@contextmanager
def forgets(case: Case, match: Match) -> Iterator[None]:
    case.translations[RELU] = abs
    yield


@contextmanager
def patches(case: Case, match: Match) -> Iterator[None]:
    torch.backends.mha.set_fastpath_enabled(not torch.backends.mha.get_fastpath_enabled())
    yield


@contextmanager
def replaces_to(case: Case, match: Match) -> Iterator[None]:
    torch.nn.Module.to = lambda self, *args: self
    yield


@contextmanager
def restores_only_without_an_error(case: Case, match: Match) -> Iterator[None]:
    original = torch.tril
    torch.tril = torch.triu
    yield
    torch.tril = original


def never_leaves_its_patch(case: Case, match: Match) -> AbstractContextManager[None]:
    LEFT_OPEN.append(patch_attribute(torch.nn.functional, "gelu", torch.nn.functional.relu))
    LEFT_OPEN[-1].__enter__()
    return nullcontext()


LEFT_OPEN: list[AbstractContextManager[None]] = []


@contextmanager
def hooks(case: Case, match: Match) -> Iterator[None]:
    case.model.register_forward_hook(lambda *_: None)
    yield


@contextmanager
def replaces_a_weight(case: Case, match: Match) -> Iterator[None]:
    case.model.rnn.weight_hh_l0 = torch.nn.Parameter(torch.zeros(12, 4))
    yield


def matches(case: Case) -> Match:
    return Match("here")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Mul-Scalar"}, "the name 'Mul-Scalar' is not the name of a module"),
        ({"stage": "magic"}, "the stage 'magic' is not one of source, model, library, translation, graph"),
        ({"cures": "FW999"}, "there is no finding FW999"),
        ({"affected": {}}, "no affected versions"),
        ({"affected": {"Torch!": ">1"}}, "'Torch!' is not the name of a package"),
        ({"upstream": ("#3",)}, "'#3' is not owner/repo#number"),
        ({"title": " "}, "the title or the safety is empty"),
        ({"title": "two\nlines"}, "more than one line: 'two\\nlines'"),
        ({"safety": "Safe"}, "the safety does not end with a period"),
        ({"detect": lambda case: None}, "detect returned None"),
        ({"detect": lambda case: Refusal("")}, "no reason is given"),
        ({"detect": trains}, "detect changed the mode"),
        ({"detect": leaves}, "detect left something for the exporter"),
        ({"detect": spoils}, "detect changed the weights"),
        ({"detect": matches, "apply": swallows}, "apply swallowed an error"),
        ({"detect": matches, "apply": forgets}, "apply left something for the exporter"),
        (
            {"detect": matches, "apply": patches},
            "apply left a library patched: torch.backends.mha.get_fastpath_enabled()",
        ),
        (
            {"detect": matches, "apply": replaces_to},
            "apply left a library patched: torch.nn.modules.module.Module.to",
        ),
        (
            {"detect": matches, "apply": restores_only_without_an_error},
            "apply left a library patched: torch.tril",
        ),
        (
            {"detect": matches, "apply": never_leaves_its_patch},
            "apply left a library patched: torch.nn.functional.gelu",
        ),
        ({"detect": matches, "apply": hooks}, "apply left MixedModel patched"),
        ({"detect": matches, "apply": replaces_a_weight}, "apply left GRU patched"),
    ],
)
def test_a_remedy_with_a_fault_is_refused(changes: dict[str, Any], message: str) -> None:
    fast, move, tril = torch.backends.mha.get_fastpath_enabled(), torch.nn.Module.to, torch.tril
    try:
        with pytest.raises(AssertionError) as error:
            check_remedy(replace(GOOD, **changes))
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.nn.Module.to, torch.tril = move, tril
        while LEFT_OPEN:
            LEFT_OPEN.pop().__exit__(None, None, None)
    assert str(error.value).startswith(message)


def test_a_remedy_must_match_the_model_that_is_given() -> None:
    refuses = replace(GOOD, detect=lambda case: Refusal("not here"))
    check_remedy(refuses)
    with pytest.raises(AssertionError, match="mul_scalar refuses the model given on every route"):
        check_remedy(refuses, torch.nn.ReLU(), (torch.randn(2),))


def test_a_table_of_translations_is_compared_and_must_be_used_up() -> None:
    functions = {"relu": torch.relu, "more": lambda x: torch.relu(x).sum(0)}
    points = [(torch.randn(3, 2),), (torch.randn(1, 2),)]
    check_translations({RELU: lambda self: op.Relu(self)}, functions, points, tolerance=1e-6)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_translations({RELU: lambda self: op.Abs(self)}, functions, points, tolerance=1e-6)
    with pytest.raises(AssertionError, match=r"no function calls aten\.sin\.default"):
        check_translations({torch.ops.aten.sin.default: lambda self: op.Sin(self)}, functions, points, tolerance=1e-6)
    with pytest.raises(AssertionError, match="got 'relu'"):
        check_translations({"relu": print}, functions, points, tolerance=1e-6)


ENTRY = """\
[[bug]]
id = 'a-bug'
title = 'It breaks'
signature = ''
affected = 'torch 2.13'
fixed = ''
status = 'unreported'
date = 2026-11-16
link = ''
todo = 'Wait.'
whose = ''
remedy = 'mul_scalar'
seen = ''
"""


def test_knowledge_is_read_and_what_is_wrong_in_it_is_told(tmp_path: Path) -> None:
    file = tmp_path / "torch.toml"
    file.write_text(ENTRY)
    assert [entry.id for entry in check_knowledge(tmp_path)] == ["a-bug"]
    file.write_text(ENTRY.replace("mul_scalar", "of_theirs"))
    with pytest.raises(AssertionError, match="a-bug: there is no remedy of_theirs"):
        check_knowledge(tmp_path)
    assert check_knowledge(tmp_path, remedies=("of_theirs",))
    file.write_text(ENTRY.replace("a-bug", load_shipped_entries()[0].id))
    with pytest.raises(AssertionError, match="is the id of another entry of Fairway"):
        check_knowledge(tmp_path)
    file.write_text(ENTRY.replace("unreported", "who knows"))
    with pytest.raises(AssertionError, match="the status 'who knows' is none of"):
        check_knowledge(tmp_path)
    file.unlink()
    with pytest.raises(AssertionError, match="no TOML file with entries"):
        check_knowledge(tmp_path)


def test_fairways_own_knowledge_passes() -> None:
    assert {entry.id for entry in check_knowledge(knowledge)} == {entry.id for entry in load_shipped_entries()}
