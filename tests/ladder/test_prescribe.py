"""Remedies are chosen one by one: an error in one of them refuses that one only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fairway
from fairway.convert.ladder import prescribe as prescribing
from fairway.convert.ladder.capture import CaptureContext
from fairway.convert.ladder.prescribe import prescribe, prove
from fairway.convert.ladder.route import Route
from fairway.convert.remedies.catalogue import CATALOGUE
from fairway.convert.remedies.contract import Case, Match
from fairway.convert.types import PlannedRung
from fairway.model.subject import Subject, build_subject

BOUNDS = {"batch": (1, 8), "time": (1, 40)}


class Decay(torch.nn.Module):
    """Casts inside, asks for the dtype, and loops over a size."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32:
            raise TypeError(f"expected float32, got {x.dtype}")
        rows = self.up(x.float())
        state = torch.zeros(x.shape[0], 4)
        for step in range(x.shape[1]):
            state = torch.tanh(state.to(torch.float32) * 0.5 + rows[:, step].float())
        return self.up(state.half().float())


def _subject(model: torch.nn.Module) -> Subject:
    return build_subject(model.eval(), ["x: float32[batch, time, 4]"], bounds=BOUNDS)


def _prescribe(subject: Subject) -> prescribing.Prescription:
    route = Route("export")
    return prescribe(subject, PlannedRung(route, rewrites=True), CaptureContext(route, output_names=("y",)))


def test_casts_inside_cost_neither_the_remedy_nor_the_truth(tmp_path: Path) -> None:
    result = fairway.export(Decay().eval(), ["x: float32[batch, time, 4]"], tmp_path / "out.onnx", bounds=BOUNDS)
    assert (result.verdict, result.remedies) == ("verified", ("loop_unrolled",))
    assert "stated" not in result.record.evidence.yardstick


def test_a_remedy_that_raises_is_refused_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_error(case: Case) -> Any:
        raise RuntimeError("broken\nfor good")

    changed = {**CATALOGUE, "mul_scalar": replace(CATALOGUE["mul_scalar"], detect=raise_error)}
    monkeypatch.setattr(prescribing, "CATALOGUE", changed)
    prescription = _prescribe(_subject(Decay()))
    assert ("loop_unrolled", 0) in prescription.chosen
    reason = "looking for the defect failed: RuntimeError: broken"
    assert [one for one in prescription.refused if one[0] == "mul_scalar"] == [("mul_scalar", reason, None)]


def test_a_proof_that_raises_refuses_that_rewrite_only(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def raise_once(subject: Subject, install: Any) -> str | None:
        calls.append(install)
        if len(calls) == 1:
            raise RuntimeError("mat1 and mat2 must have the same dtype")
        return prove(subject, install)

    def detect(case: Case) -> Match:
        (found,) = CATALOGUE["loop_unrolled"].detect(case).data[:1]
        return Match("twice", (), (found, found))

    changed = {**CATALOGUE, "loop_unrolled": replace(CATALOGUE["loop_unrolled"], detect=detect)}
    monkeypatch.setattr(prescribing, "CATALOGUE", changed)
    monkeypatch.setattr(prescribing, "prove", raise_once)
    assert ("loop_unrolled", 1) in _prescribe(_subject(Decay())).chosen


def test_the_reason_names_the_error_of_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_error(subject: Subject, install: Any) -> str | None:
        raise RuntimeError("no memory left")

    monkeypatch.setattr(prescribing, "prove", raise_error)
    prescription = _prescribe(_subject(Decay()))
    reasons = {name: reason for name, reason, _ in prescription.refused}
    assert reasons["loop_unrolled"].endswith("rewrite could not be compared: RuntimeError: no memory left")


@torch.library.custom_op("fairway_tests::single_precision", mutates_args=())
def single_precision(x: torch.Tensor) -> torch.Tensor:
    """An operator whose kernel has no float64."""
    if x.dtype == torch.float64:
        raise RuntimeError("not implemented for Double")
    return x * 2


class Scaled(torch.nn.Module):
    factor = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return single_precision(x) * self.factor


@pytest.mark.parametrize(("factor", "is_equal"), [(1.0, True), (1 + 1e-6, True), (1.01, False)])
def test_without_float64_stated_tolerances_prove_a_rewrite(factor: float, is_equal: bool) -> None:
    subject = _subject(Scaled())

    @contextmanager
    def install() -> Iterator[None]:
        subject.model.factor = factor
        yield
        del subject.model.factor

    assert (prove(subject, install) is None) == is_equal
