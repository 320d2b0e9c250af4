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

TAKEN = ("index", "int", "float", "bool", "hash")
"""What Python asks a number for that was read from a tensor: `index` to pick out of a list, `hash` out of a dict."""

OPERATORS: dict[str, tuple[Callable[..., Any], str]] = {
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

UNARY: dict[str, tuple[Callable[..., Any], str]] = {
    "neg": (operator.neg, "-{}"),
    "abs": (abs, "abs({})"),
    "ceil": (math.ceil, "math.ceil({})"),
    "floor": (math.floor, "math.floor({})"),
    "trunc": (math.trunc, "math.trunc({})"),
}

ASKED = tuple(f"torch.Tensor.__{name}__" for name in ("bool", "int", "float", "index"))
"""The same asked of a tensor itself."""

COMPARES = ("gt", "lt", "ge", "le", "eq", "ne")


@dataclass(frozen=True)
class Ref:
    """A variable, or one element of it: `v3`, `v3[0]`."""

    var: int
    path: tuple[int, ...] = ()

    @property
    def weight(self) -> str:
        """Its name where it is a weight of the model."""
        return "_".join(map(str, (f"w{self.var}", *self.path)))


@dataclass(frozen=True)
class ProgramCall:
    """One call. `name` is torch's own for a function, or one of ours for arithmetic on sizes."""

    var: int
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    module: str = ""
    """The path of the module that made it."""
    source: tuple[tuple[str, int], ...] = ()
    """The lines of code that made it, from the innermost outwards: file and number."""

    @property
    def computes(self) -> bool:
        """Whether it is an operator; what reads a size, or reckons with it, is none."""
        return self.name.startswith("torch") and "__get__" not in self.name

    @property
    def decides(self) -> bool:
        """Whether Python asked for a size or a value and may have gone another way for another."""
        return self.name in (STEPS, *TAKEN, *ASKED) or self.name.startswith(BRANCH)

    def reads(self) -> set[Ref]:
        return set(refs((self.args, dict(self.kwargs))))


@dataclass(frozen=True)
class Program:
    """Inputs, weights and calls. Values of variables at the example are kept, to make inputs of what is cut off."""

    inputs: tuple[Ref, ...]
    calls: tuple[ProgramCall, ...]
    outputs: tuple[Ref, ...]
    seen: Mapping[Ref, Any] = field(repr=False)
    weights: Mapping[Ref, torch.Tensor] = field(repr=False)
    dims: Mapping[int, str] = field(default_factory=dict)
    """Sizes at the example that stand for a dim."""
    others: tuple[Mapping[Ref, Any], ...] = field(default=(), repr=False)
    """Values of the variables at other inputs, where the same calls were made there."""
    held: bool = False
    """Whether what is cut off becomes a weight that asks for a gradient, in place of an input that asks for none."""
    opened: Mapping[Ref, frozenset[int]] = field(default_factory=dict, repr=False)
    """Axes that were seen to have another size at other inputs: computed from a dim, if not one."""
    varied: frozenset[int] = frozenset()
    """Sizes of dims that had another at other inputs. An axis that has such a size and kept it is no dim's."""

    @property
    def operators(self) -> int:
        """Calls that compute; sizes and comparisons are none."""
        return sum(call.computes for call in self.calls)

    def only(self, keep: Sequence[ProgramCall]) -> Program:
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
        outputs = (
            tuple(dict.fromkeys([*kept, *ends])) or tuple(ref for call in calls for ref in self._tensors(call.var))[-1:]
        )
        inputs = tuple(ref for ref in free if ref not in fixed)
        weights = {ref: self.weights[ref] for ref in needed if ref in self.weights}
        if self.held:
            floats = [ref for ref in inputs if self.seen[ref].is_floating_point()]
            weights |= {ref: self.seen[ref].clone().requires_grad_() for ref in floats}
            inputs = tuple(ref for ref in inputs if ref not in weights)
        return replace(self, inputs=inputs, calls=calls, outputs=outputs or inputs[:1], weights=weights)

    def part(self, keep: Sequence[ProgramCall]) -> Program:
        """Some of the calls, with as many before them as it takes to cut off nothing that is `unsaid`."""
        kept = {call.var for call in keep}
        mine = {call.var for call in self.calls}
        while True:
            part = self.only([call for call in self.calls if call.var in kept])
            more = {ref.var for ref in part.unsaid()} & mine - kept
            if not more:
                return part
            kept |= more

    def unsaid(self) -> list[Ref]:
        """Inputs that were cut off where a size is open but happens to be one at the example. dynamo takes a one for
        fixed: it refuses to have it declared open, which is another failure than any that comes of a computed one."""
        sizes = {ref: {self.seen[ref].shape[axis] for axis in self.open_axes(ref)} for ref in self.inputs}
        return [ref for ref, found in sizes.items() if {0, 1} & found - self.dims.keys()]

    def untrained(self) -> Program:
        """With weights that ask for no gradient; some decompositions hang on that."""
        return replace(self, weights={ref: tensor.detach() for ref, tensor in self.weights.items()})

    def closed(self) -> Program:
        """With all sizes fixed, and tried at the example alone."""
        return replace(self, dims={}, others=())

    def held_back(self) -> Program:
        """With weights for what was cut off. Behind trained weights all asks for a gradient, and decompositions of
        attention hang on that; an input of a model that is exported asks for none."""
        return replace(self.closed(), held=True).only(self.calls)

    def undecided(self) -> Program:
        """Without what Python asked for to decide something, which an exporter may not be asked."""
        return self.only([c for c in self.calls if not c.decides])

    def pressed(self) -> Program:
        """With each number that Python took by `int` or `float` asked for outright. What it did with that is not seen,
        and an exporter that leaves the number open at first refuses it only there."""
        new = max((call.var for call in self.calls), default=0)
        calls: list[ProgramCall] = []
        for call in self.calls:
            calls.append(call)
            asked = {"int": "index", "float": "bool"}.get(call.name.removeprefix("torch.Tensor.").strip("_"))
            if asked:
                new += 1
                calls.append(replace(call, var=new, name=asked, args=(Ref(call.var),)))
        return replace(self, calls=tuple(calls))

    def compared(self, others: Sequence[Mapping[Ref, Any]]) -> Program:
        """With what was seen at other inputs. Of what is cut off later, this tells which axes have to stay open."""
        opened = {
            ref: frozenset(axis for table in others for axis in _differing(value, table.get(ref)))
            for ref, value in self.seen.items()
            if isinstance(value, torch.Tensor)
        }
        opened = {ref: axes for ref, axes in opened.items() if axes}
        varied = frozenset(self.seen[ref].shape[axis] for ref in self.inputs for axis in opened.get(ref, ()))
        return replace(self, others=tuple(others), opened=opened, varied=varied)

    def open_axes(self, ref: Ref) -> list[int]:
        """Of a tensor: those of a size which stands for a dim, or that was seen to hang on one."""
        opened = self.opened.get(ref, frozenset())
        loose = self.dims.keys() - self.varied
        return [axis for axis, n in enumerate(self.seen[ref].shape) if self.dims and (axis in opened or n in loose)]

    def same_calls(self, other: Program) -> bool:
        """Whether the model went the same way at another input, so that variables mean the same: it made the same
        calls, and Python was given the same answers, which it may have written into them."""
        return self._way() == other._way()

    def _way(self) -> list[Any]:
        return [(c.var, c.name, self.seen.get(Ref(c.var)) if c.decides else None) for c in self.calls]

    def _tensors(self, var: int) -> list[Ref]:
        return [ref for ref, value in self.seen.items() if ref.var == var and isinstance(value, torch.Tensor)]


def _differing(one: torch.Tensor, other: Any) -> list[int]:
    if not isinstance(other, torch.Tensor) or one.dim() != other.dim():
        return []
    return [axis for axis, n in enumerate(one.shape) if other.shape[axis] != n]


def refs(tree: Any) -> Iterator[Ref]:
    return (leaf for leaf in leaves(tree) if isinstance(leaf, Ref))


def leaves(tree: Any) -> Iterator[Any]:
    """What a call was given, out of its lists, dicts and slices."""
    if isinstance(tree, list | tuple):
        for item in tree:
            yield from leaves(item)
    elif isinstance(tree, dict):
        yield from leaves(list(tree.values()))
    elif isinstance(tree, slice):
        yield from leaves((tree.start, tree.stop, tree.step))
    else:
        yield tree


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
