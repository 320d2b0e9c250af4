"""Operators on complex tensors are computed on their real and imaginary parts.

ONNX has no complex operators. torch.onnx computes with pairs of real numbers, and has translations of some forty
operators for them. The others end in "No ONNX function found", such as `freqs[:, :, None]` of a rotary embedding, a
slice written into a spectrum, or an einsum of a Fourier layer. A `custom_translation_table` cannot add any. So the
program of torch.export is rewritten with real tensors before it is translated. Only the DFT itself is left to
torch.onnx.

Refuses under the TorchScript exporter, which has no complex numbers at all.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import contextmanager, nullcontext

import torch
from torch.fx import Graph, Node

from fairway.convert.remedies.complex.complex_parts import Parts, RuleValue, join_parts, take_parts
from fairway.convert.remedies.complex.complex_rules import RULES
from fairway.convert.remedies.complex.traced_rules import compute_wide, is_complex_node, trace_rule
from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Code
from fairway.torch_internals import (
    OpOverload,
    detect_fake_mode,
    enable_python_dispatcher,
    read_schema,
    tree_unflatten,
)

_ATEN = torch.ops.aten
_LEFT_WHOLE = {_ATEN.stft.default, _ATEN.stft.center}
"""torch.onnx translates these from real numbers to pairs."""


MAX_DECOMPOSITIONS = 8


def has_complex(program: torch.export.ExportedProgram) -> bool:
    return any(is_complex_node(node) for node in program.graph.nodes)


def _touches_complex(node: Node) -> bool:
    return node.op == "call_function" and (
        is_complex_node(node) or any(is_complex_node(n) for n in node.all_input_nodes)
    )


def rewrite_on_parts(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return the program with its operators on complex tensors replaced by operators on real tensors."""
    program = _make_functional(program)
    graph = program.graph_module.graph
    parts: dict[Node, RuleValue] = {}
    changed = False
    fake = detect_fake_mode([node.meta.get("val") for node in graph.nodes])
    # Python kernels, too: those in C++ cannot resize what has symbolic sizes.
    with enable_python_dispatcher(), fake or nullcontext():
        for node in list(graph.nodes):
            if _touches_complex(node):
                with graph.inserting_before(node):
                    changed |= _rewrite(graph, node, parts)
            if node.target in _LEFT_WHOLE and compute_wide(graph, node, parts):
                changed = True
    if changed:
        _rename_outputs(program)
        graph.eliminate_dead_code()
        graph.lint()
        program.graph_module.recompile()
    return program


