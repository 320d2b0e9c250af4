"""Loops that end on a value and fill lists, return, or make tensors longer, exported and compared with PyTorch."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fairway
from fairway.convert.rewrite.iterables import steps
from fairway.convert.rewrite.loop_checks import Refused, check_filled_by_one_loop
from fairway.convert.rewrite.repeat import _count_most_steps


class TokensUntilStop(nn.Module):
    """A list that is as long as the loop runs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell, self.out = nn.Embedding(7, 6), nn.GRUCell(6, 6), nn.Linear(6, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        token, state, tokens = torch.zeros(1, dtype=torch.long), x, []
        for _ in range(9):
            state = self.cell(self.embed(token), state)
            token = self.out(state * 4).argmax(dim=-1)
            tokens.append(token)
            if token.item() == 3:
                break
        return torch.stack(tokens, dim=1)


class SumsMadeLonger(nn.Module):
    """A tensor that grows by `torch.cat` until all rows are large."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total, history = x, x.unsqueeze(1)
        for _ in range(8):
            total = total + x.abs()
            history = torch.cat([history, total.unsqueeze(1)], dim=1)
            if (total > 3).all():
                break
        return history


class ReturnsFromTheLoop(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        level = torch.zeros(())
        for i in range(x.shape[0]):
            level = 0.5 * level + x[i].abs()
            if level > 1.5:
                return level, torch.tensor(i)
        level = level * 2
        return level, torch.tensor(-1)


class KeepsLargeRows(nn.Module):
    """A list that is filled under a condition."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = [x.sum(0)]
        for row in x:
            if row.sum() > 0:
                kept.append(row * 2)
        return torch.stack(kept)


class LayersUntilConfident(nn.Module):
    """A loop over layers, left when a value says so."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = F.relu(layer(x)) + x
            if x.max() > 4:
                break
        return x


CASES = [
    (TokensUntilStop, "x: float32[1, 6]", {}),
    (SumsMadeLonger, "x: float32[batch, 6]", {"batch": (1, 4)}),
    (ReturnsFromTheLoop, "x: float32[time]", {"time": (2, 12)}),
    (KeepsLargeRows, "x: float32[time, 3]", {"time": (2, 9)}),
    (LayersUntilConfident, "x: float32[batch, 6]", {"batch": (1, 4)}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "line", "bounds"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_the_file_ends_where_the_model_ends(kind: type[nn.Module], line: str, bounds: dict, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    result = fairway.export(model, [line], tmp_path / "model.onnx", bounds=bounds)
    assert result.verdict == "verified", result
    assert "loop_unrolled" in result.remedies
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (name,) = (value.name for value in session.get_inputs())
    shapes = set()
    for seed in range(24):
        generator = torch.Generator().manual_seed(seed)
        low, high = next(iter(bounds.values()), (1, 1))
        size = 1 if not bounds else low + seed % (high - low + 1)
        shape = [size] if line.endswith("[time]") else [size, 3 if "3]" in line else 6]
        x = torch.randn(shape, generator=generator) * (0.3 + seed % 4)
        expected = model(x)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for ours, theirs in zip(session.run(None, {name: x.numpy()}), expected, strict=True):
            assert ours.shape == tuple(theirs.shape)
            np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-4, atol=1e-5)
        shapes.add((size, tuple(tuple(value.shape) for value in expected)))
    assert len(shapes) > 1 or not bounds


def test_a_while_without_a_bound_cannot_fill_a_list(tmp_path: Path) -> None:
    class Halvings(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            steps = []
            while x.abs().max() > 0.1:
                x = x / 2
                steps.append(x.sum())
            return torch.stack([x.sum(), *steps])

    result = fairway.export(Halvings(), ["x: float32[4]"], tmp_path / "model.onnx", level="quick")
    assert result.verdict != "verified"


class EverySecondUntilLarge(nn.Module):
    """Full only if it never breaks: then an odd length needs one item more than the length divided by the step."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = []
        for i in range(0, x.shape[0], 2):
            rows.append(x[i])
            if x[i].sum() > 3:
                break
        return torch.stack(rows)


@pytest.mark.parametrize(
    ("bounds", "count"), [((0, 5, 2), 3), ((0, 4, 2), 2), ((5, 0, -2), 3), ((4, 0, -1), 4), ((2, 2), 0)]
)
def test_there_is_room_for_every_step(bounds: tuple[int, ...], count: int) -> None:
    assert _count_most_steps(steps(*bounds)) == count == len(range(*bounds))


def test_a_list_is_complete_if_the_loop_never_breaks(tmp_path: Path) -> None:
    bounds = {"time": (2, 9)}
    result = fairway.export(EverySecondUntilLarge(), ["x: float32[time, 3]"], tmp_path / "m.onnx", bounds=bounds)
    assert result.verdict == "verified", result
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for time in range(2, 10):
        x = torch.arange(time * 3.0).reshape(time, 3) / -10
        (ours,) = session.run(None, {"x": x.numpy()})
        np.testing.assert_array_equal(ours, EverySecondUntilLarge()(x).numpy())


def test_a_list_that_two_loops_fill_is_refused() -> None:
    (loop,) = ast.parse("for a in x:\n    rows.append(a)\n    for b in a:\n        if b: rows.append(b)").body
    assert isinstance(loop, ast.For)
    with pytest.raises(Refused, match="`rows` is filled by more than one loop"):
        check_filled_by_one_loop(loop, ["rows"])
    (loop,) = ast.parse("for a in x:\n    if a: rows.append(a)\n    else: rows.append(-a)").body
    assert isinstance(loop, ast.For)
    check_filled_by_one_loop(loop, ["rows"])
