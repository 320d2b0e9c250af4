"""A model as the list of the calls that it makes: what is left when its classes are taken away, and what is cut down.

Tensors, sizes and numbers read from tensors are variables, so that a size stays a size and bounds the loops it bounded;
all else that a call was given is written down as it was.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

BRANCH = "branch "
"""A comparison of sizes or numbers whose outcome Python asked for: `branch gt`."""

STEPS = "range"
"""A size that a Python loop was bounded by."""

OPERATORS: dict[str, tuple[Callable[..., Any], str]] = {
    "add": (operator.add, "+"), "sub": (operator.sub, "-"), "mul": (operator.mul, "*"),
    "floordiv": (operator.floordiv, "//"), "truediv": (operator.truediv, "/"), "mod": (operator.mod, "%"),
    "pow": (operator.pow, "**"),
    "gt": (operator.gt, ">"), "lt": (operator.lt, "<"), "ge": (operator.ge, ">="), "le": (operator.le, "<="),
    "eq": (operator.eq, "=="), "ne": (operator.ne, "!="),
}  # fmt: skip

UNARY: dict[str, tuple[Callable[..., Any], str]] = {
    "neg": (operator.neg, "-{}"), "abs": (abs, "abs({})"), "ceil": (math.ceil, "math.ceil({})"),
    "floor": (math.floor, "math.floor({})"), "trunc": (math.trunc, "math.trunc({})"),
}  # fmt: skip

COMPARES = ("gt", "lt", "ge", "le", "eq", "ne")


@dataclass(frozen=True)
class Ref:
    """A variable, or one element of it: `v3`, `v3[0]`."""

    var: int
    path: tuple[int, ...] = ()


@dataclass(frozen=True)
class Call:
    """One call. `name` is torch's own for a function, or one of ours for arithmetic on sizes."""

    var: int
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    module: str = ""
    """The path of the module that made it."""

    def reads(self) -> set[Ref]:
        return set(refs((self.args, dict(self.kwargs))))


@dataclass(frozen=True)
class Program:
    """Inputs, weights and calls. Values of variables at the example are kept, to make inputs of what is cut off."""

    inputs: tuple[Ref, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Ref, ...]
    seen: Mapping[Ref, Any] = field(repr=False)
    weights: Mapping[Ref, torch.Tensor] = field(repr=False)
    dims: Mapping[int, str] = field(default_factory=dict)
    """Sizes at the example that stand for a dim."""
    others: tuple[Mapping[Ref, Any], ...] = field(default=(), repr=False)
    """Values of the variables at other inputs, where the same calls were made there."""

    @property
    def operators(self) -> int:
        """Calls that compute; sizes and comparisons are none."""
        return sum(call.name.startswith("torch") and "__get__" not in call.name for call in self.calls)

    def only(self, keep: Sequence[Call]) -> Program:
        """Some of the calls. What they need from others becomes an input; what nothing needs any more is left out."""
        made = {call.var for call in keep}
        needed: dict[Ref, None] = {}
        for call in keep:
            needed.update(dict.fromkeys(sorted(call.reads(), key=lambda ref: (ref.var, ref.path))))
        free = [ref for ref in needed if ref.var not in made and ref not in self.weights]
        fixed = {ref: self.seen[ref] for ref in free if not isinstance(self.seen.get(ref), torch.Tensor)}
        calls = tuple(replace(c, args=put(c.args, fixed), kwargs=put(dict(c.kwargs), fixed)) for c in keep)
        used = {ref.var for call in calls for ref in call.reads()}
        ends = [ref for call in calls if call.var not in used for ref in self._tensors(call.var)]
        kept = [ref for ref in self.outputs if ref.var in made]
        outputs = tuple(dict.fromkeys([*kept, *ends])) or tuple(
            ref for call in calls for ref in self._tensors(call.var)
        )[-1:]
        inputs = tuple(ref for ref in free if ref not in fixed)
        weights = {ref: self.weights[ref] for ref in needed if ref in self.weights}
        return replace(self, inputs=inputs, calls=calls, outputs=outputs or inputs[:1], weights=weights)

    def untrained(self) -> Program:
        """With weights that ask for no gradient; some decompositions hang on that."""
        return replace(self, weights={ref: tensor.detach() for ref, tensor in self.weights.items()})

    def undecided(self) -> Program:
        """Without what Python asked for to decide something, which an exporter may not be asked."""
        asked = ("torch.Tensor.__bool__", STEPS)
        return self.only([c for c in self.calls if c.name not in asked and not c.name.startswith(BRANCH)])

    def same_calls(self, other: Program) -> bool:
        """Whether the model went the same way at another input, so that variables mean the same."""
        return [(c.var, c.name) for c in self.calls] == [(c.var, c.name) for c in other.calls]

    def _tensors(self, var: int) -> list[Ref]:
        return [ref for ref, value in self.seen.items() if ref.var == var and isinstance(value, torch.Tensor)]


def refs(tree: Any) -> Iterator[Ref]:
    if isinstance(tree, Ref):
        yield tree
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from refs(item)
    elif isinstance(tree, dict):
        yield from refs(list(tree.values()))
    elif isinstance(tree, slice):
        yield from refs((tree.start, tree.stop, tree.step))


def put(tree: Any, values: Mapping[Ref, Any]) -> Any:
    """The tree with these variables replaced."""
    if isinstance(tree, Ref):
        return values.get(tree, tree)
    if isinstance(tree, slice):
        return slice(*(put(part, values) for part in (tree.start, tree.stop, tree.step)))
    if isinstance(tree, dict):
        return {key: put(value, values) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        made = [put(item, values) for item in tree]
        return made if isinstance(tree, list) else tuple(made)
    return tree


class Replay(torch.nn.Module):
    """A program as a model."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program
        for ref, tensor in program.weights.items():
            if tensor.requires_grad:
                self.register_parameter(f"w{ref.var}", torch.nn.Parameter(tensor))
            else:
                self.register_buffer(f"w{ref.var}", tensor)

    def forward(self, *inputs: torch.Tensor) -> Any:
        known: dict[Ref, Any] = dict(zip(self._program.inputs, inputs, strict=True))
        known |= {ref: getattr(self, f"w{ref.var}") for ref in self._program.weights}
        for call in self._program.calls:
            args, kwargs = _given(call.args, known), _given(dict(call.kwargs), known)
            known[Ref(call.var)] = run_call(call.name, args, kwargs)
        return tuple(_look(ref, known) for ref in self._program.outputs)


def _given(tree: Any, known: Mapping[Ref, Any]) -> Any:
    return put(tree, {ref: _look(ref, known) for ref in refs(tree)})


def _look(ref: Ref, known: Mapping[Ref, Any]) -> Any:
    if ref in known:
        return known[ref]
    value = known[Ref(ref.var)]
    for index in ref.path:
        value = value[index]
    return value


def run_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Does what the call did."""
    if name == STEPS:
        return len(range(args[0]))
    if name.startswith(BRANCH):
        return bool(OPERATORS[name.removeprefix(BRANCH)][0](*args))
    if name in OPERATORS or name in UNARY:
        return (OPERATORS | UNARY)[name][0](*args)
    return function(name)(*args, **kwargs)


def function(name: str) -> Callable[..., Any]:
    """torch's function of that name; a property is one of its tensor."""
    if name.endswith(".__get__"):
        attribute = name.split(".")[-2]
        return lambda tensor: getattr(tensor, attribute)
    found: Any = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]
