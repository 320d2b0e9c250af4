"""A tensor times a number, with a torchlib that lacks the entry, as onnxscript before 0.7.2 does."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest
import torch
from harness import EXPORT, TRACE, assert_parity, export, make_case, operators
from torch import nn
from torch.onnx._internal.exporter import _registration

from fairway.convert.ladder import translation_tables
from fairway.convert.ladder.route import Route
from fairway.convert.remedies.contract import Refusal
from fairway.convert.remedies.mul_scalar import REMEDY

DIMS = [{0: "batch"}] * 2


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 0.5, x * 2, count * 3, count * 0.5, (count > 2) * 0.5, (count > 2) * 3


def make(batch: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, 3), torch.arange(batch * 3).reshape(batch, 3)


@pytest.fixture
def old_onnxscript(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxscript 0.7.1, as far as this defect goes: its version, and no entry for the operator."""
    complete = _registration.ONNXRegistry.from_torchlib.__func__  # type: ignore[attr-defined]

    def incomplete(cls: Any, *args: Any, **kwargs: Any) -> Any:
        registry = complete(cls, *args, **kwargs)
        del registry.functions["aten::mul.Scalar"]
        return registry

    monkeypatch.setattr(_registration.ONNXRegistry, "from_torchlib", classmethod(incomplete))
    monkeypatch.setattr(translation_tables, "_built", {})
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.7.1" if name == "onnxscript" else version(name))


@pytest.mark.usefixtures("old_onnxscript")
def test_the_operator_has_no_translation_without_it() -> None:
    with pytest.raises(Exception, match=r"No ONNX function found for .*aten.mul.*Scalar"):
        export(make_case(Scaled(), make(2)), DIMS)


def test_the_installed_onnxscript_needs_no_remedy() -> None:
    assert_parity(export(make_case(Scaled(), make(2)), DIMS), Scaled(), make(5), atol=0)


@pytest.mark.usefixtures("old_onnxscript")
def test_values_and_types_agree_with_it() -> None:
    exported = export(make_case(Scaled(), make(2)), DIMS, REMEDY)
    assert_parity(exported, Scaled(), make(5), make(1), atol=0)


@pytest.mark.parametrize(
    ("route", "reason"),
    [
        (TRACE, "the TorchScript exporter has its own translation"),
        (EXPORT, f"onnxscript {metadata.version('onnxscript')} translates aten.mul.Scalar"),
    ],
    ids=["traced", "fixed"],
)
def test_near_misses_are_refused(route: Route, reason: str) -> None:
    assert REMEDY.detect(make_case(Scaled(), make(2), route)) == Refusal(reason)


@pytest.mark.usefixtures("old_onnxscript")
def test_applying_it_twice_changes_nothing_more_and_leaves_nothing_behind() -> None:
    case = make_case(Scaled(), make(2))
    once = export(case, DIMS, REMEDY)
    twice = export(case, DIMS, REMEDY, REMEDY)
    assert operators(twice) == operators(once)
    assert case.translations == {}
