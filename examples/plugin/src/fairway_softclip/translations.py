"""The operator in ONNX."""

from __future__ import annotations

from typing import Any

import torch
from onnxscript import opset18 as op

import fairway_softclip  # noqa: F401  # registers the operator


def soft_clip(x: Any, knee: float) -> Any:
    limit, one = (op.CastLike(op.Constant(value_float=number), x) for number in (knee, 1.0))
    size = op.Abs(x)
    # Beyond the knee only: elsewhere the logarithm would be of a negative number.
    beyond = op.Max(op.Sub(size, limit), op.Sub(limit, limit))
    clipped = op.Mul(op.Sign(x), op.Add(limit, op.Log(op.Add(beyond, one))))
    return op.Where(op.Greater(size, limit), clipped, x)


TRANSLATIONS = {torch.ops.softclip.soft_clip.default: soft_clip}
