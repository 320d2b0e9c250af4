"""Inputs in any of the forms people write: spec lines, example tensors, or a function that makes them."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fairway.diagnostics import Where
from fairway.diagnostics.errors import complain
from fairway.model.declare import declare, read_annotations
from fairway.model.dims import Point, build_domain
from fairway.model.example import choose_example, read_sizes
from fairway.model.ranges import ValueRange, draw_inputs, first_range
from fairway.model.source import user_frame
from fairway.model.spec import TensorSpec, parse_input
from fairway.model.tree import Slot, TreeLeaf, flatten, template
from fairway.model.values import FLAVOURS, Flavour

Maker = Callable[[Point, int, Flavour, Sequence[ValueRange]], list[torch.Tensor]]
"""Legal input tensors at a point, in the spec's order, by seed and flavour, drawn from one range of values each."""


@dataclass(frozen=True)
class Plan:
    """What was read of the inputs: the spec, the call's template, how to make tensors, and what came along."""

    spec: tuple[TensorSpec, ...]
    shape: Any
    make: Maker
    flavours: tuple[Flavour, ...]
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    """The example tensors' own sizes."""
    ranges: tuple[ValueRange, ...] = ()
    """What each input is drawn from; empty if a function makes the inputs."""
    is_call: bool = False
    """Whether the structure is that of a call the user wrote, rather than that of spec lines."""


def is_spec_list(inputs: Any) -> bool:
    return isinstance(inputs, list) and bool(inputs) and all(isinstance(i, str | TensorSpec) for i in inputs)


