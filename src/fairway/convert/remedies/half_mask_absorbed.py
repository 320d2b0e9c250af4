"""Scores that a float16 mask excludes are rounded away, as in PyTorch.

Additive masks hold the lowest float16, -65504. The next number is 32 away, so in PyTorch a score that is added to it is
rounded away, and a fully masked row attends evenly. ONNX Runtime has no float16 Add on the CPU. It computes in float32
and drops the rounding in between, so such a row attends by its scores instead. Here the sum is replaced by the mask
wherever the mask is the lowest number, which is what the sum rounds to.

The mask must be the second term, as in `scores + mask`. Refuses if the model has no float16. No upstream issue is
known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np
import torch

from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy, add_pass
from fairway.diagnostics import Code

if TYPE_CHECKING:
    import onnx_ir as ir

LOWEST_FLOAT16 = np.float16(-65504)
TRANSPARENT_OPERATORS = ("Cast", "Identity")
"""Operators between the sum and the Softmax that do not change the values."""


def absorb(model: ir.Model) -> bool:
    """For each Softmax over a float16 sum, select the mask wherever it is the lowest number."""
    import onnx_ir as ir

    changed = False
    for node in list(model.graph.all_nodes()):
        if node.op_type != "Softmax":
            continue
        add = _find_sum(node)
        if add is None or _is_absorbed(add):
            continue
        mask, users = add.inputs[1], list(add.outputs[0].uses())
        lowest = ir.node("Constant", [], {"value": ir.tensor(np.array(LOWEST_FLOAT16))})
        below = ir.node("LessOrEqual", [mask, lowest.outputs[0]])
        chosen = ir.node("Where", [below.outputs[0], mask, add.outputs[0]])
        chosen.outputs[0].type, chosen.outputs[0].shape = add.outputs[0].type, add.outputs[0].shape
        assert add.graph is not None
        add.graph.insert_after(add, [lowest, below, chosen])
        for user, index in users:
            user.replace_input_with(index, chosen.outputs[0])
        changed = True
    return changed


def _find_sum(softmax: ir.Node) -> ir.Node | None:
    import onnx_ir as ir

    value = softmax.inputs[0]
    while value is not None and (node := value.producer()) is not None:
        if node.op_type in TRANSPARENT_OPERATORS:
            value = node.inputs[0]
            continue
        half = node.op_type == "Add" and node.outputs[0].dtype == ir.DataType.FLOAT16
        return node if half and all(node.inputs) else None
    return None


def _is_absorbed(add: ir.Node) -> bool:
    return any(user.op_type == "Where" and user.inputs[1] is add.inputs[1] for user, _ in add.outputs[0].uses())


def detect(case: Case) -> Match | Refusal:
    if not any(p.dtype == torch.float16 for p in case.model.parameters()):
        return Refusal("the model has no float16 weights")
    return Match("scores under the lowest float16 replaced by the mask, as PyTorch rounds them")


def apply(case: Case, match: Match) -> AbstractContextManager[None]:
    return add_pass(case, absorb)


REMEDY = Remedy(
    name="half_mask_absorbed",
    cures=Code.HALF_MASK_NOT_ABSORBED,
    title="Keeps PyTorch's rounding of a score under a float16 mask",
    stage="graph",
    affected={"onnxruntime": ">=1.22"},
    upstream=(),
    safety="The lowest float16 plus a score below 16 in size rounds to the lowest float16; elsewhere nothing changes.",
    detect=detect,
    apply=apply,
    order=20,
)
