"""A subject is a model with its spec: everything that later stages need to know, and nothing they may change."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import numpy as np
import torch

from fairway.diagnostics.errors import complain
from fairway.model.dims import MOST_NAMES, Domain, Point, Size, build_domain, show
from fairway.model.example import choose_example
from fairway.model.inputs import Maker, from_examples, from_function, from_lines, is_spec_list
from fairway.model.memory_check import amount, room
from fairway.model.ranges import ValueRange
from fairway.model.spec import TensorSpec
from fairway.model.study import Study
from fairway.model.tree import fill
from fairway.model.values import Flavour


@dataclass(frozen=True)
class Subject:
    """A model, the tensors it takes, the domain they range over, and how to make legal ones."""

    model: torch.nn.Module
    name: str
    spec: tuple[TensorSpec, ...]
    domain: Domain
    shape: Any
    """The template of (args, kwargs): fill its slots with tensors in the spec's order."""
    maker: Maker
    flavours: tuple[Flavour, ...]
    """The flavours that `make` knows; a user's own function knows seeds only."""
    example: Point
    given: Point | None = None
    """The sizes of the user's own example tensors, which are tested as they are."""
    output_names: tuple[str, ...] | None = None
    patches: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    translations: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    """The user's own, by operator; they win over everybody else's."""
    calibration: Callable[[], Any] | None = None
    """Gives samples to quantise with, one after another."""
    metric: Callable[[Any], float] | None = None
    """How good a model's answers are, larger for better; it is given a function from inputs to outputs."""

    is_call: bool = False
    """Whether the structure of the inputs is that of a call the user wrote, rather than that of spec lines."""
    study: Study = field(default_factory=Study)
    """What was learned about the model by running it."""

    @property
    def ranges(self) -> tuple[ValueRange, ...]:
        """What each input is drawn from; empty if a function makes the inputs."""
        return self.study.ranges

    def make(self, point: Point, seed: int, flavour: Flavour) -> list[torch.Tensor]:
        """Return legal inputs at a point, by seed and flavour."""
        return self.maker(point, seed, flavour, self.ranges)

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
    translations: Mapping[Any, Callable[..., Any]] | None = None,
    name: str | None = None,
) -> Subject:
    """Reads `inputs` in any of the forms the README lists, and checks that everything said fits together."""
    with undisturbed():
        if isinstance(inputs, str | TensorSpec) or is_spec_list(inputs):
            if dims is not None:
                raise complain("FW015", "dims is given beside spec lines, which say the dims already")
            plan = from_lines(model, [inputs] if isinstance(inputs, str | TensorSpec) else list(inputs))
        elif callable(inputs):
            plan = from_function(model, inputs, dims, dict(bounds or {}), dict(multiples or {}), dict(example or {}))
        else:
            plan = from_examples(model, inputs, dims)
    spec = plan.spec
    if not spec:
        raise complain("FW010", "the model is given no input tensor")
    named = dict.fromkeys(n for s in spec for n in s.dims)
    domain = build_domain(named, {**plan.bounds, **(bounds or {})}, multiples or {}, plan.seen)
    check_sizes(spec, domain)
    for dim in example or {}:
        if dim not in domain.names:
            raise complain("FW005", f"example names {dim!r}; the dims are: {', '.join(domain.names) or 'none'}")
    wanted = {**_fit_to_start_from(plan.seen, spec, domain), **(example or {})}
    if input_names is not None:
        spec = _renamed(spec, input_names)
    _refuse_meta(model)
    return Subject(
        model=model,
        name=name or type(model).__name__,
        spec=spec,
        domain=domain,
        shape=plan.shape,
        maker=plan.make,
        flavours=plan.flavours,
        example=choose_example(domain, spec, wanted),
        given=plan.seen or None,
        output_names=None if output_names is None else tuple(output_names),
        patches=dict(patches or {}),
        translations=check_translations(translations),
        is_call=plan.is_call,
        study=Study(plan.ranges),
    )


