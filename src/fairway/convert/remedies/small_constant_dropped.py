"""`x + 1e-8` stays in the file.

onnxscript's optimiser, which runs at the end of every dynamo export, takes a constant within 1e-8 of 0 for 0 and one
within 1e-5 of 1 for 1, and drops the operation. So vanishes the epsilon that keeps a norm from dividing by zero: the
file is a little off everywhere, and NaN for a row of zeros. Here such a constant must be 0 or 1 exactly.

Refuses under the TorchScript exporter, which has another optimiser.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import Any

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy


def detect(case: Case) -> Match | Refusal:
    if case.route.traced:
        return Refusal("the TorchScript exporter has another optimiser")
    return Match("constants close to 0 and 1 are not taken for them")


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    # Imports onnxscript, which takes its time: only where an export is made.
    from onnxscript.rewriter._matcher import SimplePatternMatcher
    from onnxscript.rewriter._pattern_ir import Constant

    original, name = SimplePatternMatcher._match_constant, case.applying
    case.waiting.add(name)

    def match_constant(self: Any, pattern: Any, value: Any) -> bool:
        if pattern.value not in (0, 1):
            return bool(original(self, pattern, value))
        exact = bool(original(self, Constant(pattern.value, 0.0, 0.0), value))
        held = None if exact or value.const_value is None else value.const_value
        if (
            held is not None
            and held.size == 1
            and math.isclose(held.numpy().item(), pattern.value, rel_tol=pattern._rel_tol, abs_tol=pattern._abs_tol)
        ):
            case.used.add(name)
        return exact

    SimplePatternMatcher._match_constant = match_constant
    try:
        yield
    finally:
        SimplePatternMatcher._match_constant = original


REMEDY = Remedy(
    name="small_constant_dropped",
    cures="FW326",
    title="Keeps constants close to 0 and 1 from being optimised away",
    stage="library",
    affected={"onnxscript": "==0.7.*"},
    upstream=(),
    safety="An optimisation that is not exact is left out; nothing else changes.",
    detect=detect,
    apply=apply,
)
