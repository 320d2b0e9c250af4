"""Fake quantisation, written out: scale, round, clip, scale back.

PyTorch multiplies by the scale's inverse where ONNX's QuantizeLinear divides, which rounds some numbers to the other
side; so arithmetic it is, and the file does what was trained. torch translates by QuantizeLinear, for three ranges.
It has no shapes to capture any of it with: `captured` gives torch.export the shapes, for as long as it lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from onnxscript import opset18 as op

from fairway.convert.translations.builders import KIND, Table, ints, is_float, number


def per_tensor(self: Any, scale: float, zero_point: int, quant_min: int, quant_max: int) -> tuple[Any, Any]:
    factor, zero = number(float(scale), KIND.FLOAT), number(float(zero_point), KIND.FLOAT)
    return _quantised(self, factor, zero, quant_min, quant_max)


def per_tensor_always(self: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> tuple[Any, Any]:
    factor, zero = (op.Cast(op.Reshape(one, ints([])), to=KIND.FLOAT) for one in (scale, zero_point))
    return _quantised(self, factor, zero, quant_min, quant_max)


def per_tensor_if(
    self: Any, scale: Any, zero_point: Any, fake_quant_enabled: Any, quant_min: int, quant_max: int
) -> tuple[Any, Any]:
    value, mask = per_tensor_always(self, scale, zero_point, quant_min, quant_max)
    on = op.Cast(op.Reshape(fake_quant_enabled, ints([])), to=KIND.BOOL)
    return op.Where(on, value, self), op.Or(mask, op.Not(on))


def per_channel(self: Any, scale: Any, zero_point: Any, axis: int, quant_min: int, quant_max: int) -> tuple[Any, Any]:
    rank = len(self.shape)
    along = [-1 if dim == axis % rank else 1 for dim in range(rank)]
    factor, zero = (op.Cast(op.Reshape(one, along), to=KIND.FLOAT) for one in (scale, zero_point))
    return _quantised(self, factor, zero, quant_min, quant_max, is_float(zero_point))


def _quantised(self: Any, scale: Any, zero: Any, low: int, high: int, between: bool = False) -> tuple[Any, Any]:
    """A zero point of floats may lie between two steps, and is added before rounding."""
    value = self if self.dtype == KIND.FLOAT else op.Cast(self, to=KIND.FLOAT)
    bottom, top = number(float(low), KIND.FLOAT), number(float(high), KIND.FLOAT)
    scaled = op.Mul(value, op.Div(number(1.0, KIND.FLOAT), scale))
    step = op.Round(op.Add(scaled, zero)) if between else op.Add(op.Round(scaled), zero)
    inside = op.And(op.GreaterOrEqual(step, bottom), op.LessOrEqual(step, top))
    back = op.Mul(op.Sub(op.Max(op.Min(step, top), bottom), zero), scale)
    return back if self.dtype == KIND.FLOAT else op.Cast(back, to=self.dtype), inside


@contextmanager
def captured() -> Iterator[None]:
    """Fake quantisation with shapes to trace it by; without them again afterwards."""
    make: Any = torch.library.Library  # untyped
    library = make("aten", "IMPL")
    try:
        for name in (
            "fake_quantize_per_tensor_affine_cachemask",
            "fake_quantize_per_channel_affine_cachemask",
            "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
        ):
            key = f"aten::{name}"
            if not torch._C._dispatch_has_kernel_for_dispatch_key(key, "Meta"):  # as in torch 2.13
                library.impl(name, _shapes, "Meta")
        yield
    finally:
        library._destroy()


def _shapes(self: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(self), torch.empty_like(self, dtype=torch.bool)


def _first(function: Callable[..., tuple[Any, Any]]) -> Callable[..., Any]:
    """The value without the mask."""

    @wraps(function)
    def value(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)[0]

    return value


TABLE: Table = {
    torch.ops.aten.fake_quantize_per_tensor_affine.default: _first(per_tensor),
    torch.ops.aten.fake_quantize_per_tensor_affine.tensor_qparams: _first(per_tensor_always),
    torch.ops.aten.fake_quantize_per_channel_affine.default: _first(per_channel),
    torch.ops.aten.fake_quantize_per_tensor_affine_cachemask.default: per_tensor,
    torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: per_tensor_if,
    torch.ops.aten.fake_quantize_per_channel_affine_cachemask.default: per_channel,
}
