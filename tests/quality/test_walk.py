"""The walk of mistakes: every answer is judged, few are unclear, and the answers are those of today's code."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

WALK = Path(__file__).parents[2] / "benchmarks" / "walk"
MAX_UNCLEAR = 3
REFUSED_AT_ONCE = (
    "a class for an instance",
    "a state_dict for a model",
    "None for a model",
    "a function of torch",
    "an ONNX file for a model",
    "a numpy array as example",
    "a shape as example",
    "an input that is missing",
    "an input with another name",
    "a dtype that does not exist",
    "a missing bracket",
    "a missing colon",
    "bounds for no dim",
    "bounds the wrong way round",
    "a level that does not exist",
    "dynamic_axes of no input",
    "do_constant_folding",
    "a folder that does not exist",
    "autocast around the export",
)
"""Mistakes in Python that are answered before anything is exported."""


def load_walk() -> ModuleType:
    spec = importlib.util.spec_from_file_location("walk", WALK / "walk.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_answers() -> dict[str, str]:
    text = (WALK / "answers.md").read_text()
    return dict(re.findall(r"^## (.*?)\n\n```text\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL))


def read_judgment() -> dict[str, tuple[str, str]]:
    rows = [line.split("|") for line in (WALK / "judgment.md").read_text().splitlines() if line.startswith("| ")]
    return {row[1].strip(): (row[2].strip(), row[3].strip()) for row in rows[1:]}


def test_every_mistake_is_answered_and_judged() -> None:
    walk = load_walk()
    names = [*walk.PYTHON, *walk.COMMANDS]
    assert (len(walk.PYTHON), len(walk.COMMANDS)) == (36, 20)
    assert list(read_answers()) == list(read_judgment()) == names


def test_few_answers_are_unclear() -> None:
    unclear = [name for name, judged in read_judgment().items() if judged != ("yes", "yes")]
    assert len(unclear) <= MAX_UNCLEAR, unclear


@pytest.mark.parametrize("name", REFUSED_AT_ONCE)
def test_the_answers_are_those_of_todays_code(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    walk = load_walk()
    assert walk.answer_in_python(walk.PYTHON[name]) == read_answers()[name]
