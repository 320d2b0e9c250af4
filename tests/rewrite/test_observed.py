"""Only lines that ran, and varied with the sizes, are suspects."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fairway
from fairway.convert.rewrite.candidates import RewriteCandidate, make_candidates
from fairway.convert.rewrite.find import find_sites
from fairway.convert.rewrite.live_sites import find_live_lines

from .idioms import SpreadBySlices


def runs_of(model: nn.Module, *lengths: int) -> list[Callable[[], Any]]:
    return [partial(model, torch.ones(2, length)) for length in lengths]


def live_sources(model: nn.Module, *lengths: int) -> list[str]:
    live = find_live_lines(model, None, runs_of(model, *lengths))
    return [site.suspect.where.source or "" for site in find_sites(model, None, live)]


class FollowsALength(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i in range(x.shape[1]):
            x = x + i
        return x


def test_a_loop_that_follows_a_length_is_a_suspect() -> None:
    assert live_sources(FollowsALength(), 2, 3, 5) == ["for i in range(x.shape[1]):"]


def test_a_loop_of_as_many_steps_everywhere_is_no_suspect() -> None:
    class AtMostTwo(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for i in range(min(2, x.shape[1])):
                x = x + i
            return x

    assert live_sources(AtMostTwo(), 2, 3, 5) == []
    assert live_sources(AtMostTwo(), 1, 3, 5) == ["for i in range(min(2, x.shape[1])):"]


def test_outer_loops_over_layers_are_not_taken_for_the_inner_one() -> None:
    class Layers(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(x.dim()):
                for i in range(x.shape[1]):
                    x = x + i
            return x

    assert live_sources(Layers(), 2, 3) == ["for i in range(x.shape[1]):"]


class PrintsOnce(nn.Module):
    """A print at the first call, and a method with a loop that nothing calls."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "printed"):
            for i in range(x.shape[1]):
                print(i)
            self.printed = True
        return x * self.scale(x)

    def scale(self, x: torch.Tensor) -> float:
        return 1.0 if x.dim() == 2 else self.unused(x)

    def unused(self, x: torch.Tensor) -> float:
        while x.shape[1] > 3:
            x = x[:, 1:]
            if x.sum() > 3:
                break
        return float(x.shape[1])


def test_code_that_never_runs_or_runs_once_is_not_accused() -> None:
    assert live_sources(PrintsOnce(), 2, 3, 5) == []


class UsesACache(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.shift(x)

    def shift(self, x: torch.Tensor) -> int:
        if x.shape[1] not in self.__dict__.setdefault("sums", {}):
            self.sums[x.shape[1]] = sum([i + 1 for i in range(x.shape[1])])
        return self.sums[x.shape[1]]


def test_a_loop_that_a_cache_runs_once_is_not_live() -> None:
    assert live_sources(UsesACache(), 2, 3, 5) == []


def test_a_point_that_pytorch_refuses_leaves_the_others() -> None:
    model = FollowsALength()
    live = find_live_lines(model, None, [*runs_of(model, 2, 4), lambda: 1 / 0])
    assert live is not None
    assert len(live) == 1
    assert find_live_lines(model, None, [lambda: 1 / 0, *runs_of(model, 2)]) is None


class TwoLoops(nn.Module):
    """One loop that can be rewritten, and one under a condition with a `return` inside that cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.early(self.summed(x))

    def summed(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            state = torch.tanh(self.fc(x[:, t]) + state)
        return state

    def early(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() == 2:
            for i in range(x.shape[0]):
                if i > 100:
                    return x
                x = x + 0.0
        return x


def test_a_refused_loop_leaves_the_others_to_be_rewritten() -> None:
    model = TwoLoops()
    made = make_candidates(model, tuple(s for s in find_sites(model) if s.suspect.kind == "loop"), traced=False)
    assert isinstance(made, tuple)
    assert [site.suspect.where.function for site in made[0].sites] == ["TwoLoops.summed"]
    assert all(isinstance(one, RewriteCandidate) for one in made)


def test_each_function_is_offered_by_itself_besides_all_together() -> None:
    class Twice(TwoLoops):
        def early(self, x: torch.Tensor) -> torch.Tensor:
            y = x[0]
            for i in range(1, x.shape[0]):
                y = y + x[i]
            return y

    model = Twice()
    made = make_candidates(model, tuple(s for s in find_sites(model) if s.suspect.kind == "loop"), traced=False)
    assert isinstance(made, tuple)
    assert [len(one.sites) for one in made] == [2, 1, 1]


class LayerStates(nn.Module):
    """States of two layers in a list of pairs, written back in the loop; a weight beside its transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 3) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = [(x.new_zeros(x.shape[0], 3), x.new_zeros(x.shape[0], 3)) for _ in range(2)]
        for t in range(x.shape[1]):
            y = x[:, t]
            for i in range(2):
                h, c = states[i]
                c = torch.sigmoid(y @ self.w) * c + y @ self.w.T
                h = torch.tanh(c) + h * 0.1
                states[i] = (h, c)
                y = h
        return states[0][0] + states[1][1]


@pytest.mark.parametrize("model", [LayerStates, PrintsOnce, TwoLoops])
def test_such_models_are_verified_for_every_length(model: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    shape = "[batch, time]" if model is PrintsOnce else "[batch, time, 3]"
    done = fairway.export(
        model().eval(), [f"x: float32{shape}"], tmp_path / "m.onnx", bounds={"batch": (1, 3), "time": (1, 12)}
    )
    if model is TwoLoops:  # the loop that is refused makes no difference, and is unrolled
        assert done.verdict in ("verified", "unproven")
    else:
        assert done.verdict == "verified", str(done)


def test_the_loop_of_slices_is_seen_to_vary() -> None:
    live = find_live_lines(SpreadBySlices(), None, [partial(SpreadBySlices(), torch.ones(1, n, 3)) for n in (9, 20)])
    assert live is not None
