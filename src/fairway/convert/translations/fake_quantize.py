"""Fake quantization, written out: scale, round, clip, scale back.

PyTorch multiplies by the scale's inverse, but ONNX's QuantizeLinear divides, which rounds some numbers to the other
side. With plain arithmetic the file does what was trained. torch translates by QuantizeLinear, for three ranges. It has
no shapes with which to capture these operators: `register_shapes` gives torch.export the shapes inside a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps

import torch
from onnxscript import opset18 as op

from fairway.convert.translations.builders import KIND, GraphValue, Table, is_float, make_ints, make_number
from fairway.torch_internals import Untyped, aten_fake_quantize_with_mask, destroy_library, has_kernel


def quantize_per_tensor(
    self: GraphValue, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[GraphValue, GraphValue]:
    factor, zero = make_number(float(scale), KIND.FLOAT), make_number(float(zero_point), KIND.FLOAT)
    return _quantize(self, factor, zero, quant_min, quant_max)


def quantize_by_tensors(
    self: GraphValue, scale: GraphValue, zero_point: GraphValue, quant_min: int, quant_max: int
) -> tuple[GraphValue, GraphValue]:
    factor, zero = (op.Cast(op.Reshape(value, make_ints([])), to=KIND.FLOAT) for value in (scale, zero_point))
    return _quantize(self, factor, zero, quant_min, quant_max)


def quantize_if_enabled(
    self: GraphValue,
    scale: GraphValue,
    zero_point: GraphValue,
    fake_quant_enabled: GraphValue,
    quant_min: int,
    quant_max: int,
) -> tuple[GraphValue, GraphValue]:
    value, mask = quantize_by_tensors(self, scale, zero_point, quant_min, quant_max)
    on = op.Cast(op.Reshape(fake_quant_enabled, make_ints([])), to=KIND.BOOL)
    return op.Where(on, value, self), op.Or(mask, op.Not(on))


def quantize_per_channel(
    self: GraphValue, scale: GraphValue, zero_point: GraphValue, axis: int, quant_min: int, quant_max: int
) -> tuple[GraphValue, GraphValue]:
    rank = len(self.shape)
    along = [-1 if dim == axis % rank else 1 for dim in range(rank)]
    factor, zero = (op.Cast(op.Reshape(value, along), to=KIND.FLOAT) for value in (scale, zero_point))
    return _quantize(self, factor, zero, quant_min, quant_max, is_float(zero_point))


def _quantize(
    self: GraphValue, scale: GraphValue, zero: GraphValue, low: int, high: int, between: bool = False
) -> tuple[GraphValue, GraphValue]:
    """Quantize and scale back. A zero point of floats may be between two steps, and is added before rounding."""
    value = self if self.dtype == KIND.FLOAT else op.Cast(self, to=KIND.FLOAT)
    bottom, top = make_number(float(low), KIND.FLOAT), make_number(float(high), KIND.FLOAT)
    scaled = op.Mul(value, op.Div(make_number(1.0, KIND.FLOAT), scale))
    step = op.Round(op.Add(scaled, zero)) if between else op.Add(op.Round(scaled), zero)
    inside = op.And(op.GreaterOrEqual(step, bottom), op.LessOrEqual(step, top))
    back = op.Mul(op.Sub(op.Max(op.Min(step, top), bottom), zero), scale)
    return back if self.dtype == KIND.FLOAT else op.Cast(back, to=self.dtype), inside


@contextmanager
def register_shapes() -> Iterator[None]:
    """Give torch the shapes of fake quantization inside the block."""
    make: Untyped = torch.library.Library  # untyped
    library = make("aten", "IMPL")
    try:
        for name in (
            "fake_quantize_per_tensor_affine_cachemask",
            "fake_quantize_per_channel_affine_cachemask",
            "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
        ):
            key = f"aten::{name}"
            if not has_kernel(key, "Meta"):  # as in torch 2.13
                library.impl(name, _infer_shapes, "Meta")
        yield
    finally:
        destroy_library(library)


def _infer_shapes(self: torch.Tensor, *_: object) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(self), torch.empty_like(self, dtype=torch.bool)


def _drop_mask(function: Callable[..., tuple[GraphValue, GraphValue]]) -> Callable[..., GraphValue]:
    """Return a translation that returns the value without the mask."""

    @wraps(function)
    def value(*args: GraphValue, **kwargs: GraphValue) -> GraphValue:
        return function(*args, **kwargs)[0]

    return value


TABLE: Table = {
    torch.ops.aten.fake_quantize_per_tensor_affine.default: _drop_mask(quantize_per_tensor),
    torch.ops.aten.fake_quantize_per_tensor_affine.tensor_qparams: _drop_mask(quantize_by_tensors),
    torch.ops.aten.fake_quantize_per_channel_affine.default: _drop_mask(quantize_per_channel),
    torch.ops.aten.fake_quantize_per_tensor_affine_cachemask.default: quantize_per_tensor,
    aten_fake_quantize_with_mask: quantize_if_enabled,
    torch.ops.aten.fake_quantize_per_channel_affine_cachemask.default: quantize_per_channel,
}
