"""Decomposes a captured program node by node, where torch.onnx traces all of it anew, twice.

Most of a program is what can be translated as it stands. Only the nodes that cannot be are traced, each alone, by the
same tables, and replaced by what they are made of. What looks beyond one node is left to torch: operators that change
a tensor in place, graphs within the graph, constants and sizes that a decomposition makes.
"""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

Table = Mapping[Any, Callable[..., Any]]

_OWN = ("val", "tensor_meta", "unbacked_bindings")
"""What a node says of its own value; the rest, such as the line it comes from, holds for what it is made of too."""


_NEW_SIZES = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
_log = logging.getLogger(__name__)


class NotDecomposable(Exception):
    """Why a program cannot be decomposed node by node."""


@contextmanager
def by_node() -> Iterator[None]:
    """Within, torch.onnx.export decomposes node by node what can be, in place; otherwise as ever."""
    try:  # private, as is most of what is asked of torch here; seen in 2.9 and 2.13
        passes = import_module("torch.onnx._internal.exporter._fx_passes")
        plain = passes.decompose_with_registry
    except (ImportError, AttributeError):
        yield
        return

    def decompose(program: torch.export.ExportedProgram, registry: Any) -> torch.export.ExportedProgram:
        try:
            parts = _traced(program, registry)
        except Exception as why:  # only time is lost
            _log.debug("decomposed by torch: %s", why)
            whole: torch.export.ExportedProgram = plain(program, registry)
            return whole
        _replace(program, parts)
        program.graph.eliminate_dead_code(_is_needed)
        program.graph_module.recompile()
        return program

    with patch.object(passes, "decompose_with_registry", decompose):
        yield


@contextmanager
def noted_values() -> Iterator[None]:
    """Within, torch.onnx takes from the capture what a node comes to.

    It makes implied casts explicit, and for that computes the whole program once more, in fake tensors. What it changes
    is computed as ever.
    """
    try:  # private; seen in torch 2.9 and 2.13
        passes = import_module("torch.onnx._internal.fx.passes.type_promotion")
        interpreter, rule_of = passes._TypePromotionInterpreter, passes.get_type_promotion_rule
    except (ImportError, AttributeError):
        yield
        return
    plain = interpreter.run_node

    def run_node(self: Any, node: Node) -> Any:
        if node.op != "call_function" or "val" not in node.meta:
            return plain(self, node)
        if rule := rule_of(node, self.type_promotion_table):
            with self._set_current_node(node):
                self._maybe_promote_node(node, rule)
        return node.meta["val"]

    with patch.object(interpreter, "run_node", run_node):
        yield


@dataclass(frozen=True)
class Parts:
    """What one node is made of, as a function of the nodes it was given."""

    node: Node
    given: tuple[Node, ...]
    graph: Graph


def _traced(program: torch.export.ExportedProgram, registry: Any) -> list[Parts]:
    """For each node that cannot stay. Nothing is changed here."""
    known = {*import_module("torch.onnx._internal.exporter._decomp").get_onnx_implemented_overloads(registry)}
    table = {op: how for op, how in torch._decomp.decomposition_table.items() if op not in known and _is_operator(op)}
    nodes = [node for node in program.graph.nodes if _is_made_of_others(node, known, table)]
    if not nodes:
        return []
    preserved = {op: _utils()._special_op_to_preserve_cia for op in known if _is_kept_whole(op)}
    override = import_module("torch.export.exported_program")._override_composite_implicit_decomp
    fake = import_module("torch._guards").detect_fake_mode([node.meta.get("val") for node in program.graph.nodes])
    python = import_module("torch._dispatch.python").enable_python_dispatcher  # asks torch's kernels in Python, too
    with torch.no_grad(), python(), fake, override(preserved):
        return [_parts(node, known, table) for node in nodes]


def _utils() -> Any:
    return import_module("torch._export.utils")


def _is_kept_whole(op: Any) -> bool:
    """A composite operator that torch keeps, since it is known to change nothing and to hand on no view."""
    return _is_operator(op) and bool(_utils()._is_preservable_cia_op(op))


