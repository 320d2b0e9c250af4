"""The arguments of torch.onnx.export that people know are understood, or answered by the right name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import fairway
from fairway.diagnostics.errors import UserError
from fairway.model.subject import build_subject
from fairway.model.torch_arguments import take_torch_arguments

EXAMPLE = (torch.randn(2, 5, 3), torch.ones(2, 5, dtype=torch.bool))


class Masked(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x * mask[..., None]).sum(1)


def spec(names: list[str] | None = None, outputs: list[str] | None = None, **given: Any) -> list[str]:
    dims = take_torch_arguments(given, "export", None, names, outputs)  # type: ignore[arg-type]
    return [str(line) for line in build_subject(Masked(), EXAMPLE, dims=dims, input_names=names).spec]


def complaint(**given: Any) -> str:
    with pytest.raises(UserError) as caught:
        fairway.export(Masked(), EXAMPLE, "out.onnx", **given)
    return str(caught.value)


NAMED = ["x: float32[batch, time, 3]", "mask: bool[batch, time]"]


def test_dynamic_axes_become_dims() -> None:
    axes = {"x": {0: "batch", 1: "time"}, "mask": {0: "batch", 1: "time"}, "output": {0: "batch"}}
    assert spec(outputs=["output"], dynamic_axes=axes) == NAMED
    assert spec(dynamic_axes={"x": {0: "batch size"}}) == ["x: float32[batch_size, 5, 3]", "mask: bool[2, 5]"]


def test_dynamic_axes_may_use_the_files_names() -> None:
    axes = {"audio": {0: "batch", 1: "time"}, "keep": {0: "batch", 1: "time"}, "sums": {0: "batch"}}
    assert spec(["audio", "keep"], ["sums"], dynamic_axes=axes) == [
        "audio: float32[batch, time, 3]",
        "keep: bool[batch, time]",
    ]


def test_dynamic_axes_without_names_are_tied_by_place_and_size() -> None:
    assert spec(dynamic_axes={"x": [0, 1], "mask": [0, 1]}) == [
        "x: float32[dim_0_of_2, dim_1_of_5, 3]",
        "mask: bool[dim_0_of_2, dim_1_of_5]",
    ]


def test_dynamic_axes_of_no_input_are_refused() -> None:
    assert complaint(dynamic_axes={"audio": {0: "batch"}}) == (
        "FW002: The declared inputs are not those that forward takes: dynamic_axes names audio; the inputs are: x, "
        "mask\n"
        "  do: Use one of the names listed."
    )


def test_dynamic_shapes_become_dims() -> None:
    batch, time = torch.export.Dim("batch", max=8), torch.export.Dim("time", max=100)
    shapes = {"x": {0: batch, 1: time}, "mask": {0: batch, 1: time}}
    assert spec(dynamic_shapes=shapes) == spec(dynamic_shapes=tuple(shapes.values())) == NAMED


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"do_constant_folding": True},
            "FW028: This is an argument of torch.onnx.export: fairway.export has no argument 'do_constant_folding' and "
            "needs none\n  do: Leave the argument out.",
        ),
        (
            {"dynamo": True},
            "FW028: This is an argument of torch.onnx.export: fairway.export has no argument 'dynamo'\n"
            '  do: fairway.export has routes=["export-dynamic"] for dynamo=True, routes=["trace"] for dynamo=False.',
        ),
        (
            {"dims": {"x": "batch 5 3"}, "dynamic_axes": {"x": {0: "batch"}}},
            "FW015: The inputs have an unsupported form: dims and dynamic_axes are given together\n"
            "  do: Declare the dims in one form.",
        ),
        (
            {"opset_version": 99},
            "FW007: The opset cannot be produced: opset: expected 7..",
        ),
    ],
    ids=["decided", "named", "two forms", "opset_version"],
)
def test_other_arguments_are_answered(given: dict[str, Any], text: str) -> None:
    assert complaint(**given).startswith(text)


def test_an_unknown_argument_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"export\(\) got an unexpected keyword argument 'opset_verison'"):
        fairway.export(Masked(), EXAMPLE, "out.onnx", opset_verison=17)  # type: ignore[call-arg]