def check_translations(translations: Any) -> dict[Any, Callable[..., Any]]:
    """The user's translations, or a finding that says which one is none."""
    if translations is None:
        return {}
    if not isinstance(translations, Mapping):
        raise complain("FW020", f"translations is of type {type(translations).__name__}, not a mapping")
    for operator, function in translations.items():
        if isinstance(operator, torch._ops.OpOverloadPacket):
            packet: Any = operator
            choices = ", ".join(f"torch.ops.{packet}.{name}" for name in packet.overloads())
            raise complain("FW020", f"torch.ops.{packet} has several forms; name one: {choices}")
        if not isinstance(operator, torch._ops.OpOverload):
            raise complain("FW020", f"{operator!r:.200} is not an operator")
        if not callable(function):
            raise complain("FW020", f"the translation of torch.ops.{operator} cannot be called: {function!r:.200}")
    return dict(translations)


def check_sizes(spec: Sequence[TensorSpec], domain: Domain) -> None:
    """Every size must be a size at the domain's corners, and the inputs must fit into memory there."""
    asked = 0
    for item in spec:
        for axis, size in enumerate(item.shape):
            for point in _corners(size.names, domain):
                if not _is_size(size, point):
                    raise complain(
                        "FW004",
                        f"{item.name} axis {axis}: {size} is no size at {show(point)}",
                        todo=("Give bounds for which the size is at least 0: --dim name=low..high.",),
                    )
        width = getattr(torch, item.dtype).itemsize
        need, point = max(
            ((width * prod(item.sizes(point)), point) for point in _corners(item.dims, domain)), key=lambda one: one[0]
        )
        asked += need
        if asked > room():
            what = "fixed" if not point else show(point)
            raise complain("FW017", f"{item} at {what}: {amount(asked)} of inputs; this machine has {amount(room())}")


def _corners(names: Sequence[str], domain: Domain) -> Iterator[dict[str, int]]:
    """Every corner over the names; of many names the lowest and the highest only, since each doubles the number."""
    ends = [(domain[name].sizes[0], domain[name].sizes[-1]) for name in names]
    corners = product(*ends) if len(ends) <= MOST_NAMES else zip(*ends, strict=True)
    for corner in corners:
        yield dict(zip(names, corner, strict=True))


def _is_size(size: Size, point: Point) -> bool:
    try:
        return size.at(point) >= 0
    except ZeroDivisionError:
        return False


def _fit_to_start_from(seen: Mapping[str, int], spec: Sequence[TensorSpec], domain: Domain) -> dict[str, int]:
    """The example tensors' own sizes, but for those that exporters would specialise or merge: 1, and equal ones."""
    for name, size in seen.items():
        if size not in domain[name].sizes:
            raise complain("FW003", f"the example's {name}={size} is outside {domain[name]}")
    fixed = [size.fixed for item in spec for size in item.shape]
    sizes = [*seen.values(), *fixed]
    return {name: size for name, size in seen.items() if size > 1 and sizes.count(size) == 1}


def _renamed(spec: tuple[TensorSpec, ...], names: Sequence[str]) -> tuple[TensorSpec, ...]:
    if len(names) != len(spec) or len(set(names)) != len(names):
        raise complain("FW011", f"input_names gives {list(names)}; the inputs are {[s.name for s in spec]}")
    return tuple(TensorSpec(n, s.dtype, s.shape, s.values) for n, s in zip(names, spec, strict=True))


def _refuse_meta(model: torch.nn.Module) -> None:
    for kind in (model.named_parameters(), model.named_buffers()):
        for name, tensor in kind:
            if tensor.device.type == "meta":
                raise complain("FW012", f"{name} of the model is on the meta device")
            if isinstance(tensor, torch.nn.UninitializedParameter | torch.nn.UninitializedBuffer):
                seen = f"{name} of the model has no values yet: its lazy module was never run"
                raise complain("FW012", seen, todo=("Run the model once on example inputs before it is exported.",))
