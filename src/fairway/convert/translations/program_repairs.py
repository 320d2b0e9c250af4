"""Repairs of torch.export's program where torch.onnx translates Python's arithmetic or torch's `map` wrongly or not.

- Both exporters write `a // b` of sizes as ONNX's Div, which rounds towards zero: `-(-n // 8)` is one too small. If the
  first number may be negative, the rest is subtracted before.
- `map` over the first dim is a scan that carries nothing.
- A check for singular matrices, which has no result, is taken out.
"""

from __future__ import annotations

import operator

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fairway.torch_internals import Untyped, aten_linalg_check_errors, map_operator, scan_operator


def repair_program(program: torch.export.ExportedProgram) -> bool:
    """Change the program in place; tell whether anything was changed."""
    changed = False
    for node in list(program.graph.nodes):
        if node.target is operator.floordiv and _may_be_negative(node.args[0]):
            _subtract_rest(node)
            changed = True
        elif node.target is map_operator:
            body, inputs, others = node.args
            node.target = scan_operator
            node.args = (body, [], list(inputs), list(others))
            changed = True
        elif node.target is aten_linalg_check_errors:
            program.graph.erase_node(node)
            changed = True
    if changed:
        program.graph_module.recompile()
    return changed


def _may_be_negative(number: Untyped) -> bool:
    value = number.meta.get("val") if isinstance(number, Node) else number
    return isinstance(value, int | torch.SymInt) and not statically_known_true(value >= 0)


def _subtract_rest(node: Node) -> None:
    """Make the first number of a division a multiple of the second. A rest has the sign of the second."""
    first, second = node.args
    value: Untyped = first.meta["val"] if isinstance(first, Node) else first
    divisor: Untyped = second.meta["val"] if isinstance(second, Node) else second
    with node.graph.inserting_before(node):
        rest = node.graph.call_function(operator.mod, (first, second))
        rest.meta["val"] = value % divisor
        even = node.graph.call_function(operator.sub, (first, rest))
        even.meta["val"] = value - value % divisor
    node.args = (even, second)
