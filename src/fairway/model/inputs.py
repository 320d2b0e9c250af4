"""Reads the user's inputs in any of their forms: spec lines, example tensors, or a function that makes them."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from fairway.diagnostics import Code, Where
from fairway.diagnostics.errors import complain
from fairway.model.declare import read_annotations, read_dims
from fairway.model.dims import Point, build_domain
from fairway.model.example import choose_example, read_sizes
from fairway.model.placement import check_inputs
from fairway.model.ranges import ValueRange, choose_range, draw_inputs
from fairway.model.signatures import read_forward_signature
from fairway.model.source import find_user_frame
from fairway.model.spec import TensorSpec, parse_input
from fairway.model.tree import Slot, Tree, TreeLeaf, flatten, make_template
from fairway.model.user_types import InputsFunction, UserDims, UserInputs
from fairway.model.values import FLAVORS, Flavor

InputMaker = Callable[[Point, int, Flavor, Sequence[ValueRange]], list[torch.Tensor]]
"""Makes legal input tensors at a point, in the spec's order, by seed and flavor, each from its range of values."""


@dataclass(frozen=True)
class InputPlan:
    """The inputs as they were read: the spec, the call's template, and the function that makes tensors."""

    spec: tuple[TensorSpec, ...]
    shape: Tree
    make: InputMaker
    flavors: tuple[Flavor, ...]
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    """The sizes of the example tensors."""
    ranges: tuple[ValueRange, ...] = ()
    """What each input is drawn from; empty if a function makes the inputs."""
    is_call: bool = False
    """True if the structure is that of a call the user wrote, rather than that of spec lines."""


@dataclass(frozen=True)
class ExampleCall:
    """A call with example tensors: the spec that is read from it, and its tensors in the spec's order."""

    spec: tuple[TensorSpec, ...]
    template: Tree
    bounds: dict[str, tuple[int, int]]
    sizes: dict[str, int]
    tensors: list[torch.Tensor]


def is_spec_list(inputs: object) -> bool:
    return isinstance(inputs, list) and bool(inputs) and all(isinstance(i, str | TensorSpec) for i in inputs)


