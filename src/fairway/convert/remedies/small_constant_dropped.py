"""Small constants, such as the one in `x + 1e-8`, stay in the file.

onnxscript's optimizer runs at the end of every dynamo export. It treats a constant within 1e-8 of 0 as 0, and one
within 1e-5 of 1 as 1, and drops the operation. This removes the epsilon that keeps a norm from dividing by zero: the
file is slightly wrong everywhere, and NaN for a row of zeros. With this remedy such a constant must be 0 or 1 exactly.

Refuses under the TorchScript exporter, which has another optimizer.
"""

from __future__ import annotations

import math
from contextlib import contextmanager

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Code
from fairway.torch_internals import Untyped, constant_tolerances, read_internal, replace_internal


def detect(case: Case) -> Match | Refusal:
    if case.route.is_traced:
        return Refusal("the TorchScript exporter has another optimizer")
    return Match("constants close to 0 and 1 are kept")


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    # Imports onnxscript, which takes its time: only where an export is made.
    from fairway.torch_internals import PatternConstant

    original, on_use = read_internal("match_constant"), case.list_if_used()

    def match_constant(self: Untyped, pattern: Untyped, value: Untyped) -> bool:
        if pattern.value not in (0, 1):
            return bool(original(self, pattern, value))
        exact = bool(original(self, PatternConstant(pattern.value, 0.0, 0.0), value))
        constant = None if exact else value.const_value
        if constant is not None and constant.size == 1:
            relative, absolute = constant_tolerances(pattern)
            if math.isclose(constant.numpy().item(), pattern.value, rel_tol=relative, abs_tol=absolute):
                on_use()
        return exact

    with replace_internal("match_constant", match_constant):
        yield


REMEDY = Remedy(
    name="small_constant_dropped",
    cures=Code.SMALL_CONSTANT_DROPPED,
    title="Keeps constants close to 0 and 1 from being optimized away",
    stage="library",
    affected={"onnxscript": "==0.7.*"},
    upstream=(),
    safety="An optimization that is not exact is left out; nothing else changes.",
    detect=detect,
    apply=apply,
    order=80,
)
