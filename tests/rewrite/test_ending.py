"""Loops that end on a value: the flag of a `break`, and the condition of a `while`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fairway
from fairway.convert.rewrite.candidates import make_candidates
from fairway.convert.rewrite.find import find_sites


class FixedPoint(nn.Module):
    """Ends once the state stays still; the number of steps depends on the values."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = torch.zeros_like(x)
        for _ in range(40):
            new = torch.tanh(0.4 * self.fc(z) + x)
            change = (new - z).abs().max()
            z = new
            if change < 0.05:
                break
        return z


class HalvedUntilSmall(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = torch.zeros(())
        while x.abs().max() > 2 and steps < 30:
            x, steps = x / 2, steps + 1
        return x + steps


class SkipsAndBreaks(nn.Module):
    """A `continue` and a `break` in one loop over the rows, which a `while` on a size follows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            if x[:, t].max() < 0:
                continue
            total = total + x[:, t]
            if total.max() > 3:
                total = total * 2
                break
        i = 0
        while i < x.shape[1]:
            total = total + i
            i += 1
        return total


LINES = {FixedPoint: "[batch, 3]", HalvedUntilSmall: "[batch, 3]", SkipsAndBreaks: "[batch, time]"}
MODELS = [FixedPoint, HalvedUntilSmall, SkipsAndBreaks]


def inputs(model: type[nn.Module], scale: float, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn((3, 7) if model is SkipsAndBreaks else (3, 3), generator=generator)


@pytest.mark.parametrize("kind", MODELS)
def test_the_rewritten_loop_ends_where_the_original_does(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    made = make_candidates(model, tuple(s for s in find_sites(model) if s.suspect.kind == "loop"), traced=False)
    assert isinstance(made, tuple)
    answers: list[Any] = []
    for seed, scale in enumerate((0.0, 0.01, 0.3, 1.0, 8.0, 1000.0)):
        x = inputs(kind, scale, seed)
        expected = model(x)
        with made[0].install():
            answers.append(model(x))
        torch.testing.assert_close(answers[-1], expected)


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_that_ends_on_a_value_is_verified(kind: type[nn.Module], tmp_path: Path) -> None:
    import onnxruntime

    torch.manual_seed(0)
    model, path = kind().eval(), tmp_path / "m.onnx"
    bounds = {"batch": (1, 3), "time": (2, 9)} if kind is SkipsAndBreaks else {"batch": (1, 3)}
    done = fairway.export(model, [f"x: float32{LINES[kind]}"], path, bounds=bounds)
    assert done.verdict == "verified", str(done)
    session = onnxruntime.InferenceSession(str(path))
    for seed, scale in enumerate((0.1, 1.0, 50.0)):
        x = inputs(kind, scale, 40 + seed)
        (got,) = session.run(None, {"x": x.numpy()})
        torch.testing.assert_close(torch.from_numpy(got), model(x), rtol=1e-4, atol=1e-5)


def test_a_loop_of_settings_that_breaks_is_no_suspect() -> None:
    class Settings(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for i in range(4):
                if i == 2:
                    break
                x = x + i
            return x

    assert find_sites(Settings()) == ()
