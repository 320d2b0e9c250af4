"""A stamped file computes what the plain one does, to the bit; where blocks are not equal, the plain way is taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tests.weights.nets import (
    BOUNDS,
    SPEC,
    AllDelayed,
    AllRouted,
    AllScaled,
    ByIndex,
    Collecting,
    FirstBiased,
    FirstPlaced,
    FollowedByOthers,
    InRounds,
    NeutralFirst,
    OfTheFirst,
    OneStubborn,
    Tower,
    seeded,
)

import fairway
from fairway.convert.blocks import equal_calls as alike
from fairway.convert.blocks import stamp as stamping
from fairway.convert.ladder import first_look
from fairway.record.schema import BlockRecord


def export(path: Path, model: torch.nn.Module, level: str = "quick") -> fairway.Result:
    return fairway.export(model, SPEC, path, bounds=BOUNDS, level=level)  # type: ignore[arg-type]


def answer(path: Path) -> np.ndarray:
    x = np.random.default_rng(3).standard_normal((3, 5, 64), dtype=np.float32)
    return onnxruntime.InferenceSession(path).run(None, {"x": x})[0]


def blocks(result: fairway.Result) -> list[BlockRecord]:
    return list(result.record.blocks)


@pytest.mark.parametrize(
    ("kind", "refused", "kept"),
    [
        (Tower, 0, 2),
        (AllScaled, 0, 2),
        (FirstBiased, 0, 2),
        (OfTheFirst, 0, 3),
        (AllDelayed, 1, 3),
        (FirstPlaced, 1, 3),
        (FollowedByOthers, 0, 2),
        (AllRouted, 0, 3),
    ],
)
def test_a_stamped_file_is_the_plain_one_to_the_bit(
    kind: type[torch.nn.Module], refused: int, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamped = export(tmp_path / "stamped.onnx", seeded(kind), "standard")
    assert stamped.verdict == "verified"
    assert blocks(stamped) == [BlockRecord(container="blocks", first=0, count=8, kept=kept)]
    rungs = stamped.record.ladder
    assert [f.code for rung in rungs[:-1] for f in rung.findings] == ["FW328"] * refused
    monkeypatch.setattr(first_look, "find_repeats", lambda model: ())
    plain = export(tmp_path / "plain.onnx", seeded(kind))
    assert (plain.verdict, blocks(plain)) == ("verified", [])
    assert np.array_equal(answer(tmp_path / "stamped.onnx"), answer(tmp_path / "plain.onnx"))
    files = [onnx.load(tmp_path / name).graph for name in ("stamped.onnx", "plain.onnx")]
    counts = [sorted(node.op_type for node in graph.node) for graph in files]
    assert counts[0] == counts[1]


def test_weights_may_be_equal_in_the_captured_blocks_alone(tmp_path: Path) -> None:
    model = seeded()
    with torch.no_grad():
        model.blocks[6].norm.bias.fill_(0.5)
    result = export(tmp_path / "out.onnx", model)
    assert (result.verdict, len(blocks(result))) == ("verified", 1)
    names = {tensor.name for tensor in onnx.load(tmp_path / "out.onnx").graph.initializer}
    assert {name for name, _ in model.named_parameters() if name.endswith(("bias", "norm.weight"))} <= names


@pytest.mark.parametrize("weights", ["embed", "copy"])
def test_zeros_and_ones_of_captured_blocks_are_not_copied_to_others(weights: str, tmp_path: Path) -> None:
    """At the level `none` the judge would not notice an error."""
    model, out = seeded(NeutralFirst), tmp_path / "out.onnx"
    result = fairway.export(model, SPEC, out, bounds=BOUNDS, level="none", weights=weights)  # type: ignore[arg-type]
    assert [run.kept for run in blocks(result)] == [2]
    x = torch.from_numpy(np.random.default_rng(3).standard_normal((3, 5, 64), dtype=np.float32))
    np.testing.assert_allclose(answer(out), model(x).detach().numpy(), rtol=1e-4, atol=1e-4)
    assert export(tmp_path / "judged.onnx", model).verdict == "verified"


def test_what_only_the_calls_tell_is_wrong_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "DEFAULT_KEPT_BLOCKS", 2)
    result = export(tmp_path / "out.onnx", seeded(OfTheFirst))
    assert [rung.verdict for rung in result.record.ladder] == ["wrong", "verified"]


def test_blocks_that_are_gone_through_twice_are_captured_one_by_one(tmp_path: Path) -> None:
    result = export(tmp_path / "out.onnx", seeded(InRounds))
    assert [rung.verdict for rung in result.record.ladder] == ["verified"]
    assert blocks(result) == []


def test_blocks_whose_values_are_collected_are_captured_one_by_one(tmp_path: Path) -> None:
    result = export(tmp_path / "out.onnx", seeded(Collecting))
    assert (result.verdict, blocks(result)) == ("verified", [])
    first = result.record.ladder[0]
    assert [f.code for f in first.findings] == ["FW328"]
    assert "of a block in the middle is read by Add" in first.findings[0].seen


def test_a_block_that_is_called_otherwise_is_seen_beforehand(tmp_path: Path) -> None:
    result = export(tmp_path / "out.onnx", seeded(ByIndex))
    assert blocks(result) == []
    assert [rung.verdict for rung in result.record.ladder] == ["verified"]


def test_a_block_that_computes_otherwise_is_found_by_the_judge(tmp_path: Path) -> None:
    result = export(tmp_path / "out.onnx", seeded(OneStubborn))
    assert (result.verdict, blocks(result)) == ("verified", [])
    assert [rung.verdict for rung in result.record.ladder] == ["wrong", "verified"]


def test_a_block_stamped_with_anothers_weights_is_found_by_the_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = [*seeded().blocks[0].named_parameters()]
    monkeypatch.setattr(stamping, "_list_tensors", lambda block: other)
    result = export(tmp_path / "out.onnx", seeded())
    assert [rung.verdict for rung in result.record.ladder] == ["wrong", "verified"]


def test_what_comes_after_a_run_keeps_its_name(tmp_path: Path) -> None:
    class Ending(Tower):
        def __init__(self) -> None:
            super().__init__()
            self.blocks.append(torch.nn.Linear(64, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
            return x

    result = export(tmp_path / "out.onnx", seeded(Ending))
    assert (result.verdict, len(blocks(result))) == ("verified", 1)
    names = {tensor.name for tensor in onnx.load(tmp_path / "out.onnx").graph.initializer}
    assert "blocks.8.bias" in names
    assert "blocks.3.bias" not in names