def plan_from_lines(model: torch.nn.Module, lines: list[str | TensorSpec]) -> InputPlan:
    """Return the plan for spec lines; refuse names that forward does not take, and arguments that no line declares."""
    spec = tuple(parse_input(line) if isinstance(line, str) else line for line in lines)
    everything = read_forward_signature(model).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in everything.values())
    takes_more = any(p.kind is p.VAR_POSITIONAL for p in everything.values())
    parameters = {n: p for n, p in everything.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    kwargs: dict[str, Tree] = {}
    args: list[Tree] = []
    for index, item in enumerate(spec):
        top, *rest = item.name.split(".")
        _refuse_clash(item.name, [s.name for s in spec[:index]])
        if top not in parameters and not takes_any:
            if takes_more and not rest:
                args.append(Slot(index))
                continue
            raise complain(
                Code.UNKNOWN_INPUT,
                f"forward has no input {item.name!r}; it takes: {', '.join(everything) or 'nothing'}",
            )
        _put_leaf(kwargs, [top, *rest], Slot(index))
    missing = [n for n, p in parameters.items() if p.default is p.empty and n not in kwargs]
    if missing:
        todo = (f"Declare it too: --input '{missing[0]}: float32[batch, 3]'.",)
        raise complain(
            Code.UNKNOWN_INPUT, f"forward also needs {', '.join(missing)}, which the spec does not declare", todo=todo
        )
    _check_lengths(spec)
    # Arguments that cannot be passed by name go first, in forward's order.
    by_place = [
        n
        for n, p in parameters.items()
        if n in kwargs and (p.kind is p.POSITIONAL_ONLY or (args and p.kind is p.POSITIONAL_OR_KEYWORD))
    ]
    shape = _make_lists(kwargs)
    first = [shape.pop(n) for n in by_place]

    def make(point: Point, seed: int, flavor: Flavor, ranges: Sequence[ValueRange]) -> list[torch.Tensor]:
        return draw_inputs(spec, ranges, [None] * len(spec), point, seed, flavor)

    return InputPlan(spec, ((*first, *args), shape), make, FLAVORS, ranges=tuple(map(choose_range, spec)))


def _refuse_clash(name: str, earlier: Sequence[str]) -> None:
    for other in earlier:
        if other == name:
            raise complain(Code.NAMES_DO_NOT_FIT, f"the input {name!r} is declared twice")
        short, long = sorted((name, other), key=len)
        if long.startswith(f"{short}."):
            raise complain(
                Code.NAMES_DO_NOT_FIT,
                f"{short!r} and {long!r} are both declared; {short!r} is either a tensor or a container",
            )


def _check_lengths(spec: Sequence[TensorSpec]) -> None:
    dims = dict.fromkeys(n for item in spec for n in item.dims)
    for item in spec:
        limit = item.values.lengths or item.values.under
        for name in limit.names if limit else ():
            if name not in dims:
                known = ", ".join(dims) or "none"
                raise complain(
                    Code.UNKNOWN_DIM, f"{item.name}{item.values}: {name!r} is not a dim; the dims are: {known}"
                )


def _put_leaf(tree: dict[str, Tree], path: list[str], leaf: Tree) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = leaf


def _make_lists(tree: Tree) -> Tree:
    """Replace dicts whose keys are 0, 1, 2… with lists."""
    if type(tree) is not dict:
        return tree
    items = {key: _make_lists(item) for key, item in tree.items()}
    places = [str(i) for i in range(len(items))]
    if items and set(items) == set(places):
        return [items[place] for place in places]
    return items


def _split_call(inputs: UserInputs) -> tuple[tuple[Tree, ...], dict[str, Tree]]:
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        if len(inputs) == 2 and isinstance(inputs[0], tuple | list) and isinstance(inputs[1], Mapping):
            return tuple(inputs[0]), dict(inputs[1])
        return tuple(inputs), {}
    raise complain(
        Code.BAD_INPUTS,
        f"inputs: expected spec lines, tensors or a function, got {type(inputs).__name__}: {inputs!r:.80}",
    )


def _bind_call(model: torch.nn.Module, inputs: UserInputs) -> tuple[Tree, dict[str, Tree]]:
    """Return the call, and its arguments by the names of forward's parameters."""
    args, kwargs = _split_call(inputs)
    signature = read_forward_signature(model)
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        seen = f"forward{signature} cannot be called with these inputs: {error}"
        todo: tuple[str, ...] = ()
        if not any(isinstance(leaf.value, torch.Tensor) for leaf in flatten((args, kwargs))):
            seen = f"{seen}; there is no tensor in {inputs!r:.80}"
            todo = ('Give example tensors, such as (torch.randn(2, 3),), or spec lines: ["x: float32[batch, 3]"].',)
        raise complain(Code.BAD_INPUTS, seen, todo=todo) from error
    named: dict[str, Tree] = {}
    for name, value in bound.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            named.update({f"{name}_{i}": item for i, item in enumerate(value)})
        else:
            named[name] = value
    return (args, kwargs), named


def _find_tensors(named: Mapping[str, Tree]) -> list[TreeLeaf]:
    leaves = flatten(named)
    for leaf in leaves:
        if isinstance(leaf.value, np.ndarray):
            todo = ("Give torch tensors: torch.from_numpy(array).",)
            raise complain(
                Code.BAD_INPUTS, f"expected a tensor for the input {leaf.name!r}, got a numpy array", todo=todo
            )
    return [leaf for leaf in leaves if isinstance(leaf.value, torch.Tensor)]


def _read_examples(model: torch.nn.Module, inputs: UserInputs, dims: UserDims) -> ExampleCall:
    call, named = _bind_call(model, inputs)
    leaves = _find_tensors(named)
    check_inputs((leaf.name, leaf.value) for leaf in leaves)
    if dims is None:
        known = {leaf.name for leaf in leaves}
        dims = {name: shape for name, shape in read_annotations(model.forward).items() if name in known}
    declared = read_dims(dims, leaves, list(named))
    spec = tuple(
        TensorSpec(leaf.name, str(leaf.value.dtype).removeprefix("torch."), declared.shapes[leaf.name])
        for leaf in leaves
    )
    tensors = [leaf.value for leaf in leaves]
    args, kwargs = call
    # Keyword arguments in forward's order, which is the order of `leaves`, whatever order the caller used.
    shape = make_template((args, {name: kwargs[name] for name in named if name in kwargs}))
    return ExampleCall(spec, shape, declared.bounds, read_sizes(spec, tensors), tensors)


def plan_from_examples(model: torch.nn.Module, inputs: UserInputs, dims: UserDims) -> InputPlan:
    """Return the plan for example tensors, which are tested as they are at their own sizes."""
    call = _read_examples(model, inputs, dims)
    spec, examples = call.spec, [tensor.detach() for tensor in call.tensors]

    def make(point: Point, seed: int, flavor: Flavor, ranges: Sequence[ValueRange]) -> list[torch.Tensor]:
        if seed <= 1 and all(point.get(k) == v for k, v in call.sizes.items()) and flavor == "normal":
            return [tensor.clone() for tensor in examples]
        return draw_inputs(spec, ranges, examples, point, seed, flavor)

    ranges = tuple(choose_range(s, t) for s, t in zip(spec, examples, strict=True))
    return InputPlan(spec, call.template, make, FLAVORS, call.bounds, call.sizes, ranges, is_call=True)


def plan_from_function(
    model: torch.nn.Module,
    function: InputsFunction,
    dims: UserDims,
    bounds: dict[str, tuple[int, int]],
    multiples: dict[str, int],
    example: dict[str, int],
) -> InputPlan:
    """Return the plan for an inputs function. It is called once, at small sizes, to learn the structure.

    The dims come from `dims` and the bounds.
    """
    names = list(dict.fromkeys([*bounds, *multiples, *example]))
    _refuse_unbounded(name for name in _find_required_dims(function) if name not in names)
    probe = build_domain(names, bounds, multiples)
    point = choose_example(probe, (), example)
    call = _read_examples(model, _call_function(function, point, 0), dims)
    spec = call.spec
    _refuse_unbounded(n for n in dict.fromkeys(n for s in spec for n in s.dims) if n not in names)
    _check_tensors(spec, call.tensors, point, 0)

    def make(point: Point, seed: int, flavor: Flavor, ranges: Sequence[ValueRange]) -> list[torch.Tensor]:
        _, named = _bind_call(model, _call_function(function, point, seed))
        tensors = [leaf.value for leaf in _find_tensors(named)]
        _check_tensors(spec, tensors, point, seed)
        return tensors

    return InputPlan(spec, call.template, make, ("normal",), call.bounds, is_call=True)


def _find_required_dims(function: InputsFunction) -> list[str]:
    """Return the dims that the function requires: its parameters after the seed that have no default."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[1:]
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def _refuse_unbounded(names: Iterable[str]) -> None:
    lacking = ", ".join(names)
    if lacking:
        raise complain(
            Code.BAD_INPUTS,
            f"the inputs function needs bounds for each dim it takes; {lacking} has none",
            todo=("Give them: bounds={'name': (low, high)}, or --dim name=low..high.",),
        )


def _check_tensors(spec: Sequence[TensorSpec], tensors: Sequence[torch.Tensor], point: Point, seed: int) -> None:
    """Refuse tensors of other sizes than requested: the same few sizes would be tested again and again."""
    request = _describe_call(seed, point)
    todo = ("Make the inputs function return tensors of the sizes it is called with.",)
    if len(tensors) != len(spec):
        raise complain(
            Code.SPEC_CONTRADICTS_EXAMPLE,
            f"{request} returned {len(tensors)} tensors; it returned {len(spec)} before",
            todo=todo,
        )
    for item, tensor in zip(spec, tensors, strict=True):
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype != item.dtype or tuple(tensor.shape) != item.sizes(point):
            expected = f"{item.dtype}{list(item.sizes(point))}"
            seen = f"{request} returned {item.name} as {dtype}{list(tensor.shape)}; {expected} was expected"
            raise complain(Code.SPEC_CONTRADICTS_EXAMPLE, seen, todo=todo)


def _describe_call(seed: int, point: Point) -> str:
    return f"inputs({', '.join([str(seed), *(f'{k}={v}' for k, v in point.items())])})"


def _call_function(function: InputsFunction, point: Point, seed: int) -> UserInputs:
    torch.manual_seed(seed)
    try:
        return function(seed, **point)
    except Exception as error:
        frames = [
            Where(file=f.filename, line=f.lineno, function=f.name, source=f.line)
            for f in traceback.extract_tb(error.__traceback__)
        ]
        raise complain(
            Code.BAD_INPUTS,
            f"{_describe_call(seed, point)} raised {type(error).__name__}: {error}",
            where=find_user_frame(frames),
            todo=("Fix the function: it must take any sizes within the bounds.",),
        ) from error
