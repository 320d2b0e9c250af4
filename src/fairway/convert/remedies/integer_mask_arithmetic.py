"""`1.0 - mask` with an integer mask is translated. The result has the type that PyTorch gives it.

torch 2.13 decomposes `aten.rsub.Scalar` into `aten.sub` with the number in front. Its type promotion finds no overload
for that, so every float number minus an integer tensor fails to convert. With a translation of `rsub` the exporter does
not decompose it.

Refuses under the TorchScript exporter, which promotes types itself, before torch 2.13, if the default float type is not
float32, and if no code of the model subtracts a tensor from a number and no earlier attempt failed on it.
"""

from __future__ import annotations

import inspect
import re
import sys
from contextlib import AbstractContextManager

import torch
from packaging.version import Version

from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy, add_translations
from fairway.diagnostics import Code, Where
from fairway.torch_internals import GraphValue

SINCE = Version("2.13")
NUMBER_MINUS = re.compile(r"\brsub\(|(?<![\w.])\d+\.\d*(e[+-]?\d+)?\s*-\s*[A-Za-z_(]")


def translate(self: GraphValue, other: float, alpha: float = 1.0) -> GraphValue:
    """Compute `other - alpha * self`, in float if `other` is a float and `self` an integer tensor."""
    import onnx_ir as ir
    from onnxscript import opset18 as op

    kind = getattr(other, "dtype", None)
    is_float = isinstance(other, float) or (kind is not None and kind.is_floating_point())
    if is_float and not self.dtype.is_floating_point():
        self = op.Cast(self, to=ir.DataType.FLOAT)
    scaled = self if alpha == 1 else op.Mul(self, op.CastLike(alpha, self))
    return op.Sub(op.CastLike(other, self), scaled)


def detect(case: Case) -> Match | Refusal:
    if case.route.is_traced:
        return Refusal("the TorchScript exporter promotes types by itself")
    if Version(torch.__version__) < SINCE:
        return Refusal(f"torch {torch.__version__} is older than the regression of {SINCE}")
    if torch.get_default_dtype() is not torch.float32:
        return Refusal(f"a float number makes {torch.get_default_dtype()} here, not float32")
    if any("aten.sub" in finding.seen or "aten.rsub" in finding.seen for finding in case.findings):
        return Match("number - tensor translated in one step, as an earlier attempt failed on it")
    for name, module in case.model.named_modules():
        if line := _find_line(type(module)):
            return Match("number - tensor translated in one step", (Where(module=name, source=line),))
    return Refusal("no code of the model subtracts a tensor from a float number")


def _find_line(kind: type) -> str | None:
    """Return the first line in the files of this class and its bases that subtracts from a float number."""
    for home in dict.fromkeys(base.__module__ for base in kind.__mro__):
        if home == "builtins" or home.startswith("torch."):
            continue
        try:
            source = inspect.getsource(sys.modules[home])
        except (OSError, TypeError, KeyError):  # no source, as for code typed at a prompt or made by exec: it may
            return f"{kind.__qualname__}, which has no source"
        if line := next((line for line in source.splitlines() if NUMBER_MINUS.search(line)), None):
            return line.strip()
    return None


def apply(case: Case, match: Match) -> AbstractContextManager[None]:
    return add_translations(case, {torch.ops.aten.rsub.Scalar: translate})


REMEDY = Remedy(
    name="integer_mask_arithmetic",
    cures=Code.INTEGER_MASK_ARITHMETIC,
    title="Translates a number minus an integer tensor",
    stage="translation",
    affected={"torch": "==2.13.*"},
    upstream=("pytorch/pytorch#194381",),
    safety="ONNX's Sub after a Cast to float is what PyTorch computes for a float number and an integer tensor.",
    detect=detect,
    apply=apply,
    order=50,
)
