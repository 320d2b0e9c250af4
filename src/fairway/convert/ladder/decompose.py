"""Decomposes a captured program node by node. torch.onnx would trace the entire program again, twice.

Most nodes of a program can be translated directly. The others are traced one by one with torch's own tables, and
replaced by their parts. torch decomposes the program itself if a node cannot be seen alone: operators that change a
tensor in place, graphs within the graph, constants and sizes that a decomposition creates.
"""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

from fairway import torch_internals
from fairway.torch_internals import OpOverload, promote_casts, read_internal, read_schema, replace_internal

Table: TypeAlias = Mapping[OpOverload, Callable[..., object]]

_VALUE_KEYS = ("val", "tensor_meta", "unbacked_bindings")
"""Metadata about a node's own value. The rest, such as the node's line in the source, also holds for its parts."""

_NEW_SIZE_TAGS = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
_log = logging.getLogger(__name__)


class NotDecomposable(Exception):
    """A program cannot be decomposed node by node; the message says why."""


@contextmanager
def decompose_by_node() -> Iterator[None]:
    """Within the block, torch.onnx.export decomposes programs node by node, in place, as far as they allow that."""
    try:
        plain = read_internal("decompose_with_registry")
    except (ImportError, AttributeError):
        yield
        return

    def decompose(program: torch.export.ExportedProgram, registry: object) -> torch.export.ExportedProgram:
        parts = _try_to_trace_nodes(program, registry)
        if parts is None:
            # Outside of any handler, so that an error of torch's own way has no other error behind it.
            decomposed: torch.export.ExportedProgram = plain(program, registry)
            return decomposed
        _replace_nodes(program, parts)
        program.graph.eliminate_dead_code(_is_needed)
        program.graph_module.recompile()
        return program

    with replace_internal("decompose_with_registry", decompose):
        yield


@contextmanager
def reuse_captured_values() -> Iterator[None]:
    """Within the block, torch.onnx takes the values of nodes from the capture.

    It makes implied casts explicit, and would compute the entire program again in fake tensors for that. Nodes that it
    changes are still computed.
    """
    try:
        plain = read_internal("type_promotion_run_node")
        find_rule = read_internal("get_type_promotion_rule")
    except (ImportError, AttributeError):
        yield
        return

    def run_node(self: Any, node: Node) -> Any:
        if node.op != "call_function" or "val" not in node.meta:
            return plain(self, node)
        if rule := find_rule(node, self.type_promotion_table):
            promote_casts(self, node, rule)
        return node.meta["val"]

    with replace_internal("type_promotion_run_node", run_node):
        yield


@dataclass(frozen=True)
class NodeParts:
    """The parts of one node, as a graph of its inputs."""

    node: Node
    inputs: tuple[Node, ...]
    graph: Graph


def _try_to_trace_nodes(program: torch.export.ExportedProgram, registry: object) -> list[NodeParts] | None:
    """Return the parts of each node that must be decomposed, or None if torch has to decompose the program."""
    try:
        return _trace_nodes(program, registry)
    except Exception as error:  # torch's own way takes more time, but works
        _log.debug("decomposed by torch: %s", error)
        return None


def _trace_nodes(program: torch.export.ExportedProgram, registry: object) -> list[NodeParts]:
    """Return the parts of each node that must be decomposed. The program is not changed yet."""
    known = {*torch_internals.get_onnx_implemented_overloads(registry)}
    table = {op: how for op, how in torch_internals.decomposition_table.items() if op not in known and _is_operator(op)}
    nodes = [node for node in program.graph.nodes if _must_be_decomposed(node, known, table)]
    if not nodes:
        return []
    preserved = {op: torch_internals.composite_kept for op in known if _is_kept_whole(op)}
    override = torch_internals.override_composites
    fake = torch_internals.detect_fake_mode([node.meta.get("val") for node in program.graph.nodes])
    python = torch_internals.enable_python_dispatcher  # also uses torch's kernels in Python
    if fake is None:
        raise NotDecomposable("the capture holds no values")
    with torch.no_grad(), python(), fake, override(preserved):
        return [_trace_node(node, known, table) for node in nodes]


def _is_kept_whole(op: object) -> bool:
    """Return whether torch keeps a composite operator, because it changes nothing and returns no view."""
    return _is_operator(op) and bool(torch_internals.is_preservable_composite(op))


