"""`1.0 - mask` with an integer mask is translated, with the number's type deciding as in PyTorch.

torch 2.13 decomposes `aten.rsub.Scalar` into `aten.sub` with the number in front, for which its type promotion
finds no overload: every float number minus an integer tensor fails to convert. So `rsub` gets a translation of
its own, which also keeps the exporter from decomposing it.

Refuses under the TorchScript exporter, which promotes by itself, and where torch is older than the regression.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import torch
from packaging.version import Version

from fairway.remedies.contract import Applied, Case, Match, Refusal, Remedy

SINCE = Version("2.13")


def translate(self: Any, other: float, alpha: float = 1.0) -> Any:
    """`other - alpha * self`, in float where a float number meets whole ones."""
    import onnx_ir as ir
    from onnxscript import opset18 as op

    if any(isinstance(number, float) for number in (other, alpha)) and self.dtype.is_integer():
        self = op.Cast(self, to=ir.DataType.FLOAT)
    scaled = self if alpha == 1 else op.Mul(self, op.CastLike(op.Constant(value_float=float(alpha)), self))
    return op.Sub(op.CastLike(other, self), scaled)
