"""A dozen one-line models that export everywhere, with known answers.

Each was measured on torch 2.9.1 and 2.13.0 with onnxscript 0.7.2, onnxruntime 1.31.1 and onnx.reference of onnx 1.23.2,
and on 2.13.0 also with openvino 2026.4: all exporters accept it and all engines agree. So if one fails, the model is
not the cause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

import torch
from torch import nn
from torch.nn import functional as F

Tensors = tuple[torch.Tensor, ...]

EXAMPLE_BATCH, OTHER_BATCH = 3, 5
"""Probes are exported with one batch size and judged at another."""


@dataclass(frozen=True)
class Probe:
    """One line of PyTorch on one tensor, with its layers, inputs of any batch size, and its answer."""

    name: str
    line: Callable[..., object]
    inputs: Callable[[int], torch.Tensor]
    answer: float
    """The weighted sum of the outputs at OTHER_BATCH, so that PyTorch itself is judged too."""
    layers: dict[str, Callable[[], nn.Module]] = field(default_factory=dict)


class ProbeModel(nn.Module):
    """A probe's line as a module. Weights follow a rule, without random numbers, so that the answers are known."""

    def __init__(self, probe: Probe) -> None:
        super().__init__()
        self._line = probe.line
        for name, make in probe.layers.items():
            setattr(self, name, make())
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(torch.linspace(-0.5, 0.5, weight.numel()).reshape(weight.shape))
        self.register_buffer("low", torch.tensor(-1e4))
        self.eval()

    def forward(self, x: torch.Tensor) -> Tensors:
        result = self._line(self, x)
        return result if isinstance(result, tuple) else (result,)


def _make_floats(*shape: int) -> Callable[[int], torch.Tensor]:
    """Make quarters between -2 and 2: exact in every float dtype, and far from the thresholds in the probes."""

    def make(batch: int) -> torch.Tensor:
        count = batch * prod(shape)
        return (torch.arange(count) * 7 % 17 - 8).reshape(batch, *shape) / 4

    return make


def _make_integers(*shape: int, below: int) -> Callable[[int], torch.Tensor]:
    def make(batch: int) -> torch.Tensor:
        return (torch.arange(batch * prod(shape)) * 5 % below).reshape(batch, *shape)

    return make


def weigh(outputs: Tensors) -> float:
    """Reduce all outputs to one number that changes if two elements are swapped."""
    total = 0.0
    for tensor in outputs:
        flat = tensor.detach().double().reshape(-1)
        total += float((flat * torch.linspace(0.5, 1.5, len(flat), dtype=torch.float64)).sum())
    return total


PROBES: tuple[Probe, ...] = (
    Probe("constant", lambda m, x: x.masked_fill(x > 0.6, -1e4), _make_floats(4), -70272.934211),
    Probe("linear", lambda m, x: m.layer(x), _make_floats(4), 0.866071, {"layer": lambda: nn.Linear(4, 3)}),
    Probe(
        "convolution",
        lambda m, x: F.relu(m.layer(x)),
        _make_floats(3, 8, 8),
        494.35839,
        {"layer": lambda: nn.Conv2d(3, 4, 3, padding=1)},
    ),
    Probe("reshape", lambda m, x: x.reshape(x.shape[0] * x.shape[1], -1) * 2, _make_floats(3, 4), -2.605932),
    Probe(
        "recurrent",
        lambda m, x: m.layer(x)[0],
        _make_floats(6, 4),
        11.871126,
        {"layer": lambda: nn.LSTM(4, 5, batch_first=True)},
    ),
    Probe("attention", lambda m, x: F.scaled_dot_product_attention(x, x, x), _make_floats(2, 5, 4), 1.682117),
    Probe("integers", lambda m, x: (x // 3 * 2 - x % 5, (x > 2) & ~(x == 4)), _make_integers(4, below=11), 29.973684),
    Probe("where", lambda m, x: torch.where(x > 0.1, x, m.low), _make_floats(4), -105515.381579),
    Probe("gather", lambda m, x: x.gather(1, (x > 0.1).to(torch.int64)), _make_floats(4), -5.059211),
    Probe("casts", lambda m, x: x.half().float() + x.double().float() + x.to(torch.int32), _make_floats(4), 0.355263),
    Probe("running-sum", lambda m, x: x.cumsum(1), _make_floats(7), 13.919118),
    Probe(
        "resize",
        lambda m, x: F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False),
        _make_floats(2, 4, 5),
        4.836984,
    ),
)