def _must_be_decomposed(node: Node, known: set[object], table: Table) -> bool:
    if node.op in ("placeholder", "output"):
        return False
    target = node.target
    if not _is_operator(target):
        if not _is_arithmetic(target):
            raise NotDecomposable(
                f"{node.name} is neither an operator nor arithmetic"
            )  # a graph, or a leftover of vmap
        return False
    if target is torch.ops.aten.sym_size.int:
        return False
    _check_functional(target, node.name)
    if read_schema(target).returns and "val" not in node.meta:
        raise NotDecomposable(f"the value of {node.name} is not known")  # a pass inserted the node
    if torch_internals.is_composite(target):
        return target not in known or not _is_kept_whole(target)
    return target in table


def _is_arithmetic(function: object) -> bool:
    """Return whether a function is arithmetic on sizes and numbers."""
    name = getattr(function, "__name__", "")
    return function in (operator.getitem, getattr(operator, name, None), getattr(math, name, None)) or (
        name.startswith("sym_") and function is getattr(torch, name, None)
    )


def _check_functional(target: OpOverload, name: str) -> None:
    if read_schema(target).is_mutable:
        raise NotDecomposable(f"{name} changes a tensor in place")


def _is_operator(target: object) -> TypeGuard[OpOverload]:
    return isinstance(target, OpOverload)


def _trace_node(node: Node, known: set[object], table: Table) -> NodeParts:
    inputs = tuple(node.all_input_nodes)
    target = node.target
    assert callable(target)

    def call(*values: Any) -> object:
        value_of = dict(zip(inputs, values, strict=True))
        args, kwargs = map_arg((node.args, node.kwargs), value_of.__getitem__)
        return target(*args, **kwargs)

    graph = make_fx(call, decomposition_table=table)(*(value.meta["val"] for value in inputs)).graph
    for inner in graph.nodes:
        if inner.op in ("placeholder", "output"):
            continue
        part = inner.target
        if part is not operator.getitem and part not in known:
            raise NotDecomposable(f"{node.name} contains {part}, which has no translation")
        if _is_operator(part) and not _NEW_SIZE_TAGS.isdisjoint(part.tags):
            raise NotDecomposable(f"{node.name} contains {part}, whose output has a new size or value")
        if _is_operator(part):
            _check_functional(part, f"a part of {node.name}")
    output: Any = graph.output_node().args[0]
    used = [output] if isinstance(output, Node) else [output[_get_index(user)] for user in node.users]
    if not all(isinstance(value, Node) for value in used):
        raise NotDecomposable(f"{node.name} has an output that is not a tensor")
    return NodeParts(node, inputs, graph)


def _get_index(user: Node) -> int:
    if user.target is not operator.getitem or not isinstance(user.args[1], int):
        raise NotDecomposable(f"{user.name} takes several tensors at once")
    return user.args[1]


def _replace_nodes(program: torch.export.ExportedProgram, parts: Sequence[NodeParts]) -> None:
    replacements: dict[Node, Node] = {}

    def replace_node(old: Node, new: Node) -> None:
        replacements[old] = new
        old.replace_all_uses_with(new)
        program.graph_signature.replace_all_uses(old.name, new.name)

    for part in parts:
        placeholders = [inner for inner in part.graph.nodes if inner.op == "placeholder"]
        copies: dict[Node, Node] = {
            placeholder: replacements.get(node, node)
            for placeholder, node in zip(placeholders, part.inputs, strict=True)
        }
        with program.graph.inserting_before(part.node):
            result: Any = program.graph.graph_copy(part.graph, copies)
        shared = {key: value for key, value in part.node.meta.items() if key not in _VALUE_KEYS}
        for inner in part.graph.nodes:
            if inner.op == "call_function":
                copies[inner].meta.update(shared)
        if isinstance(result, Node):
            replace_node(part.node, result)
        else:
            for user in [*part.node.users]:
                replace_node(user, result[_get_index(user)])


def _is_needed(node: Node) -> bool:
    """Return whether an unused node must stay because it has an effect. Arithmetic and random numbers have none."""
    return node.op in ("placeholder", "output") or (_is_operator(node.target) and node.is_impure(impure_random=False))