def _is_made_of_others(node: Node, known: set[Any], table: Table) -> bool:
    if node.op in ("placeholder", "output"):
        return False
    target: Any = node.target
    if not _is_operator(target):
        if not _is_arithmetic(target):
            raise NotDecomposable(f"{node.name} is neither an operator nor arithmetic")  # a graph, or what vmap leaves
        return False
    if target is torch.ops.aten.sym_size.int:
        return False
    _check_functional(target, node.name)
    if target._schema.returns and "val" not in node.meta:
        raise NotDecomposable(f"what {node.name} comes to is not known")  # some pass put it there
    if _utils()._is_cia_op(target):
        return target not in known or not _is_kept_whole(target)
    return target in table


def _is_arithmetic(function: Any) -> bool:
    """Of sizes and numbers."""
    name = getattr(function, "__name__", "")
    return function in (operator.getitem, getattr(operator, name, None), getattr(math, name, None)) or (
        name.startswith("sym_") and function is getattr(torch, name, None)
    )


def _check_functional(target: Any, what: str) -> None:
    if target._schema.is_mutable:
        raise NotDecomposable(f"{what} changes a tensor in place")


def _is_operator(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload)


def _parts(node: Node, known: set[Any], table: Table) -> Parts:
    given = tuple(node.all_input_nodes)
    target: Any = node.target

    def call(*values: Any) -> Any:
        here = dict(zip(given, values, strict=True))
        args, kwargs = map_arg((node.args, node.kwargs), here.__getitem__)
        return target(*args, **kwargs)

    graph = make_fx(call, decomposition_table=table)(*(one.meta["val"] for one in given)).graph
    for inner in graph.nodes:
        if inner.op in ("placeholder", "output"):
            continue
        part = inner.target
        if part is not operator.getitem and part not in known:
            raise NotDecomposable(f"{node.name} is made of {part}, among others, which has no translation")
        if _is_operator(part) and not _NEW_SIZES.isdisjoint(part.tags):
            raise NotDecomposable(f"{node.name} is made of {part}, among others, whose size or value is new")
        if _is_operator(part):
            _check_functional(part, f"a part of {node.name}")
    made: Any = graph.output_node().args[0]
    asked = [made] if isinstance(made, Node) else [made[_item(user)] for user in node.users]
    if not all(isinstance(one, Node) for one in asked):
        raise NotDecomposable(f"{node.name} comes to something that is no tensor")
    return Parts(node, given, graph)


def _item(user: Node) -> int:
    if user.target is not operator.getitem or not isinstance(user.args[1], int):
        raise NotDecomposable(f"{user.name} takes several tensors at once")
    return user.args[1]


def _replace(program: torch.export.ExportedProgram, parts: Sequence[Parts]) -> None:
    stand_ins: dict[Node, Node] = {}

    def stand_in(new: Node, old: Node) -> None:
        stand_ins[old] = new
        old.replace_all_uses_with(new)
        program.graph_signature.replace_all_uses(old.name, new.name)

    for one in parts:
        inputs = [inner for inner in one.graph.nodes if inner.op == "placeholder"]
        places: dict[Node, Any] = {i: stand_ins.get(g, g) for i, g in zip(inputs, one.given, strict=True)}
        with program.graph.inserting_before(one.node):
            result: Any = program.graph.graph_copy(one.graph, places)
        about = {key: value for key, value in one.node.meta.items() if key not in _OWN}
        for inner in one.graph.nodes:
            if inner.op == "call_function":
                places[inner].meta.update(about)
        if isinstance(result, Node):
            stand_in(result, one.node)
        else:
            for user in [*one.node.users]:
                stand_in(result[_item(user)], user)


def _is_needed(node: Node) -> bool:
    """Arithmetic has no effect, nor has drawing numbers that nobody reads; otherwise as torch sees it."""
    return node.op in ("placeholder", "output") or (_is_operator(node.target) and node.is_impure(impure_random=False))
