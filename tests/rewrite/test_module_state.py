"""Attributes that modules change inside a loop are carried by it, in eager PyTorch and in the file."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fairway.convert.remedies.contract import Refusal
from fairway.convert.rewrite.candidates import RewriteCandidate, make_candidates
from fairway.convert.rewrite.find import find_sites
from fairway.convert.rewrite.state_plan import plan_state

from .harness import copies, export, largest_difference, outputs

ROUNDING = 5e-6


class Leaky(nn.Module):
    """A neuron whose membrane is a number until the first step, and which keeps its last spikes, too."""

    def __init__(self, reset: float) -> None:
        super().__init__()
        self.reset = reset
        self.mem: object = 0.0

    def charge(self, x: torch.Tensor) -> None:
        if isinstance(self.mem, float):
            self.mem = torch.full_like(x, self.mem)
        self.mem = 0.9 * self.mem + x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.charge(x)
        spikes = (self.mem > 0.3).to(x.dtype)
        self.mem = self.mem - spikes * self.reset
        self.last_spikes = spikes
        return spikes


class SpikingSequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), Leaky(0.3), nn.Linear(4, 4), Leaky(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.net:
            if isinstance(layer, Leaky):
                layer.mem = 0.0
        out = []
        for t in range(x.size(1)):
            out.append(self.net(x[:, t]))
        return torch.stack(out)


class DelayLine(nn.Module):
    """A buffer that a method rolls and writes into, and a count that grows."""

    def push(self, value: torch.Tensor) -> None:
        self.buffer = torch.roll(self.buffer, 1, dims=1)
        self.buffer[:, 0] = value
        self.count += 1

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.buffer, self.count = x.new_zeros(x.size(0), 3, 4), 0
        sums = []
        for t in range(x.size(1)):
            self.push(x[:, t])
            sums.append(self.buffer.sum(1) / self.count)
        return torch.stack(sums, 1), self.buffer


class Store(nn.Module):
    """A module whose methods the loop calls, one of which decides by a value."""

    def clear(self, x: torch.Tensor) -> None:
        self.level = torch.zeros_like(x[:, 0])

    def add(self, value: torch.Tensor) -> torch.Tensor:
        if value.sum() > 0:
            self.level = self.level + value
            return self.level
        return self.level * 0.5


class MethodsOfAChild(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.store = Store()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.store.clear(x)
        out = torch.empty_like(x)
        for t in range(x.size(1)):
            out[:, t] = self.store.add(x[:, t])
        return out, self.store.level


class Follower(nn.Module):
    """A comprehension that changes an attribute."""

    def tick(self, value: torch.Tensor) -> torch.Tensor:
        self.level = 0.5 * self.level + value.abs()
        return self.level

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.level = torch.zeros_like(x[:, 0])
        return torch.stack([self.tick(x[:, t]) for t in range(x.size(1))], 1)


class StatePair(nn.Module):
    """Two attributes assigned together, from a part of `split`."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.h, self.c = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
        out = []
        for frame in x.split(1, dim=1):
            self.h, self.c = self.cell(frame.squeeze(1), (self.h, self.c))
            out.append(self.h)
        return torch.stack(out, 1)


KINDS = [SpikingSequence, DelayLine, MethodsOfAChild, Follower, StatePair]


def draw(batch: int, time: int) -> tuple[torch.Tensor]:
    return (torch.randn(batch, time, 4, generator=torch.Generator().manual_seed(batch + 10 * time)),)


def rewrite(model: nn.Module) -> RewriteCandidate:
    made = make_candidates(model, tuple(s for s in find_sites(model) if s.suspect.kind == "loop"), traced=False)
    assert not isinstance(made, Refusal), made
    return made[0]


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_are_carried_in_eager_and_in_the_file(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    points = [draw(2, 5), draw(3, 7), draw(4, 1)]
    before = [outputs(model, point) for point in points]
    made = rewrite(model)
    assert made.state is not None
    with made.install():
        after = [outputs(model, point) for point in points]
        file = export(model, copies(points[0]), [(0, 1)], "export")
    for expected, got in zip(before, after, strict=True):
        for a, b in zip(expected, got, strict=True):
            torch.testing.assert_close(b, a, rtol=0, atol=ROUNDING)
    assert largest_difference(model, file, points) < ROUNDING


def test_modules_keep_nothing_of_a_rewrite() -> None:
    model = SpikingSequence().eval()
    names = [set(vars(module)) for module in model.modules()]
    with rewrite(model).install():
        assert [set(vars(module)) for module in model.modules()] != names
    assert [set(vars(module)) for module in model.modules()] == names


def test_an_attribute_that_nothing_reads_is_not_carried() -> None:
    plan = plan_state(SpikingSequence())
    assert plan.carried == {"mem"}
    assert plan.written == {"mem", "last_spikes"}


def test_a_model_without_changing_attributes_carries_none() -> None:
    class Plain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            total = torch.zeros_like(x[:, 0])
            for t in range(x.size(1)):
                total = total * 0.5 + x[:, t]
            return total

    assert rewrite(Plain()).state is None


def test_attributes_changed_in_a_nested_function_are_refused() -> None:
    class Nested(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.level = torch.zeros_like(x[:, 0])
            for t in range(x.size(1)):

                def step(value: torch.Tensor) -> None:
                    self.level = self.level + value

                step(x[:, t])
            return self.level

    model = Nested()
    sites = tuple(s for s in find_sites(model) if s.suspect.kind == "loop")
    made = make_candidates(model, sites, traced=False)
    assert isinstance(made, Refusal)
    assert "nested function" in made.reason