def from_lines(model: torch.nn.Module, lines: list[str | TensorSpec]) -> Plan:
    spec = tuple(parse_input(line) if isinstance(line, str) else line for line in lines)
    everything = inspect.signature(model.forward).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in everything.values())
    takes_more = any(p.kind is p.VAR_POSITIONAL for p in everything.values())
    parameters = {n: p for n, p in everything.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    kwargs: dict[str, Any] = {}
    args: list[Any] = []
    for index, item in enumerate(spec):
        top, *rest = item.name.split(".")
        _refuse_clash(item.name, [s.name for s in spec[:index]])
        if top not in parameters and not takes_any:
            if takes_more and not rest:
                args.append(Slot(index))
                continue
            raise complain("FW002", f"{item.name!r}; forward takes: {', '.join(everything) or 'nothing'}")
        _place(kwargs, [top, *rest], Slot(index))
    missing = [n for n, p in parameters.items() if p.default is p.empty and n not in kwargs]
    if missing:
        todo = (f"Declare it too: --input '{missing[0]}: float32[batch, 3]'.",)
        raise complain("FW002", f"forward also needs {', '.join(missing)}, which the spec does not declare", todo=todo)
    _check_lengths(spec)
    # What cannot be given by name goes first, in forward's order.
    by_place = [
        n
        for n, p in parameters.items()
        if n in kwargs and (p.kind is p.POSITIONAL_ONLY or (args and p.kind is p.POSITIONAL_OR_KEYWORD))
    ]
    shape = _lists(kwargs)
    first = [shape.pop(n) for n in by_place]

    def make(point: Point, seed: int, flavour: Flavour, ranges: Sequence[ValueRange]) -> list[torch.Tensor]:
        return draw_inputs(spec, ranges, [None] * len(spec), point, seed, flavour)

    return Plan(spec, ((*first, *args), shape), make, FLAVOURS, ranges=tuple(map(first_range, spec)))


def _refuse_clash(name: str, earlier: Sequence[str]) -> None:
    for other in earlier:
        if other == name:
            raise complain("FW011", f"the input {name!r} is declared twice")
        short, long = sorted((name, other), key=len)
        if long.startswith(f"{short}."):
            raise complain("FW011", f"{short!r} and {long!r} are both declared; {short!r} is a tensor or holds some")


def _check_lengths(spec: Sequence[TensorSpec]) -> None:
    dims = dict.fromkeys(n for item in spec for n in item.dims)
    for item in spec:
        for name in item.values.lengths.names if item.values.lengths else ():
            if name not in dims:
                known = ", ".join(dims) or "none"
                raise complain("FW005", f"{item.name}{item.values}: {name!r} is not a dim; the dims are: {known}")


def _place(tree: dict[str, Any], path: list[str], leaf: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = leaf


def _lists(tree: Any) -> Any:
    """Levels whose keys are 0, 1, 2… become lists."""
    if type(tree) is not dict:
        return tree
    items = {key: _lists(item) for key, item in tree.items()}
    places = [str(i) for i in range(len(items))]
    if items and set(items) == set(places):
        return [items[place] for place in places]
    return items


def _as_call(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        if len(inputs) == 2 and isinstance(inputs[0], tuple | list) and isinstance(inputs[1], Mapping):
            return tuple(inputs[0]), dict(inputs[1])
        return tuple(inputs), {}
    raise complain("FW015", f"inputs is of type {type(inputs).__name__}: {inputs!r:.80}")


def _bind(model: torch.nn.Module, inputs: Any) -> tuple[Any, dict[str, Any]]:
    """The call, and its arguments by the names of forward's parameters."""
    args, kwargs = _as_call(inputs)
    signature = inspect.signature(model.forward)
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise complain("FW015", f"forward{signature} cannot be called with these inputs: {error}") from error
    named: dict[str, Any] = {}
    for name, value in bound.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            named.update({f"{name}_{i}": item for i, item in enumerate(value)})
        else:
            named[name] = value
    return (args, kwargs), named


def _leaves(named: Mapping[str, Any]) -> list[TreeLeaf]:
    leaves = flatten(named)
    for leaf in leaves:
        if isinstance(leaf.value, np.ndarray):
            todo = ("Give torch tensors: torch.from_numpy(array).",)
            raise complain("FW015", f"the input {leaf.name!r} is a numpy array", todo=todo)
    return [leaf for leaf in leaves if isinstance(leaf.value, torch.Tensor)]


def _reader(
    model: torch.nn.Module, inputs: Any, dims: Any
) -> tuple[tuple[TensorSpec, ...], Any, dict[str, tuple[int, int]], dict[str, int], list[torch.Tensor]]:
    call, named = _bind(model, inputs)
    leaves = _leaves(named)
    for leaf in leaves:
        if leaf.value.device.type == "meta":
            raise complain("FW012", f"the input {leaf.name!r} is on the meta device")
    if dims is None:
        given = {leaf.name for leaf in leaves}
        dims = {name: shape for name, shape in read_annotations(model.forward).items() if name in given}
    declared = declare(dims, leaves, list(named))
    spec = tuple(
        TensorSpec(leaf.name, str(leaf.value.dtype).removeprefix("torch."), declared.shapes[leaf.name])
        for leaf in leaves
    )
    tensors = [leaf.value for leaf in leaves]
    args, kwargs = call
    # Keyword arguments in forward's order, which is the order of `leaves`, whatever order the caller used.
    shape = template((args, {name: kwargs[name] for name in named if name in kwargs}))
    return spec, shape, declared.bounds, read_sizes(spec, tensors), tensors


def from_examples(model: torch.nn.Module, inputs: Any, dims: Any) -> Plan:
    spec, shape, bounds, seen, tensors = _reader(model, inputs, dims)

    examples = [tensor.detach() for tensor in tensors]

    def make(point: Point, seed: int, flavour: Flavour, ranges: Sequence[ValueRange]) -> list[torch.Tensor]:
        if seed <= 1 and all(point.get(k) == v for k, v in seen.items()) and flavour == "normal":
            return [tensor.clone() for tensor in examples]
        return draw_inputs(spec, ranges, examples, point, seed, flavour)

    ranges = tuple(first_range(s, t) for s, t in zip(spec, examples, strict=True))
    return Plan(spec, shape, make, FLAVOURS, bounds, seen, ranges, is_call=True)


def from_function(
    model: torch.nn.Module,
    function: Callable[..., Any],
    dims: Any,
    bounds: dict[str, tuple[int, int]],
    multiples: dict[str, int],
    example: dict[str, int],
) -> Plan:
    """The function is asked once, at small sizes, for the structure; the dims come from `dims` and the bounds."""
    names = list(dict.fromkeys([*bounds, *multiples, *example]))
    _refuse_unbounded(name for name in _required(function) if name not in names)
    probe = build_domain(names, bounds, multiples)
    point = choose_example(probe, (), example)
    spec, shape, own, _, tensors = _reader(model, _asked(function, point, 0), dims)
    _refuse_unbounded(n for n in dict.fromkeys(n for s in spec for n in s.dims) if n not in names)
    _check_made(spec, tensors, point, 0)

    def make(point: Point, seed: int, flavour: Flavour, ranges: Sequence[ValueRange]) -> list[torch.Tensor]:
        _, named = _bind(model, _asked(function, point, seed))
        tensors = [leaf.value for leaf in _leaves(named)]
        _check_made(spec, tensors, point, seed)
        return tensors

    return Plan(spec, shape, make, ("normal",), own, is_call=True)


def _required(function: Callable[..., Any]) -> list[str]:
    """The dims that the function cannot be called without: its parameters after the seed."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[1:]
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def _refuse_unbounded(names: Iterable[str]) -> None:
    lacking = ", ".join(names)
    if lacking:
        raise complain(
            "FW015",
            f"the inputs function needs bounds for each dim it takes; {lacking} has none",
            todo=("Give them: bounds={'name': (low, high)}, or --dim name=low..high.",),
        )


def _check_made(spec: Sequence[TensorSpec], tensors: Sequence[torch.Tensor], point: Point, seed: int) -> None:
    """A function that answers with other sizes than asked would have the same few sizes tested over and over."""
    asked = _question(seed, point)
    todo = ("Make the inputs function answer with the sizes it is asked for.",)
    if len(tensors) != len(spec):
        raise complain("FW003", f"{asked} gave {len(tensors)} tensors, before it gave {len(spec)}", todo=todo)
    for item, tensor in zip(spec, tensors, strict=True):
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype != item.dtype or tuple(tensor.shape) != item.sizes(point):
            wanted = f"{item.dtype}{list(item.sizes(point))}"
            seen = f"{asked} gave {item.name} as {dtype}{list(tensor.shape)}, not {wanted}"
            raise complain("FW003", seen, todo=todo)


def _question(seed: int, point: Point) -> str:
    return f"inputs({', '.join([str(seed), *(f'{k}={v}' for k, v in point.items())])})"


def _asked(function: Callable[..., Any], point: Point, seed: int) -> Any:
    torch.manual_seed(seed)
    try:
        return function(seed, **point)
    except Exception as error:
        frames = [
            Where(file=f.filename, line=f.lineno, function=f.name, source=f.line)
            for f in traceback.extract_tb(error.__traceback__)
        ]
        raise complain(
            "FW015",
            f"{_question(seed, point)} raised {type(error).__name__}: {error}",
            where=user_frame(frames),
            todo=("Fix the function: it must take any sizes within the bounds.",),
        ) from error