def _make_functional(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return the program without writes in place, and with composite operators on complex tensors taken apart."""
    known = torch.export.default_decompositions()
    for _ in range(MAX_DECOMPOSITIONS):
        names = {node.target for node in program.graph.nodes if _touches_complex(node) and _find_rule(node) is None}
        table = {name: known[name] for name in names - _LEFT_WHOLE if name in known}
        if not table and not _writes_in_place(program):
            break
        program = program.run_decompositions(table)
    return program


def _writes_in_place(program: torch.export.ExportedProgram) -> bool:
    """Return whether the program writes into a complex tensor, or into a possible view of one."""
    derived: set[Node] = set()
    for node in program.graph.nodes:
        if is_complex_node(node) or not derived.isdisjoint(node.all_input_nodes):
            derived.add(node)
            if isinstance(node.target, OpOverload) and read_schema(node.target).is_mutable:
                return True
    return False


def _rename_outputs(program: torch.export.ExportedProgram) -> None:
    """Update the program's signature to the output nodes that the graph has now."""
    returned: RuleValue = program.graph.output_node().args[0]
    for spec, node in zip(program.graph_signature.output_specs, returned, strict=True):
        if isinstance(node, Node) and spec.arg.name != node.name:
            program.graph_signature.replace_all_uses(spec.arg.name, node.name)


def _find_rule(node: Node) -> Callable[..., RuleValue] | None:
    packet = getattr(node.target, "overloadpacket", None)
    if packet is None or node.target in _LEFT_WHOLE or not str(packet).startswith("aten."):
        return None
    return RULES.get(packet.__name__)


def _rewrite(graph: Graph, node: Node, parts: dict[Node, RuleValue]) -> bool:
    """Add the node's counterpart on real tensors to the graph. Return whether there is one."""
    if node.target is operator.getitem:
        source: RuleValue = node.args[0]
        if source in parts and isinstance(parts[source], list):
            return _replace(graph, node, parts[source][node.args[1]], parts)
        return False
    rule = _find_rule(node)
    if rule is None:
        return False
    inputs = node.all_input_nodes
    needed: list[Node] = []
    for item in inputs:
        needed += [*_get_parts(graph, item, parts)] if is_complex_node(item) else [item]

    def compute(*values: RuleValue) -> RuleValue:
        given = iter(values)
        here = {item: Parts(next(given), next(given)) if is_complex_node(item) else next(given) for item in inputs}
        args, kwargs = _replace_nodes(node.args, here), _replace_nodes(node.kwargs, here)
        return rule(*args, **kwargs)

    try:
        traced, results = trace_rule(compute, [item.meta["val"] for item in needed])
    except NotImplementedError:
        return False
    places: dict[Node, RuleValue] = dict(zip((n for n in traced.nodes if n.op == "placeholder"), needed, strict=True))
    flat: RuleValue = graph.graph_copy(traced, places)
    about = {key: value for key, value in node.meta.items() if key not in ("val", "tensor_meta", "unbacked_bindings")}
    for inner in traced.nodes:
        if inner.op == "call_function":
            places[inner].meta.update(about)
    made = tree_unflatten(list(flat) if isinstance(flat, list | tuple) else [flat], results)
    return _replace(graph, node, made, parts)


def _replace_nodes(value: RuleValue, here: dict[Node, RuleValue]) -> RuleValue:
    if isinstance(value, Node):
        return here[value]
    if isinstance(value, list | tuple):
        return [_replace_nodes(item, here) for item in value]
    if isinstance(value, dict):
        return {name: _replace_nodes(item, here) for name, item in value.items()}
    return value


def _get_parts(graph: Graph, node: Node, parts: dict[Node, RuleValue]) -> RuleValue:
    """Return the nodes of a complex node's parts. Add them for an input, and for an operator that was not rewritten."""
    if node not in parts:
        traced, _ = trace_rule(lambda value: take_parts(value), [node.meta["val"]])
        source = next(n for n in traced.nodes if n.op == "placeholder")
        with graph.inserting_before(_find_next_operator(node)):
            made: RuleValue = graph.graph_copy(traced, {source: node})
        parts[node] = Parts(*made)
    return parts[node]


def _find_next_operator(node: Node) -> Node:
    """Return the next node that is not an input. Inputs come first in a graph."""
    while (node := node.next).op == "placeholder":
        pass
    return node


def _replace(graph: Graph, node: Node, made: RuleValue, parts: dict[Node, RuleValue]) -> bool:
    """Store the parts for the nodes after this one. Build a complex tensor from them where one is still needed."""
    if isinstance(made, Node):
        node.replace_all_uses_with(made)
        return True
    parts[node] = made
    if isinstance(made, list):
        return True
    users = [user for user in node.users if _find_rule(user) is None]
    if users:
        traced, _ = trace_rule(lambda *pair: join_parts(Parts(*pair)), [item.meta["val"] for item in made])
        places: dict[Node, RuleValue] = dict(zip((n for n in traced.nodes if n.op == "placeholder"), made, strict=True))
        joined: RuleValue = graph.graph_copy(traced, places)
        joined = joined[0] if isinstance(joined, list | tuple) else joined
        parts[joined] = made
        for user in users:
            user.replace_input_with(node, joined)
    return True


def detect(case: Case) -> Match | Refusal:
    if case.route.is_traced:
        return Refusal("the TorchScript exporter has no complex numbers")
    return Match("complex tensors computed as their real and imaginary parts")


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    on_use = case.list_if_used()

    def repair(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
        if not has_complex(program):
            return program
        on_use()
        return rewrite_on_parts(program)

    case.repairs.append(repair)
    try:
        yield
    finally:
        case.repairs.remove(repair)


REMEDY = Remedy(
    name="complex_picked",
    cures=Code.COMPLEX_PICKED,
    title="Computes with complex tensors as with pairs of real ones",
    stage="translation",
    affected={"torch": "==2.13.*"},
    upstream=(),
    safety="Each operator is written out on real and imaginary parts, and the file is judged.",
    detect=detect,
    apply=apply,
    order=20,
)
