"""Find random operators in the file of a model that is not random."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir.passes.common import InlinePass

from fairway.diagnostics import Code, Finding, Where
from fairway.judge.differential import locate_node
from fairway.judge.judge import Runner
from fairway.judge.runtimes.eager import run_eager, to_array
from fairway.judge.runtimes.items import Item, Items, NamedItems, Operator
from fairway.judge.runtimes.operator_watch import OperatorWatch
from fairway.judge.runtimes.wide_operators import RANDOM_OPERATORS
from fairway.model.source import find_running_line
from fairway.model.subject import Subject

RANDOM_NODES = frozenset(
    {
        "RandomNormal",
        "RandomUniform",
        "RandomNormalLike",
        "RandomUniformLike",
        "Bernoulli",
        "Multinomial",
    }
)
DROPOUT_NODES = frozenset({"Dropout", "BiasDropout", "BitmaskDropout"})

REPEATED_RUNS = 4
"""The file is run this many times on the same input, to see if its outputs change."""


def find_randomness(subject: Subject, model: ir.Model, run: Runner) -> list[Finding]:
    """Return a finding for random nodes that reach an output, if PyTorch's outputs are not random.

    The finding is a warning if PyTorch draws random numbers too and no outputs change on either side.
    """
    nodes = list(find_random_nodes(model))
    if not nodes or subject.study.random is not None:  # a model that is random at some inputs is reported as such
        return []
    tensors = subject.make(subject.example, 1, "normal")
    with _DrawRecorder() as draws:
        first = [to_array(tensor) for tensor in run_eager(subject, tensors)]
    second = [to_array(tensor) for tensor in run_eager(subject, tensors)]
    if not _is_same(first, second):
        return []  # the model is random itself, which preflight reports
    changes = _is_changing(run, subject.input_names, tensors)
    what = "its outputs change between runs on the same input" if changes else "no change between runs was seen"
    place = locate_node(nodes[0])
    more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    grade = "warning" if draws.any and not changes else ""
    return [
        Finding(Code.RANDOM_OPERATOR, f"node {place.node}{more} draws random numbers; {what}", where=place, grade=grade)
    ]


def find_random_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield the nodes that draw random numbers and reach an output, also inside subgraphs and functions.

    Functions of a model that may have such nodes are inlined.
    """
    functions = [node for function in model.functions.values() for node in function.all_nodes()]
    if not any(_is_possibly_random(node) for node in [*model.graph.all_nodes(), *functions]):
        return
    InlinePass()(model)
    yield from (node for node in _list_ancestors(model.graph.outputs) if _is_random(node))


def _is_possibly_random(node: ir.Node) -> bool:
    return node.op_type in RANDOM_NODES or node.op_type in DROPOUT_NODES


def _is_random(node: ir.Node) -> bool:
    if node.op_type in DROPOUT_NODES:
        return _is_training(node) and _get_constant(node, -2) != 0
    return node.op_type in RANDOM_NODES


def _is_training(node: ir.Node) -> bool:
    """Return whether a dropout node drops elements: by an attribute before opset 7, by the last input from 12 on."""
    test_mode = node.attributes.get("is_test")
    if test_mode is not None:
        return test_mode.as_int() == 0
    return len(node.inputs) >= 3 and bool(_get_constant(node, -1))


def _get_constant(node: ir.Node, place: int) -> Item:
    """Return the constant number of an input, or None if it is computed or left out."""
    value = node.inputs[place] if len(node.inputs) >= 3 else None
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None or tensor.size != 1 else tensor.numpy().reshape(-1)[0].item()


def _list_ancestors(outputs: Iterable[ir.Value]) -> Iterator[ir.Node]:
    """Yield each node on which the outputs depend. A node depends on what the subgraphs inside it use."""
    seen: set[int] = set()
    left = [value for value in outputs if value is not None]
    while left:
        node = left.pop().producer()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        left += [value for value in node.inputs if value is not None]
        for graph in _list_subgraphs(node):
            left += list(graph.outputs)


def _list_subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def get_generator_states() -> tuple[object, ...]:
    """Return the states of the generators from which a model may draw. They change with every draw."""
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), np.random.get_state(legacy=False)["state"]["pos"]


def find_draw(subject: Subject, tensors: Sequence[torch.Tensor]) -> tuple[bool, Where | None]:
    """Return whether two runs from different random states differ, and the user's line that draws first."""
    answers = []
    with _DrawRecorder() as draws:
        for seed in (12, 11):
            torch.manual_seed(seed)
            answers.append([to_array(tensor) for tensor in run_eager(subject, tensors)])
    if draws.any and _is_same(*answers):
        for is_high in (False, True):
            with _ExtremeDraws(is_high):
                answers.append([to_array(tensor) for tensor in run_eager(subject, tensors)])
    return not all(_is_same(answers[0], other) for other in answers[1:]), draws.where


LARGE_NORMAL = 4.0
"""A normal number is larger about once in 16,000 draws."""
ALMOST_ONE = 1 - 1e-6


class _ExtremeDraws(OperatorWatch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Replaces random numbers by rare ones at one end, so that what one draw in a thousand changes is seen."""

    def __init__(self, is_high: bool) -> None:
        super().__init__()
        self._is_high = is_high

    def watch(self, func: Operator, args: Items, kwargs: NamedItems) -> Item:
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if not isinstance(result, torch.Tensor) or result.dtype.is_complex:
            return result
        if name in ("rand", "rand_like") or (name == "uniform_" and len(args) == 1):
            result.fill_(ALMOST_ONE if self._is_high else 0.0)
        elif name in ("randn", "randn_like"):
            result.fill_(LARGE_NORMAL if self._is_high else -LARGE_NORMAL)
        elif name == "randperm":
            result.copy_(torch.arange(len(result)).flip(0) if self._is_high else torch.arange(len(result)))
        return result


class _DrawRecorder(OperatorWatch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Records if PyTorch draws random numbers, and the line of the first draw."""

    def __init__(self) -> None:
        super().__init__()
        self.any = False
        self.where: Where | None = None

    def watch(self, func: Operator, args: Items, kwargs: NamedItems) -> Item:
        name = func.overloadpacket.__name__.removesuffix("_")
        if not self.any and (name in RANDOM_OPERATORS or name == "native_dropout"):
            self.any, self.where = True, find_running_line()
        return func(*args, **kwargs)


def _is_changing(run: Runner, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> bool:
    try:
        answers = [run(names, tensors) for _ in range(REPEATED_RUNS)]
    except Exception:  # a file that does not run is reported elsewhere
        return False
    return any(not _is_same(answers[0], other) for other in answers[1:])


def _is_same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    if [a.shape for a in first] != [b.shape for b in second]:
        return False
    pairs = zip(first, second, strict=True)
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc") for a, b in pairs)
