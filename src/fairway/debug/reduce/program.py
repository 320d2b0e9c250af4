"""A model as the list of its calls, without its classes. This is what is cut down.

Tensors, sizes and numbers read from tensors are variables, so that a size stays a size and still bounds its loops. All
other arguments of a call are stored as they were.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch

Value: TypeAlias = Any
"""A tensor, number or other object that a call was given or returned, or a tree of these."""

BRANCH_PREFIX = "branch "
"""A comparison of sizes or numbers whose result Python used: `branch gt`."""

LOOP_RANGE = "range"
"""A size that bounded a Python loop."""

NUMBER_QUESTIONS = ("index", "int", "float", "bool", "hash")
"""Conversions that Python asks of a number read from a tensor: `index` to index a list, `hash` a dict."""

OPERATORS: dict[str, tuple[Callable[..., Value], str]] = {
    "add": (operator.add, "+"),
    "sub": (operator.sub, "-"),
    "mul": (operator.mul, "*"),
    "floordiv": (operator.floordiv, "//"),
    "truediv": (operator.truediv, "/"),
    "mod": (operator.mod, "%"),
    "pow": (operator.pow, "**"),
    "gt": (operator.gt, ">"),
    "lt": (operator.lt, "<"),
    "ge": (operator.ge, ">="),
    "le": (operator.le, "<="),
    "eq": (operator.eq, "=="),
    "ne": (operator.ne, "!="),
}

UNARY: dict[str, tuple[Callable[..., Value], str]] = {
    "neg": (operator.neg, "-{}"),
    "abs": (abs, "abs({})"),
    "ceil": (math.ceil, "math.ceil({})"),
    "floor": (math.floor, "math.floor({})"),
    "trunc": (math.trunc, "math.trunc({})"),
}

TENSOR_QUESTIONS = tuple(f"torch.Tensor.__{name}__" for name in ("bool", "int", "float", "index"))
"""The same conversions of a tensor itself."""

COMPARISONS = ("gt", "lt", "ge", "le", "eq", "ne")


@dataclass(frozen=True)
class Ref:
    """A variable, or one element of it: `v3`, `v3[0]`."""

    var: int
    path: tuple[int, ...] = ()

    @property
    def weight(self) -> str:
        """Its name if it is a weight of the model."""
        return "_".join(map(str, (f"w{self.var}", *self.path)))


@dataclass(frozen=True)
class ProgramCall:
    """One call. `name` is torch's own for a function, or one of ours for arithmetic on sizes."""

    var: int
    name: str
    args: tuple[Value, ...]
    kwargs: Mapping[str, Value]
    module: str = ""
    """The path of the module that made it."""
    source: tuple[tuple[str, int], ...] = ()
    """The lines of code that made it, from the innermost outwards: file and number."""

    @property
    def is_operator(self) -> bool:
        """Tells whether it is an operator. Reading a size or computing with sizes is not."""
        return self.name.startswith("torch") and "__get__" not in self.name

    @property
    def is_decision(self) -> bool:
        """Tells whether Python asked for a size or value and might take another branch for another one."""
        return self.name in (LOOP_RANGE, *NUMBER_QUESTIONS, *TENSOR_QUESTIONS) or self.name.startswith(BRANCH_PREFIX)

    def list_refs(self) -> set[Ref]:
        return set(iterate_refs((self.args, dict(self.kwargs))))


