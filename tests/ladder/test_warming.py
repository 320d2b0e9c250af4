"""Caches that grow with the longest input are filled before anything is captured or judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fairway
from fairway.convert.ladder.cache_warmup import find_warm_up
from fairway.convert.result import Result
from fairway.model.study import WarmUp
from fairway.model.subject import build_subject
from fairway.workers.attempt import Limits, Workers

LINES = ["x: float32[batch, time, 4]"]
DOMAIN: dict[str, Any] = {"bounds": {"batch": (1, 3), "time": (1, 24)}, "example": {"batch": 2, "time": 7}}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)

    def positions(self, length: int) -> torch.Tensor:
        return torch.sin(torch.arange(length)[:, None] * torch.tensor([1.0, 0.5, 0.25, 0.1]))


class Table(Layer):
    """Extends a table where a longer input comes, as espnet does."""

    def __init__(self) -> None:
        super().__init__()
        self.table = self.positions(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > self.table.size(0):
            self.table = self.positions(x.shape[1])
        return self.linear(x + self.table[: x.shape[1]])  # type: ignore[no-any-return]


class BufferTable(Table):
    def __init__(self) -> None:
        super().__init__()
        del self.table
        self.register_buffer("table", self.positions(5), persistent=False)


class Rotary(Layer):
    def __init__(self) -> None:
        super().__init__()
        self._length, self._cos_cached = 0, None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > self._length:
            self._length = x.shape[1]
            self._cos_cached = self.positions(x.shape[1]).cos()
        return self.linear(x * self._cos_cached[: x.shape[1]])  # type: ignore[no-any-return,index]


class Causal(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.mask: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time = x.shape[1]
        if self.mask is None or self.mask.size(0) < time:
            self.mask = torch.full((time, time), float("-inf")).triu(1)
        weights = (x @ x.transpose(1, 2) + self.mask[:time, :time]).softmax(-1)
        return self.linear(weights @ x)  # type: ignore[no-any-return]


class FirstCall(Causal):
    """Keeps the mask of its first call, and so fails at longer inputs unless that was the longest."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mask is None:
            self.mask = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)
        weights = (x @ x.transpose(1, 2) + self.mask[: x.shape[1], : x.shape[1]]).softmax(-1)
        return self.linear(weights @ x)  # type: ignore[no-any-return]


class SeenMax(Layer):
    def __init__(self) -> None:
        super().__init__()
        self._seen_max = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._seen_max = max(self._seen_max, x.shape[1])
        return self.linear(x) / self._seen_max  # type: ignore[no-any-return]


class Peak(Layer):
    """Follows the largest number seen, which no run settles."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("peak", torch.tensor(0.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.peak = torch.maximum(self.peak, x.abs().max())
        return self.linear(x) / self.peak  # type: ignore[no-any-return]


class Average(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean((0, 1))
        return self.linear(x) + self.mean  # type: ignore[no-any-return]


class CountsToo(Table):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return super().forward(x) * self.count


class Chatters(Layer):
    """Counts, prints and keeps its last input, all without effect."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "is_ready"):
            print("first call")
            self.is_ready = True
        self.calls, self.last = self.calls + 1, x
        return self.linear(x)  # type: ignore[no-any-return]


def exported(kind: type[Layer], path: Path) -> Result:
    return fairway.export(kind().eval(), LINES, path, level="quick", routes=("export-dynamic",), **DOMAIN)


@pytest.mark.parametrize(
    ("kind", "names"),
    [(Table, "table"), (BufferTable, "table"), (Rotary, "_cos_cached, _length"), (Causal, "mask")],
)
def test_a_cache_that_grows_is_filled_first_and_named(kind: type[Layer], names: str, tmp_path: Path) -> None:
    found = exported(kind, tmp_path / "a.onnx")
    assert found.verdict == "verified"
    (finding,) = found.findings
    assert (finding.code, finding.severity) == ("FW229", "note")
    assert finding.seen == f"{names} no longer changes after a run at batch=3, time=24"
    # `verify` sees the model in the same state, fresh or not.
    for model in (kind().eval(), kind().eval()):
        checked = fairway.verify(tmp_path / "a.onnx", model, LINES, level="quick", **DOMAIN)
        assert checked.verdict == "verified"
        model(torch.randn(1, 9, 4))


def test_a_model_that_fails_before_its_first_long_run_is_a_warning(tmp_path: Path) -> None:
    found = exported(FirstCall, tmp_path / "a.onnx")
    assert found.verdict == "verified"
    (finding,) = found.findings
    assert (finding.code, finding.severity) == ("FW229", "warning")
    assert finding.seen.endswith("before it, the model fails at some sizes")


def test_answers_that_differ_before_the_longest_run_are_never_verified(tmp_path: Path) -> None:
    found = exported(SeenMax, tmp_path / "a.onnx")
    assert found.verdict in ("failed", "wrong")
    assert warm_up_of(SeenMax()) is None


@pytest.mark.parametrize("kind", [Peak, Average, CountsToo])
def test_answers_that_depend_on_history_for_good_stay_an_error(kind: type[Layer], tmp_path: Path) -> None:
    found = exported(kind, tmp_path / "a.onnx")
    assert found.verdict == "failed"
    assert "FW219" in [finding.code for finding in found.findings]


def test_counters_prints_and_remembered_inputs_are_no_state(tmp_path: Path) -> None:
    found = exported(Chatters, tmp_path / "a.onnx")
    assert found.verdict == "verified"
    assert not {"FW219", "FW229"} & {finding.code for finding in found.findings}


def test_the_lowest_corner_is_tried_where_the_highest_does_not_settle() -> None:
    class Shortest(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.shortest = 1000

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.shortest = min(self.shortest, x.shape[1])
            return self.linear(x) + 0 * self.shortest  # type: ignore[no-any-return]

    assert warm_up_of(Shortest()) == WarmUp(((("batch", 1), ("time", 1)),), ("shortest",), False, False)


def test_a_model_without_state_is_not_run_first() -> None:
    class Stateless(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x)  # type: ignore[no-any-return]

    assert warm_up_of(Stateless()) is None


def warm_up_of(model: nn.Module) -> WarmUp | None:
    subject = build_subject(model.eval(), LINES, **DOMAIN)
    with Workers(Limits(60)) as workers:
        return find_warm_up(workers, subject, True).study.warm_up
