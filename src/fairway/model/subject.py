"""A subject: a model with its spec, and everything else that later stages need to know. It is not changed later."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from math import prod

import numpy as np
import torch

from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import complain
from fairway.model.accept_model import accept_model
from fairway.model.dims import MAX_NAMES, Domain, Point, Size, build_domain, describe_point
from fairway.model.example import choose_example
from fairway.model.inputs import InputMaker, is_spec_list, plan_from_examples, plan_from_function, plan_from_lines
from fairway.model.memory_check import format_bytes, read_memory_bytes
from fairway.model.placement import check_model, refuse_autocast
from fairway.model.program_model import ProgramModel, check_program_sizes, describe_program, read_own_inputs
from fairway.model.ranges import ValueRange
from fairway.model.spec import TensorSpec
from fairway.model.study import Study
from fairway.model.tree import Tree, fill_template
from fairway.model.user_types import Calibration, Metric, OperatorFunctions, UserDims, UserInputs, UserModel
from fairway.model.values import Flavor
from fairway.torch_internals import OpOverload, OpOverloadPacket


@dataclass(frozen=True)
class Subject:
    """A model, the tensors it takes, the domain they range over, and how to make legal ones."""

    model: torch.nn.Module
    name: str
    spec: tuple[TensorSpec, ...]
    domain: Domain
    shape: Tree
    """The template of (args, kwargs): fill its slots with tensors in the spec's order."""
    maker: InputMaker
    flavors: tuple[Flavor, ...]
    """The flavors that `make` knows; a user's own function knows seeds only."""
    example: Point
    given: Point | None = None
    """The sizes of the user's own example tensors, which are tested as they are."""
    output_names: tuple[str, ...] | None = None
    patches: OperatorFunctions = field(default_factory=dict)
    translations: OperatorFunctions = field(default_factory=dict)
    """The user's own, by operator; they take precedence over all others."""
    calibration: Calibration | None = None
    """Yields samples to calibrate a quantization with."""
    metric: Metric | None = None
    """Returns the quality of a model, larger for better. It is called with a function from inputs to outputs."""

    is_call: bool = False
    """True if the structure of the inputs is that of a call the user wrote, rather than that of spec lines."""
    study: Study = field(default_factory=Study)
    """The knowledge gained by running the model."""
    remarks: tuple[Finding, ...] = ()
    """Notes on the form in which the model was given."""

    @property
    def ranges(self) -> tuple[ValueRange, ...]:
        """The range of values of each input; empty if a function makes the inputs."""
        return self.study.ranges

    def make(self, point: Point, seed: int, flavor: Flavor) -> list[torch.Tensor]:
        """Return legal inputs at a point, by seed and flavor."""
        return self.maker(point, seed, flavor, self.ranges)

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.spec)

    def call(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Tree, ...], dict[str, Tree]]:
        """Return (args, kwargs) for the model, built from flat tensors."""
        args, kwargs = fill_template(self.shape, tensors)
        return tuple(args), dict(kwargs)


@contextmanager
def preserve_global_state() -> Iterator[None]:
    """Restore random state, default dtype, thread count and grad mode afterwards."""
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
    model: UserModel,
    inputs: UserInputs,
    *,
    dims: UserDims = None,
    bounds: Mapping[str, tuple[int, int]] | None = None,
    multiples: Mapping[str, int] | None = None,
    example: Mapping[str, int] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    patches: OperatorFunctions | None = None,
    translations: OperatorFunctions | None = None,
    name: str | None = None,
) -> Subject:
    """Build a subject from `inputs` in any of the forms the README lists; refuse declarations that contradict."""
    refuse_autocast()
    accepted = accept_model(model)
    model, remarks = accepted.module, accepted.remarks
    check_model(model)
    if inputs is None and isinstance(model, ProgramModel):
        own = read_own_inputs(model)
        inputs, dims, bounds = own.call, dims or own.dims, {**own.bounds, **(bounds or {})}
    with preserve_global_state():
        if isinstance(inputs, str | TensorSpec) or is_spec_list(inputs):
            if dims is not None:
                raise complain(
                    Code.BAD_INPUTS, "dims is given together with spec lines, which already declare the dims"
                )
            plan = plan_from_lines(model, [inputs] if isinstance(inputs, str | TensorSpec) else list(inputs))
        elif callable(inputs):
            plan = plan_from_function(
                model, inputs, dims, dict(bounds or {}), dict(multiples or {}), dict(example or {})
            )
        else:
            plan = plan_from_examples(model, inputs, dims)
    spec = plan.spec
    if not spec:
        raise complain(Code.NO_INPUTS, "expected at least one input tensor, got none")
    named = dict.fromkeys(n for s in spec for n in s.dims)
    domain = build_domain(named, {**plan.bounds, **(bounds or {})}, multiples or {}, plan.seen)
    check_sizes(spec, domain)
    for dim in example or {}:
        if dim not in domain.names:
            raise complain(
                Code.UNKNOWN_DIM, f"example names {dim!r}; the dims are: {', '.join(domain.names) or 'none'}"
            )
    preferred = {**_choose_example_sizes(plan.seen, spec, domain), **(example or {})}
    if input_names is not None:
        spec = _rename_inputs(spec, input_names)
    if isinstance(model, ProgramModel):
        check_program_sizes(model, plan.shape, spec, domain)
        remarks = (*remarks, describe_program(model, plan.shape))
    return Subject(
        model=model,
        name=name or accepted.name,
        spec=spec,
        domain=domain,
        shape=plan.shape,
        maker=plan.make,
        flavors=plan.flavors,
        example=choose_example(domain, spec, preferred),
        given=plan.seen or None,
        output_names=None if output_names is None else tuple(output_names),
        patches=dict(patches or {}),
        translations=check_translations(translations),
        is_call=plan.is_call,
        study=Study(plan.ranges),
        remarks=remarks,
    )


