"""An integer tensor times a float number is translated if onnxscript lacks the operator.

torch 2.13's type promotion casts the tensor and leaves `aten.mul.Scalar`, for which onnxscript before 0.7.2 has no
entry: "No ONNX function found". The entry is added here.

Refuses under the TorchScript exporter, before torch 2.13, and from onnxscript 0.7.2 on, which has the entry.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import metadata

import torch
from packaging.version import Version

from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy, add_translations
from fairway.diagnostics import Code
from fairway.torch_internals import GraphValue

SINCE, FIXED = Version("2.13"), Version("0.7.2")


def translate(self: GraphValue, other: float) -> GraphValue:
    """Compute `self * other`, in float if `other` is a float and `self` an integer tensor."""
    import onnx_ir as ir
    from onnxscript import opset18 as op

    if isinstance(other, float) and not self.dtype.is_floating_point():
        self = op.Cast(self, to=ir.DataType.FLOAT)
    elif self.dtype == ir.DataType.BOOL:
        self = op.Cast(self, to=ir.DataType.INT64)
    return op.Mul(self, op.CastLike(other, self))


def detect(case: Case) -> Match | Refusal:
    if case.route.is_traced:
        return Refusal("the TorchScript exporter has its own translation")
    if Version(torch.__version__) < SINCE:
        return Refusal(f"torch {torch.__version__} is older than the regression of {SINCE}")
    installed = metadata.version("onnxscript")
    if Version(installed) >= FIXED:
        return Refusal(f"onnxscript {installed} translates aten.mul.Scalar")
    return Match(f"aten.mul.Scalar translated here, as onnxscript {installed} does not")


def apply(case: Case, match: Match) -> AbstractContextManager[None]:
    return add_translations(case, {torch.ops.aten.mul.Scalar: translate})


REMEDY = Remedy(
    name="mul_scalar",
    cures=Code.MUL_SCALAR,
    title="Translates a tensor times a number",
    stage="translation",
    affected={"torch": "==2.13.*", "onnxscript": "<0.7.2"},
    upstream=("pytorch/pytorch#194382",),
    safety="ONNX's Mul, with the number cast to the tensor's type, is what PyTorch computes.",
    detect=detect,
    apply=apply,
    order=60,
)
