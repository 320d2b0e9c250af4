"""The comparison of steps decides what is delivered. The graphs are taken from an earlier export."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fairway
from fairway.convert.generation import export_generator as export
from fairway.convert.generation.generation_result import GenerationResult
from fairway.convert.generation.greedy import Player
from fairway.convert.result import Result

from .conftest import Exported

Deliver = Callable[..., GenerationResult]
pytestmark = pytest.mark.slow


@pytest.fixture
def deliver(exported: Callable[[str], Exported], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deliver:
    """`export_generation` with graphs that were exported before."""
    mistral = exported("mistral")

    def copied(parts: Any, name: str, made: Path, *more: Any) -> dict[str, Result]:
        for file in ("model.onnx", "model.fairway.json"):
            shutil.copy(mistral.folder / file, made / file)
        return {file: replace(result, path=made / file) for file, result in mistral.result.graphs.items()}

    monkeypatch.setattr(export, "_export_each", copied)

    def call(**words: Any) -> GenerationResult:
        return fairway.export_generation(mistral.model, tmp_path / "out", **{"steps": 4, **words})

    return call


class Forgetful(Player):
    """Loses its cache's last entry at every step after the prompt."""

    def follow(self, tokens: torch.Tensor) -> torch.Tensor:
        self.cache = {
            name: tensor * (torch.arange(tensor.shape[2]) < tensor.shape[2] - 1)[:, None]
            for name, tensor in self.cache.items()
        }
        return super().follow(tokens)


class Deadly(Player):
    def __init__(self, *words: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_right_is_delivered_with_paths_that_are_there(deliver: Deliver, tmp_path: Path) -> None:
    result = deliver()
    assert (result.verdict, result.path) == ("verified", tmp_path / "out")
    assert names(tmp_path) == ["out"]
    assert tuple(names(tmp_path / "out")) == result.files
    assert [graph.path for graph in result.graphs.values()] == [tmp_path / "out" / "model.onnx"]


def test_what_goes_wrong_on_the_way_is_kept_aside_under_another_name(
    deliver: Deliver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "Player", Forgetful)
    result = deliver()
    assert (result.verdict, result.path, result.files) == ("wrong", None, ())
    assert names(tmp_path) == ["out.wrong"]
    record = json.loads((tmp_path / "out.wrong/generation.fairway.json").read_text())
    assert record["verdict"] == "wrong"
    first = next(finding for finding in result.findings if finding.code != "FW418")
    assert (first.code, first.data["since"]) == ("FW412", 1)
    assert first.seen.endswith("; the logits are off from step 1 on")


def test_what_could_not_be_compared_is_unproven(
    deliver: Deliver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "Player", Deadly)
    result = deliver()
    assert (result.verdict, result.runs) == ("unproven", ())
    assert [f.code for f in result.findings if f.code != "FW418"] == ["FW503", "FW504"]
    assert json.loads((tmp_path / "out/generation.fairway.json").read_text())["verdict"] == "unproven"


def test_fewer_steps_than_asked_for_are_unproven(deliver: Deliver) -> None:
    result = deliver(steps=130)
    assert result.verdict == "unproven"
    assert [f.seen for f in result.findings if f.code != "FW418"] == [
        "127 steps were compared, not 130: the context holds 128 tokens"
    ]
    assert {len(run.steps) for run in result.runs} == {127}


def test_files_that_are_not_ours_stay(deliver: Deliver, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("tokenizer.json", "model.onnx", "model.onnx.data"):
        (tmp_path / "out" / name).write_text("old")
    result = deliver(overwrite=True)
    assert result.verified
    assert names(tmp_path / "out") == sorted([*result.files, "tokenizer.json"])
    assert (tmp_path / "out/model.onnx").stat().st_size > 1000
