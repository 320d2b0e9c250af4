"""The values that each input is drawn from, and their source: declared, learned from PyTorch, or from an example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from fairway.model.dims import Point
from fairway.model.spec import TensorSpec, Values
from fairway.model.values import (
    FAR_MAGNITUDE,
    HALF_LOG_DECADES,
    LOG_DECADES,
    UNDECLARED_BELOW,
    Flavor,
    make_tensor,
    resemble,
)

NOT_DECLARED = "not declared"


@dataclass(frozen=True)
class ValueRange:
    """The values that one input is drawn from."""

    values: Values = field(default_factory=Values)
    """The limits that are respected: declared or learned."""
    source: str = NOT_DECLARED
    usual: tuple[int, int] | None = None
    """Ends of ordinary whole numbers, if the legal ones go further."""
    binary: bool = False
    """Zeros and ones, with at least one ordinary value in a row: a mask whose meaning is not known."""
    nonnegative: bool = False
    like_example: bool = False
    """Ordinary values resemble the example."""
    confined: bool = False
    """No value outside the example's own range: PyTorch refuses others."""
    nonfinite: bool = False
    """NaN and infinity too: the model looks for them."""
    infinite: bool = False
    """Infinity too, but not NaN: the model looks for infinity only."""

    @property
    def has_nonfinite(self) -> bool:
        return self.nonfinite or self.infinite

    @property
    def is_declared(self) -> bool:
        return self.source == "declared"


def choose_range(spec: TensorSpec, example: torch.Tensor | None = None) -> ValueRange:
    """Return the range that the spec line or the example suggests for an input, before PyTorch is run."""
    if spec.values != Values():
        return ValueRange(spec.values, "declared")
    if spec.dtype == "bool" or (example is not None and _is_mask(spec.name, example)):
        return ValueRange(binary=example is not None and _is_mask(spec.name, example))
    is_integer = "int" in spec.dtype
    if example is None:
        return ValueRange(usual=(0, UNDECLARED_BELOW - 1) if is_integer else None)
    if is_integer:
        low, high = (int(example.min()), int(example.max())) if example.numel() else (0, 0)
        return ValueRange(usual=(min(low, 0), max(high, UNDECLARED_BELOW - 1)))
    if example.dtype.is_complex or _is_constant(example):
        return ValueRange()
    return ValueRange(nonnegative=float(example.min()) >= 0, like_example=True)


def _is_constant(example: torch.Tensor) -> bool:
    """Return whether every element is the same: a placeholder, which says nothing about legal values."""
    return example.numel() == 0 or bool((example == example.reshape(-1)[0]).all())


def _is_mask(name: str, example: torch.Tensor) -> bool:
    """Return whether an example is a mask: it has only zeros and ones.

    If its name does not contain `mask`, it must have both numbers, and two dims or more.
    """
    if example.dtype.is_complex or example.dim() == 0 or example.numel() == 0:
        return False
    if not bool(((example == 0) | (example == 1)).all()):
        return False
    return "mask" in name.lower() or (not _is_constant(example) and example.dim() > 1)


def draw_input(
    spec: TensorSpec,
    legal: ValueRange,
    example: torch.Tensor | None,
    point: Point,
    generator: torch.Generator,
    flavor: Flavor,
) -> torch.Tensor:
    """Return one input at a point, reproducible from the generator's state."""
    if legal.binary:
        return _draw_binary(spec, example, point, generator, flavor)
    if example is not None and (legal.confined or (legal.like_example and flavor in ("normal", "least", "most"))):
        within: Flavor = flavor if flavor in ("least", "most", "mixed") else "normal"
        return resemble(example, spec.sizes(point), generator, within)
    made = make_tensor(replace(spec, values=legal.values), point, generator, flavor, legal.usual)
    return made.abs() if legal.nonnegative else made


def _draw_binary(
    spec: TensorSpec, example: torch.Tensor | None, point: Point, generator: torch.Generator, flavor: Flavor
) -> torch.Tensor:
    """Return rows of zeros and ones, padded on either side or with holes.

    `least` and `zeros` repeat the example's first element. No row consists of the other value alone, since that may be
    illegal.
    """
    shape = spec.sizes(point)
    length = shape[-1] if shape else 1
    usual = bool(example.reshape(-1)[0]) if example is not None and example.numel() else True
    rows = shape[:-1]
    if flavor in ("least", "zeros") or length < 2:
        return torch.full(shape, usual).to(getattr(torch, spec.dtype))
    count = torch.randint(1, length + 1, (*rows, 1), generator=generator)
    if flavor == "most":
        count = torch.ones_like(count)
    place = torch.arange(length)
    shape_kind = int(torch.randint(0, 3, (), generator=generator))
    if shape_kind == 0:
        keep = place < count
    elif shape_kind == 1:
        keep = place >= length - count
    else:
        keep = torch.rand(shape, generator=generator) < 0.6
        first = torch.randint(0, length, (*rows, 1), generator=generator)
        keep = keep | (place == first)
    return (keep if usual else ~keep).to(getattr(torch, spec.dtype))


