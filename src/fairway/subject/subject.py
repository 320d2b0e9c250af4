"""A subject is a model with its spec: everything that later stages need to know, and nothing they may change."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fairway.errors import complain
from fairway.subject.declare import declare, read_annotations
from fairway.subject.dims import Domain, Point, build_domain, show
from fairway.subject.spec import TensorSpec, parse_input
from fairway.subject.tree import Slot, fill, flatten, template
from fairway.subject.values import Flavour, make_tensor, resemble

Maker = Callable[[Point, int, Flavour], list[torch.Tensor]]
"""Legal input tensors at a point, in the spec's order, by seed and flavour."""


@dataclass(frozen=True)
class Subject:
    """A model, the tensors it takes, the domain they range over, and how to make legal ones."""

    model: torch.nn.Module
    name: str
    spec: tuple[TensorSpec, ...]
    domain: Domain
    shape: Any
    """The template of (args, kwargs): fill its slots with tensors in the spec's order."""
    make: Maker
    flavoured: bool
    """Whether `make` knows edge flavours; a user's own function knows seeds only."""
    example: Point
    output_names: tuple[str, ...] | None = None
    patches: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.spec)

    def call(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) for the model from flat tensors."""
        args, kwargs = fill(self.shape, tensors)
        return tuple(args), dict(kwargs)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Leaves random state, default dtype, thread count and grad mode as they were."""
    states = (torch.get_rng_state(), np.random.get_state(), random.getstate())
    dtype, threads, grad = torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
        torch.set_default_dtype(dtype)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        torch.set_grad_enabled(grad)


def build_subject(
    model: torch.nn.Module,
    inputs: Any,
    *,
    dims: Any = None,
    bounds: Mapping[str, tuple[int, int]] | None = None,
    multiples: Mapping[str, int] | None = None,
    example: Mapping[str, int] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    patches: Mapping[Any, Callable[..., Any]] | None = None,
    name: str | None = None,
) -> Subject:
    """Reads `inputs` in any of the forms the README lists, and checks that everything said fits together."""
    with undisturbed():
        if isinstance(inputs, str | TensorSpec) or _is_spec_list(inputs):
            plan = _from_lines(model, [inputs] if isinstance(inputs, str | TensorSpec) else list(inputs))
        elif callable(inputs):
            plan = _from_function(model, inputs, dims, dict(bounds or {}), dict(multiples or {}), dict(example or {}))
        else:
            plan = _from_examples(model, inputs, dims)
    spec, shape, make, flavoured, own_bounds, seen = plan
    if not spec:
        raise complain("FW010", "the model is given no input tensor")
    named = dict.fromkeys(n for s in spec for n in s.dims)
    domain = build_domain(named, {**own_bounds, **(bounds or {})}, multiples or {}, seen)
    if input_names is not None:
        spec = _renamed(spec, input_names)
    _refuse_meta(model)
    return Subject(
        model=model,
        name=name or type(model).__name__,
        spec=spec,
        domain=domain,
        shape=shape,
        make=make,
        flavoured=flavoured,
        example=choose_example(domain, spec, {**seen, **(example or {})} if not flavoured else dict(example or {})),
        output_names=None if output_names is None else tuple(output_names),
        patches=dict(patches or {}),
    )


_Plan = tuple[tuple[TensorSpec, ...], Any, Maker, bool, dict[str, tuple[int, int]], dict[str, int]]


def _is_spec_list(inputs: Any) -> bool:
    return isinstance(inputs, list) and bool(inputs) and all(isinstance(i, str | TensorSpec) for i in inputs)


def _from_lines(model: torch.nn.Module, lines: list[str | TensorSpec]) -> _Plan:
    spec = tuple(parse_input(line) if isinstance(line, str) else line for line in lines)
    parameters = inspect.signature(model.forward).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    takes_more = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    kwargs: dict[str, Any] = {}
    args: list[Any] = []
    for index, item in enumerate(spec):
        top, *rest = item.name.split(".")
        if top in kwargs and not rest:
            raise complain("FW011", f"the input {item.name!r} is declared twice")
        if top not in parameters and not takes_any:
            if takes_more and not rest:
                args.append(Slot(index))
                continue
            raise complain("FW002", f"{item.name!r}; forward takes: {', '.join(parameters) or 'nothing'}")
        _place(kwargs, [top, *rest], Slot(index))
    missing = [
        n for n, p in parameters.items()
        if p.default is p.empty and n not in kwargs and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]  # fmt: skip
    if missing and not args:
        raise complain("FW002", f"forward also needs {', '.join(missing)}, which the spec does not declare")

    def make(point: Point, seed: int, flavour: Flavour) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return [make_tensor(item, point, generator, flavour) for item in spec]

    return spec, (tuple(args), _lists(kwargs)), make, True, {}, {}