def check_translations(translations: object) -> OperatorFunctions:
    """Return the user's translations; refuse what is not an operator with a function."""
    if translations is None:
        return {}
    if not isinstance(translations, Mapping):
        raise complain(
            Code.BAD_TRANSLATION,
            f"translations: expected a mapping of operators to functions, got {type(translations).__name__}",
        )
    for operator, function in translations.items():
        if isinstance(operator, OpOverloadPacket):
            packet: Tree = operator
            choices = ", ".join(f"torch.ops.{packet}.{name}" for name in packet.overloads())
            raise complain(Code.BAD_TRANSLATION, f"torch.ops.{packet} has several forms; name one: {choices}")
        if not isinstance(operator, OpOverload):
            raise complain(
                Code.BAD_TRANSLATION,
                f"translations: expected an operator such as torch.ops.aten.add.Tensor, got {operator!r:.200}",
            )
        if not callable(function):
            raise complain(
                Code.BAD_TRANSLATION, f"the translation of torch.ops.{operator} cannot be called: {function!r:.200}"
            )
    return dict(translations)


def check_sizes(spec: Sequence[TensorSpec], domain: Domain) -> None:
    """Refuse sizes that are negative at a corner of the domain, and inputs that do not fit into memory there."""
    needed = 0
    for item in spec:
        for axis, size in enumerate(item.shape):
            for point in _find_corners(size.names, domain):
                if not _is_valid_size(size, point):
                    raise complain(
                        Code.EMPTY_RANGE,
                        f"{item.name} axis {axis}: {size} gives no valid size at {describe_point(point)}",
                        todo=("Give bounds for which the size is at least 0: --dim name=low..high.",),
                    )
        width = getattr(torch, item.dtype).itemsize
        corners = ((width * prod(item.sizes(point)), point) for point in _find_corners(item.dims, domain))
        size_bytes, point = max(corners, key=lambda corner: corner[0])
        needed += size_bytes
        if needed > read_memory_bytes():
            sizes = "fixed" if not point else describe_point(point)
            total, available = format_bytes(needed), format_bytes(read_memory_bytes())
            raise complain(
                Code.INPUTS_TOO_LARGE,
                f"{item} at {sizes}: the inputs take {total}; this machine has {available} of memory",
            )


def _find_corners(names: Sequence[str], domain: Domain) -> Iterator[dict[str, int]]:
    """Yield the corners of the domain over these dims, or of many dims only two: each dim doubles the number."""
    ends = [(domain[name].sizes[0], domain[name].sizes[-1]) for name in names]
    corners = product(*ends) if len(ends) <= MAX_NAMES else zip(*ends, strict=True)
    for corner in corners:
        yield dict(zip(names, corner, strict=True))


def _is_valid_size(size: Size, point: Point) -> bool:
    try:
        return size.at(point) >= 0
    except ZeroDivisionError:
        return False


def _choose_example_sizes(seen: Mapping[str, int], spec: Sequence[TensorSpec], domain: Domain) -> dict[str, int]:
    """Return the example tensors' sizes, without those that exporters would specialize or merge: 1, and equal ones."""
    for name, size in seen.items():
        if size not in domain[name].sizes:
            raise complain(Code.SPEC_CONTRADICTS_EXAMPLE, f"the example's {name}={size} is outside {domain[name]}")
    fixed = [size.constant_value for item in spec for size in item.shape]
    sizes = [*seen.values(), *fixed]
    return {name: size for name, size in seen.items() if size > 1 and sizes.count(size) == 1}


def _rename_inputs(spec: tuple[TensorSpec, ...], names: Sequence[str]) -> tuple[TensorSpec, ...]:
    if len(names) != len(spec) or len(set(names)) != len(names):
        raise complain(
            Code.NAMES_DO_NOT_FIT,
            f"input_names: expected a distinct name for each of {[s.name for s in spec]}, got {list(names)}",
        )
    return tuple(TensorSpec(n, s.dtype, s.shape, s.values) for n, s in zip(names, spec, strict=True))
