"""Complex tensors are unsqueezed, expanded, repeated, selected and indexed as their pairs of real numbers.

torch.onnx computes with complex numbers as with pairs, and has a second table for the operators on them, without
these: `freqs[:, :, None]` of a rotary embedding ends in "No ONNX function found for aten.unsqueeze". A
`custom_translation_table` does not reach that table. So they are put around the pairs in torch.export's program.

Refuses under the TorchScript exporter, which has no complex numbers at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy

_ATEN = torch.ops.aten


def _dim(dim: int) -> int:
    """The pairs are one dim more, at the end."""
    return dim - 1 if dim < 0 else dim


SHIFTED: Mapping[Any, Callable[..., tuple[Any, ...]]] = {
    _ATEN.unsqueeze.default: lambda dim: (_dim(dim),),
    _ATEN.select.int: lambda dim, place: (_dim(dim), place),
    _ATEN.index_select.default: lambda dim, places: (_dim(dim), places),
    _ATEN.expand.default: lambda sizes: ([*sizes, 2],),
    _ATEN.repeat.default: lambda times: ([*times, 1],),
    _ATEN.index.Tensor: lambda places: (places,),
}
"""What is said to the operator about the pairs instead of the complex numbers."""


def on_pairs(program: torch.export.ExportedProgram) -> bool:
    """Changes the program; tells whether there was anything to change."""
    graph = program.graph_module.graph
    changed = False
    for node in list(graph.nodes):
        shifted = SHIFTED.get(node.target)
        held = node.meta.get("val")
        if shifted is None or not isinstance(held, torch.Tensor) or not held.is_complex():
            continue
        if node.kwargs or any(user.op == "output" for user in node.users):
            continue
        with graph.inserting_before(node):
            pairs = _call(graph, _ATEN.view_as_real.default, (node.args[0],))
            moved = _call(graph, node.target, (pairs, *shifted(*node.args[1:])))
            whole = _call(graph, _ATEN.view_as_complex.default, (moved,))
        node.replace_all_uses_with(whole)
        graph.erase_node(node)
        changed = True
    if changed:
        program.graph_module.recompile()
    return changed


def _call(graph: torch.fx.Graph, target: Any, args: tuple[Any, ...]) -> torch.fx.Node:
    """A node with the value that torch.export would have noted for it."""
    made = graph.call_function(target, args)
    given: Any = torch.fx.map_arg(args, lambda node: node.meta["val"])
    with given[0].fake_mode:
        made.meta["val"] = target(*given)
    return made


def detect(case: Case) -> Match | Refusal:
    if case.route.traced:
        return Refusal("the TorchScript exporter has no complex numbers")
    return Match("complex tensors picked from as pairs of real ones")


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    name = case.applying
    case.waiting.add(name)

    def repair(program: torch.export.ExportedProgram) -> None:
        if on_pairs(program):
            case.used.add(name)

    case.repairs.append(repair)
    try:
        yield
    finally:
        case.repairs.remove(repair)


REMEDY = Remedy(
    name="complex_picked",
    cures="FW327",
    title="Picks from complex tensors as from pairs of real ones",
    stage="translation",
    affected={"torch": "==2.13.*"},
    upstream=(),
    safety="A complex tensor is its pairs of real numbers; only their place is said otherwise.",
    detect=detect,
    apply=apply,
)