def _place(tree: dict[str, Any], path: list[str], leaf: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = leaf


def _lists(tree: Any) -> Any:
    """Levels whose keys are 0, 1, 2… become lists."""
    if type(tree) is not dict:
        return tree
    items = {key: _lists(item) for key, item in tree.items()}
    if items and list(items) == [str(i) for i in range(len(items))]:
        return list(items.values())
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
    raise complain("FW015", f"inputs is a {type(inputs).__name__}")


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


def _leaves(named: Mapping[str, Any]) -> list[Any]:
    return [leaf for leaf in flatten(named) if isinstance(leaf.value, torch.Tensor)]


def _reader(
    model: torch.nn.Module, inputs: Any, dims: Any
) -> tuple[tuple[TensorSpec, ...], Any, dict[str, tuple[int, int]], dict[str, int], list[torch.Tensor]]:
    call, named = _bind(model, inputs)
    leaves = _leaves(named)
    for leaf in leaves:
        if leaf.value.device.type == "meta":
            raise complain("FW012", f"the input {leaf.name!r} is on the meta device")
    declared = declare(dims if dims is not None else read_annotations(model.forward), leaves, list(named))
    spec = tuple(
        TensorSpec(leaf.name, str(leaf.value.dtype).removeprefix("torch."), declared.shapes[leaf.name])
        for leaf in leaves
    )
    tensors = [leaf.value for leaf in leaves]
    args, kwargs = call
    # Keyword arguments in forward's order, which is the order of `leaves`, whatever order the caller used.
    shape = template((args, {name: kwargs[name] for name in named if name in kwargs}))
    return spec, shape, declared.bounds, read_sizes(spec, tensors), tensors


def _from_examples(model: torch.nn.Module, inputs: Any, dims: Any) -> _Plan:
    spec, shape, bounds, seen, tensors = _reader(model, inputs, dims)

    def make(point: Point, seed: int, flavour: Flavour) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        if seed == 0 and all(point.get(k) == v for k, v in seen.items()) and flavour == "normal":
            return [t.detach().clone() for t in tensors]
        return [resemble(t.detach(), s.sizes(point), generator, flavour) for t, s in zip(tensors, spec, strict=True)]

    return spec, shape, make, False, bounds, seen


def _from_function(
    model: torch.nn.Module,
    function: Callable[..., Any],
    dims: Any,
    bounds: dict[str, tuple[int, int]],
    multiples: dict[str, int],
    example: dict[str, int],
) -> _Plan:
    """The function is asked once, at small sizes, for the structure; the dims come from `dims` and the bounds."""
    names = list(dict.fromkeys([*bounds, *multiples, *example]))
    probe = build_domain(names, bounds, multiples)
    point = choose_example(probe, (), example)
    spec, shape, own, _, _ = _reader(model, _asked(function, point, 0), dims)
    unasked = [n for n in dict.fromkeys(n for s in spec for n in s.dims) if n not in names]
    if unasked:
        raise complain(
            "FW015", f"the inputs function needs bounds for each dim it takes; {', '.join(unasked)} has none"
        )

    def make(point: Point, seed: int, flavour: Flavour) -> list[torch.Tensor]:
        _, named = _bind(model, _asked(function, point, seed))
        return [leaf.value for leaf in _leaves(named)]

    return spec, shape, make, False, own, {}


def _asked(function: Callable[..., Any], point: Point, seed: int) -> Any:
    torch.manual_seed(seed)
    try:
        return function(seed, **point)
    except Exception as error:
        raise complain("FW015", f"inputs({seed}, {show(point)}) raised {type(error).__name__}: {error}") from error


def read_sizes(spec: Sequence[TensorSpec], tensors: Sequence[torch.Tensor]) -> dict[str, int]:
    """The size of each dim, read off tensors; refuses tensors that disagree with one another."""
    sizes: dict[str, tuple[int, str]] = {}
    for item, tensor in zip(spec, tensors, strict=True):
        for axis, (size, n) in enumerate(zip(item.shape, tensor.shape, strict=True)):
            if size.affine is None:
                continue
            name, slope, offset = size.affine
            value, rest = divmod(n - offset, slope)
            place = f"{item.name} axis {axis}"
            if rest:
                raise complain("FW003", f"{place} is {n}, which is not {size} for any {name}")
            if name in sizes and sizes[name][0] != value:
                other, where = sizes[name]
                raise complain("FW013", f"{name} is {other} by {where} and {value} by {place}")
            sizes.setdefault(name, (value, place))
    return {name: value for name, (value, _) in sizes.items()}


def _renamed(spec: tuple[TensorSpec, ...], names: Sequence[str]) -> tuple[TensorSpec, ...]:
    if len(names) != len(spec) or len(set(names)) != len(names):
        raise complain(
            "FW011", f"input_names gives {list(names)}; the inputs are {[s.name for s in spec]}"
        )
    return tuple(TensorSpec(n, s.dtype, s.shape, s.values) for n, s in zip(names, spec, strict=True))


def _refuse_meta(model: torch.nn.Module) -> None:
    for kind in (model.named_parameters(), model.named_buffers()):
        for name, tensor in kind:
            if tensor.device.type == "meta":
                raise complain("FW012", f"{name} of the model is on the meta device")


_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)


def choose_example(
    domain: Domain, spec: Sequence[TensorSpec], wanted: Mapping[str, int], avoid: Point | None = None
) -> dict[str, int]:
    """Distinct sizes of at least 2, primes where they can be, none equal to a fixed size.

    Exporters specialise a size of 1 and merge dims whose sizes happen to be equal. `avoid` asks for another size than
    that point's, for each dim that has one.
    """
    taken = {size.fixed for item in spec for size in item.shape}
    point: dict[str, int] = {}
    for dim in domain.dims:
        if dim.name in wanted and avoid is None:
            if wanted[dim.name] not in dim.sizes:
                raise complain("FW003", f"the example's {dim.name}={wanted[dim.name]} is outside {dim}")
            point[dim.name] = wanted[dim.name]
            continue
        least = max(2, 2 * dim.low - 1)
        other = None if avoid is None else avoid[dim.name]
        ranked = [n * dim.multiple for n in (*_PRIMES, *range(101, 400, 2))] + list(dim.sizes[:400]) + [dim.high]
        legal = [n for n in ranked if n in dim.sizes and n != other] or [dim.sizes[0]]
        free = [n for n in legal if n >= least and n not in taken and n not in point.values()]
        fair = [n for n in legal if n > 1 and n not in point.values()]
        point[dim.name] = (free or fair or legal)[0]
    return point
