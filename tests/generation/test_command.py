"""The command says what the function does, and ends as the other commands end."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairway.cli import main
from fairway.convert.generation import export_generator as export
from fairway.convert.generation.generation_result import GenerationResult
from fairway.convert.generation.step_comparison import ComparedStep, PromptRun
from fairway.convert.types import Settings, Verdict
from fairway.diagnostics import Finding
from fairway.record.schema import GenerationRecord

RECIPE = "import torch\nnet = torch.nn.Linear(2, 2)\n"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def fairway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.py").write_text(RECIPE)

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fairway", "export-generation", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capsys.readouterr()

    return call


def answer(verdict: Verdict, *findings: Finding) -> GenerationResult:
    step = ComparedStep(0, (5, 6), (5, 6), 0.25, 1e-5, 0.125, "same")
    other = ComparedStep(1, (7, 7), (7, 8), 1e-6, 1e-5, 0.5, "undecided")
    run = PromptRun("2 prompts of 1 to 4 tokens, padded on the left", (1, 4), (step, other), "by the yardstick")
    path = Path("out") if verdict == "verified" else None
    record = GenerationRecord(format=2, verdict=verdict, versions={}, graphs={})
    return GenerationResult(verdict, path, ("model.onnx",), {}, (run,), findings, record)


def test_the_result_is_shown_and_every_wish_is_passed_on(fairway: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: list[Any] = []

    def instead(*words: Any) -> GenerationResult:
        arguments.extend(words)
        return answer("verified")

    monkeypatch.setattr(export, "generate_folder", instead)
    wishes = ("--dim", "past=0..9", "--steps", "7", "--level", "quick", "--timeout", "5", "--overwrite")
    code, out, err = fairway("recipe.py:net", "-o", "out", *wishes)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "verified  out",
        "  steps     2 prompts of 1 to 4 tokens, padded on the left: 3 of 4 tokens the same, 3 different ones, "
        "1 steps depend on rounding",
        "            logits at most 0.5 of what is allowed, least margin 1e-06; by the yardstick",
        "  files     model.onnx",
    ]
    model, folder, settings, options, progress = arguments
    assert (type(model).__name__, folder) == ("Linear", Path("out"))
    assert options == export.GenerationOptions({"past": (0, 9)}, None, 7, True)
    assert isinstance(settings, Settings)
    assert (settings.level, settings.limits.seconds, callable(progress)) == ("quick", 5.0, True)


def test_a_wrong_folder_ends_with_1_and_its_finding(fairway: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = answer("wrong", Finding("FW412", "step 3"))
    monkeypatch.setattr(export, "generate_folder", lambda *words: wrong)
    code, out, _ = fairway("recipe.py:net", "-o", "out")
    assert code == 1
    assert out.splitlines()[0] == "wrong"
    assert "FW412 error: The files generate another token than PyTorch" in out
    code, out, _ = fairway("recipe.py:net", "-o", "out", "--json")
    shown = json.loads(out)
    assert (code, shown["verdict"], shown["path"]) == (1, "wrong", None)


def test_a_model_that_does_not_generate_ends_with_2(fairway: Call, tmp_path: Path) -> None:
    code, out, err = fairway("recipe.py:net", "-o", "out", "--level", "quick")
    assert (code, out) == (2, "")
    assert "FW019 error: " in err
    assert "expected a model of transformers, got Linear" in err
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "__pycache__") == ["recipe.py"]


def test_a_folder_that_is_there_is_refused_before_the_recipe_is_run(fairway: Call, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/model.onnx").touch()
    code, _, err = fairway("lost.py", "-o", "out")
    assert code == 2
    assert "FW008 error: The output file exists" in err


def test_a_multiple_is_refused(fairway: Call) -> None:
    code, _, err = fairway("recipe.py:net", "-o", "out", "--dim", "seq%8")
    assert code == 2
    assert "a cache grows one by one, so seq cannot have a multiple" in err