@dataclass(frozen=True)
class Program:
    """Inputs, weights and calls. Values at the example are kept, to make inputs of variables that are cut off."""

    inputs: tuple[Ref, ...]
    calls: tuple[ProgramCall, ...]
    outputs: tuple[Ref, ...]
    seen: Mapping[Ref, Value] = field(repr=False)
    weights: Mapping[Ref, torch.Tensor] = field(repr=False)
    dims: Mapping[int, str] = field(default_factory=dict)
    """Sizes at the example that belong to a dim."""
    others: tuple[Mapping[Ref, Value], ...] = field(default=(), repr=False)
    """Values of the variables at other inputs with the same calls."""
    held: bool = False
    """If true, a variable that is cut off becomes a weight with a gradient, not an input without one."""
    opened: Mapping[Ref, frozenset[int]] = field(default_factory=dict, repr=False)
    """Axes that have other sizes at other inputs: computed from a dim, even if the size is not one."""
    varied: frozenset[int] = frozenset()
    """Sizes of dims that differ at other inputs. An axis that has such a size and keeps it does not belong to a dim."""

    @property
    def operators(self) -> int:
        """The number of calls that compute."""
        return sum(call.is_operator for call in self.calls)

    def keep_calls(self, keep: Sequence[ProgramCall]) -> Program:
        """Keep some of the calls. Values they need from others become inputs; calls that nothing needs are dropped."""
        variables = {call.var for call in keep}
        needed: dict[Ref, None] = {}
        for call in keep:
            needed.update(dict.fromkeys(sorted(call.list_refs(), key=lambda ref: (ref.var, ref.path))))
        external = [ref for ref in needed if ref.var not in variables and ref not in self.weights]
        constants = {ref: self.seen[ref] for ref in external if not isinstance(self.seen.get(ref), torch.Tensor)}
        calls = tuple(
            replace(c, args=substitute(c.args, constants), kwargs=substitute(dict(c.kwargs), constants)) for c in keep
        )
        used = {ref.var for call in calls for ref in call.list_refs()}
        loose_ends = [ref for call in calls if call.var not in used for ref in self._list_tensors(call.var)]
        kept = [ref for ref in self.outputs if ref.var in variables]
        outputs = (
            tuple(dict.fromkeys([*kept, *loose_ends]))
            or tuple(ref for call in calls for ref in self._list_tensors(call.var))[-1:]
        )
        inputs = tuple(ref for ref in external if ref not in constants)
        weights = {ref: self.weights[ref] for ref in needed if ref in self.weights}
        if self.held:
            floats = [ref for ref in inputs if self.seen[ref].is_floating_point()]
            weights |= {ref: self.seen[ref].clone().requires_grad_() for ref in floats}
            inputs = tuple(ref for ref in inputs if ref not in weights)
        return replace(self, inputs=inputs, calls=calls, outputs=outputs or inputs[:1], weights=weights)

    def cut_to(self, keep: Sequence[ProgramCall]) -> Program:
        """Keep some of the calls, and enough calls before them that no input is undeclarable."""
        kept = {call.var for call in keep}
        mine = {call.var for call in self.calls}
        while True:
            part = self.keep_calls([call for call in self.calls if call.var in kept])
            more = {ref.var for ref in part.list_undeclarable_inputs()} & mine - kept
            if not more:
                return part
            kept |= more

    def list_undeclarable_inputs(self) -> list[Ref]:
        """List inputs that were cut off at an open size that is one at the example.

        dynamo treats a size of one as fixed and refuses to have it declared open. That is a different failure from any
        failure of a computed size.
        """
        sizes = {ref: {self.seen[ref].shape[axis] for axis in self.list_open_axes(ref)} for ref in self.inputs}
        return [ref for ref, values in sizes.items() if {0, 1} & values - self.dims.keys()]

    def without_gradients(self) -> Program:
        """Make weights need no gradient; some decompositions depend on it."""
        return replace(self, weights={ref: tensor.detach() for ref, tensor in self.weights.items()})

    def with_fixed_sizes(self) -> Program:
        """Fix all sizes, and try only the example."""
        return replace(self, dims={}, others=())

    def with_held_gradients(self) -> Program:
        """Make variables that are cut off weights.

        After trained weights every value needs a gradient, and decompositions of attention depend on that. An input of
        an exported model needs none.
        """
        return replace(self.with_fixed_sizes(), held=True).keep_calls(self.calls)

    def without_decisions(self) -> Program:
        """Remove the questions behind Python's decisions; an exporter may not see them."""
        return self.keep_calls([c for c in self.calls if not c.is_decision])

    def with_forced_decisions(self) -> Program:
        """Force each number that Python converted by `int` or `float`.

        Later uses of such a number are not recorded, and an exporter that first leaves it open refuses it only there.
        """
        last_variable = max((call.var for call in self.calls), default=0)
        calls: list[ProgramCall] = []
        for call in self.calls:
            calls.append(call)
            question = {"int": "index", "float": "bool"}.get(call.name.removeprefix("torch.Tensor.").strip("_"))
            if question:
                last_variable += 1
                calls.append(replace(call, var=last_variable, name=question, args=(Ref(call.var),)))
        return replace(self, calls=tuple(calls))

    def with_other_inputs(self, others: Sequence[Mapping[Ref, Value]]) -> Program:
        """Add values at other inputs. They show which axes of variables must stay open."""
        opened = {
            ref: frozenset(axis for table in others for axis in _list_differing_axes(value, table.get(ref)))
            for ref, value in self.seen.items()
            if isinstance(value, torch.Tensor)
        }
        opened = {ref: axes for ref, axes in opened.items() if axes}
        varied = frozenset(self.seen[ref].shape[axis] for ref in self.inputs for axis in opened.get(ref, ()))
        return replace(self, others=tuple(others), opened=opened, varied=varied)

    def list_open_axes(self, ref: Ref) -> list[int]:
        """List the axes of a tensor whose size belongs to a dim or depends on one."""
        opened = self.opened.get(ref, frozenset())
        loose = self.dims.keys() - self.varied
        return [axis for axis, n in enumerate(self.seen[ref].shape) if self.dims and (axis in opened or n in loose)]

    def has_same_calls(self, other: Program) -> bool:
        """Return whether the model took the same branches at another input, so that variables mean the same.

        It made the same calls, and Python got the same answers, which may be arguments of later calls.
        """
        return self._list_decisions() == other._list_decisions()

    def _list_decisions(self) -> list[Value]:
        return [(c.var, c.name, self.seen.get(Ref(c.var)) if c.is_decision else None) for c in self.calls]

    def _list_tensors(self, var: int) -> list[Ref]:
        return [ref for ref, value in self.seen.items() if ref.var == var and isinstance(value, torch.Tensor)]


def _list_differing_axes(tensor: torch.Tensor, other: Value) -> list[int]:
    if not isinstance(other, torch.Tensor) or tensor.dim() != other.dim():
        return []
    return [axis for axis, n in enumerate(tensor.shape) if other.shape[axis] != n]


def iterate_refs(tree: Value) -> Iterator[Ref]:
    return (leaf for leaf in iterate_leaves(tree) if isinstance(leaf, Ref))


def iterate_leaves(tree: Value) -> Iterator[Value]:
    """Yield the arguments of a call, out of its lists, dicts and slices."""
    if isinstance(tree, list | tuple):
        for item in tree:
            yield from iterate_leaves(item)
    elif isinstance(tree, dict):
        yield from iterate_leaves(list(tree.values()))
    elif isinstance(tree, slice):
        yield from iterate_leaves((tree.start, tree.stop, tree.step))
    else:
        yield tree


def substitute(tree: Value, values: Mapping[Ref, Value]) -> Value:
    """Return the tree with these variables replaced."""
    if isinstance(tree, Ref):
        return values.get(tree, tree)
    if isinstance(tree, slice):
        return slice(*(substitute(part, values) for part in (tree.start, tree.stop, tree.step)))
    if isinstance(tree, dict):
        return {key: substitute(value, values) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        items = [substitute(item, values) for item in tree]
        return items if isinstance(tree, list) else tuple(items)
    return tree