def draw_inputs(
    specs: Sequence[TensorSpec],
    ranges: Sequence[ValueRange],
    examples: Sequence[torch.Tensor | None],
    point: Point,
    seed: int,
    flavor: Flavor,
) -> list[torch.Tensor]:
    """Return all inputs at a point.

    In the flavor `equal`, all rows are the same, and so are inputs of one shape and dtype. For odd seeds only some
    rows of such inputs are, or every row is a single number.
    """
    generator = torch.Generator().manual_seed(seed)
    first: Flavor = "normal" if flavor == "equal" else flavor
    made = [
        draw_input(spec, legal, example, point, generator, first)
        for spec, legal, example in zip(specs, ranges, examples, strict=True)
    ]
    if flavor != "equal":
        return made
    if seed % 2 == 0:
        return _equalize(made, ranges)
    return _flatten_rows(made, ranges) if seed % 4 == 3 else _equalize_rows(made, ranges, generator)


def _flatten_rows(tensors: Sequence[torch.Tensor], ranges: Sequence[ValueRange]) -> list[torch.Tensor]:
    """Return the tensors with the first number of each row throughout the row, except masks and lengths."""
    pairs = zip(tensors, ranges, strict=True)
    return [
        tensor if _has_structure(tensor, legal) else tensor[..., :1].expand_as(tensor).clone()
        for tensor, legal in pairs
    ]


def _has_structure(tensor: torch.Tensor, legal: ValueRange) -> bool:
    values = legal.values
    return tensor.dim() < 1 or legal.binary or tensor.dtype == torch.bool or bool(values.mask or values.lengths)


def _equalize_rows(
    tensors: Sequence[torch.Tensor], ranges: Sequence[ValueRange], generator: torch.Generator
) -> list[torch.Tensor]:
    """Return the tensors with some rows of each equal to those of an earlier one of the same kind."""
    known: dict[object, torch.Tensor] = {}
    made = []
    for tensor, legal in zip(tensors, ranges, strict=True):
        first = known.setdefault((tuple(tensor.shape), tensor.dtype, legal.values), tensor)
        rows = torch.rand((len(tensor),) if tensor.dim() else (), generator=generator) < 0.5
        made.append(torch.where(rows.reshape(-1, *[1] * (tensor.dim() - 1)) if tensor.dim() else rows, first, tensor))
    return made


def _equalize(tensors: Sequence[torch.Tensor], ranges: Sequence[ValueRange]) -> list[torch.Tensor]:
    known: dict[object, torch.Tensor] = {}
    made = []
    for tensor, legal in zip(tensors, ranges, strict=True):
        rows = tensor[:1].expand_as(tensor).clone() if tensor.dim() > 1 and len(tensor) else tensor
        made.append(known.setdefault((tuple(rows.shape), rows.dtype, legal.values), rows).clone())
    return made


def describe_range(spec: TensorSpec, legal: ValueRange) -> str:
    """Describe in words the values that an input was drawn from."""
    if legal.is_declared:
        return f"{str(spec.values).strip()}, declared"
    if legal.binary or spec.dtype == "bool":
        return "0 or 1, not declared"
    if legal.values.lengths is not None:
        return f"1..{legal.values.lengths}, {legal.source}"
    if "int" in spec.dtype:
        low, high = find_legal_ends(spec, legal)
        return f"{low:.0f}..{high:.0f}, {legal.source}"
    if legal.confined:
        return f"within the example's values, {legal.source}"
    decades = HALF_LOG_DECADES if spec.dtype == "float16" else LOG_DECADES
    sign = "0.." if legal.nonnegative else "±"
    extra = "NaN and infinity" if legal.nonfinite else "infinity" if legal.infinite else ""
    more = f", {extra}, which forward looks for" if extra else ""
    return f"{sign}{FAR_MAGNITUDE:g} and magnitudes 1e-{LOG_DECADES}..1e{decades}, {legal.source}{more}"


def find_legal_ends(spec: TensorSpec, legal: ValueRange) -> tuple[float, float]:
    """Return the smallest and the largest value that an input is drawn from, if its values are not declared."""
    values = legal.values
    if "int" in spec.dtype:
        usual = legal.usual or (0, UNDECLARED_BELOW - 1)
        low = usual[0] if values.low is None else values.low
        high = values.below - 1 if values.below is not None else usual[1] if values.high is None else values.high
        return low, high
    decades = HALF_LOG_DECADES if spec.dtype == "float16" else LOG_DECADES
    most = 1.5 * 10.0**decades
    return (0.0 if legal.nonnegative else -most), most
