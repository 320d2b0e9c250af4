"""A buffer or attribute that forward changes is named as state; chance is still chance."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch

import fairway
from fairway.convert.ladder.model_state import ModelState
from fairway.convert.ladder.preflight import run_preflight
from fairway.diagnostics import Finding
from fairway.model.subject import Subject, build_subject


class Stateful(torch.nn.Module):
    """Holds one of each kind of state, and uses none."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.count = 0
        self.last: torch.Tensor | None = None
        self.cache: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class AddsToBuffer(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += x.mean(0)
        return x + self.seen


class ReplacesBuffer(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen * 0.9 + 1
        return x + self.seen


class WritesIntoView(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen[1:3].copy_(self.seen[1:3] + 1)
        return x + self.seen


class ChangesParameter(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.mul_(0.5)
        return x * self.weight


class Counts(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x * self.count


class Remembers(Stateful):
    """Answers alike for the same inputs one after the other, and by what came before for others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before, self.last = self.last, x.mean()
        return x if before is None else x + before


class Collects(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.append(x.mean())
        return x + torch.stack(self.cache).sum()


def subject_of(model: torch.nn.Module) -> Subject:
    return build_subject(model.eval(), ["x: float32[batch, 4]"], bounds={"batch": (1, 3)})


def only_finding(model: torch.nn.Module) -> Finding:
    (finding,) = run_preflight(subject_of(model), True).findings
    return finding


@pytest.mark.parametrize(
    ("kind", "name", "source"),
    [
        (AddsToBuffer, "seen", "self.seen += x.mean(0)"),
        (ReplacesBuffer, "seen", "self.seen = self.seen * 0.9 + 1"),
        (WritesIntoView, "seen", "self.seen[1:3].copy_(self.seen[1:3] + 1)"),
        (ChangesParameter, "weight", "self.weight.mul_(0.5)"),
        (Counts, "count", "self.count += 1"),
        (Remembers, "last", "before, self.last = self.last, x.mean()"),
        (Collects, "cache", None),
    ],
)
def test_state_that_decides_the_answer_is_named_with_its_line(kind: Any, name: str, source: str | None) -> None:
    finding = only_finding(kind())
    assert finding.code == "FW219"
    assert finding.data["state"] == [name]
    assert finding.seen.startswith(f"{name} changes in forward")
    assert (finding.where and finding.where.source) == source
    assert "Pass the state in as an input" in finding.todo[0]


def test_state_inside_a_module_is_named_by_its_path() -> None:
    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = AddsToBuffer()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.inner(x))  # type: ignore[no-any-return]

    assert only_finding(Outer()).data["state"] == ["inner.seen"]


class CountsOnly(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.seen += x.mean(0)
        self.last = x
        return x * 2


def test_state_without_effect_is_not_blamed_and_is_restored() -> None:
    model = CountsOnly()
    assert run_preflight(subject_of(model), True).findings == ()
    fresh = CountsOnly()
    # Runs after the look into chance, at the domain's corners, leave their own traces.
    state = ModelState(fresh)
    fresh(torch.ones(1, 4))
    assert sorted(state.find_changes()) == ["count", "last", "seen"]
    state.restore()
    assert state.find_changes() == []
    assert (fresh.count, fresh.last, fresh.seen.tolist()) == (0, None, [0.0] * 4)


class Grows(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        self.cache.append(x)
        self.extra = x
        self.seen2 = torch.nn.Parameter(x)
        return x + self.seen


def test_the_state_is_restored_whatever_was_changed() -> None:
    model = Grows()
    model.queue = deque([1, 2], maxlen=2)  # type: ignore[assignment]
    state = ModelState(model)
    model(torch.ones(1, 4))
    model.queue.append(3)  # type: ignore[operator,union-attr]
    model.seen = torch.ones(9)
    state.restore()
    assert model.seen.tolist() == [0.0] * 4
    assert model.cache == []
    assert list(model.queue) == [1, 2]  # type: ignore[arg-type]
    assert not hasattr(model, "extra")
    assert not hasattr(model, "seen2")


def test_dropout_that_is_active_is_still_chance() -> None:
    class Drops(Stateful):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            self.seen += 1
            return torch.nn.functional.dropout(x, 0.5, True)

    finding = only_finding(Drops())
    assert finding.code == "FW203"
    assert finding.where is not None
    assert finding.where.source == "return torch.nn.functional.dropout(x, 0.5, True)"


def test_a_cache_that_only_saves_work_is_not_state() -> None:
    class Caches(Stateful):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.last is None or self.last.shape[0] < x.shape[0]:
                self.last = torch.arange(float(x.shape[0]))
            return x + self.last[: x.shape[0], None]

    assert run_preflight(subject_of(Caches()), True).findings == ()


def test_a_buffer_that_was_none_is_none_again() -> None:
    class FillsIn(Stateful):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", None, persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.mask is None:
                self.register_buffer("mask", torch.ones(4), persistent=False)
            return x * self.mask  # type: ignore[operator]

    assert run_preflight(subject_of(FillsIn()), True).findings == ()
    model = FillsIn()
    state = ModelState(model)
    model(torch.ones(1, 4))
    assert state.find_changes() == ["mask"]
    state.restore()
    assert model.mask is None


def test_an_export_says_so_and_writes_nothing(tmp_path: Path) -> None:
    lines = ["x: float32[batch, 4]"]
    result = fairway.export(AddsToBuffer(), lines, tmp_path / "out.onnx", bounds={"batch": (1, 3)}, level="quick")
    assert result.verdict == "failed"
    assert [finding.code for finding in result.findings] == ["FW219"]
    assert not (tmp_path / "out.onnx").exists()


class KeepsLast(Stateful):
    """A state of zeros that an example of zeros leaves as it is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before, self.seen = self.seen, x[-1].clone()
        return x - before


def test_state_that_a_dummy_example_does_not_change_is_found() -> None:
    subject = build_subject(KeepsLast().eval(), (torch.zeros(2, 4),), dims={"x": "batch 4"}, bounds={"batch": (1, 3)})
    (finding,) = run_preflight(subject, True).findings
    assert finding.code == "FW219"
    assert finding.where is not None
    assert finding.where.source == "before, self.seen = self.seen, x[-1].clone()"
