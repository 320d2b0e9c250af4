"""A sample: the sizes and values of one test, reproducible from plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from fairway.model.dims import Point, describe_point
from fairway.model.ranges import ValueRange
from fairway.model.spec import TensorSpec
from fairway.model.values import Flavor, bring_near

TouchKind = Literal["near", "exact", "scale", "fill", "nonfinite"]


@dataclass(frozen=True)
class Touch:
    """A change to the values of a sample: toward a number, to exactly that number, or scaled by it."""

    kind: TouchKind
    value: float
    input: str = ""
    """The input that is changed; empty for all of them."""

    def __str__(self) -> str:
        name = self.input or "values"
        if self.kind == "scale":
            return f"{name} times {self.value:g}"
        if self.kind == "nonfinite":
            return "with NaN and infinity"
        word = {"near": "near", "exact": "at and beside", "fill": "all"}[self.kind]
        return f"{name} {word} {self.value:g}"


@dataclass(frozen=True)
class Sample:
    """One set of inputs: a point, a seed and a flavor; or the user's own tensors, by number."""

    point: tuple[tuple[str, int], ...]
    seed: int = 1
    flavor: Flavor = "normal"
    data: int | None = None
    touch: Touch | None = None

    @property
    def sizes(self) -> dict[str, int]:
        return dict(self.point)

    def __str__(self) -> str:
        source = f"your data #{self.data}" if self.data is not None else f"seed {self.seed}"
        edge = "" if self.flavor == "normal" else f", {self.flavor} values"
        touch = "" if self.touch is None else f", {self.touch}"
        return f"{describe_point(self.sizes)} ({source}{edge}{touch})"


def make_sample(point: Point, seed: int = 1, flavor: Flavor = "normal") -> Sample:
    return Sample(tuple(point.items()), seed, flavor)


def apply_touch(
    specs: Sequence[TensorSpec],
    ranges: Sequence[ValueRange],
    tensors: Sequence[torch.Tensor],
    touch: Touch,
    seed: int,
) -> list[torch.Tensor]:
    """Return the tensors with a sample's touch applied. An input whose values would become illegal stays unchanged."""
    touched = []
    for spec, legal, tensor in zip(specs, ranges, tensors, strict=True):
        if (touch.input and touch.input != spec.name) or _is_settled(spec, legal):
            touched.append(tensor)
        elif touch.kind == "nonfinite":
            touched.append(_place_nonfinite(tensor, seed, legal) if legal.has_nonfinite else tensor)
        elif tensor.dtype.is_complex:
            touched.append(_touch_complex(legal, tensor, touch, seed))
        elif touch.kind == "near":
            touched.append(bring_near(spec, tensor, touch.value, seed))
        elif touch.kind == "scale":
            touched.append(_clamp(legal, tensor, tensor * touch.value) if _is_real(tensor) else tensor)
        else:
            touched.append(_place_number(legal, tensor, touch, seed))
    return touched


def _place_nonfinite(tensor: torch.Tensor, seed: int, legal: ValueRange) -> torch.Tensor:
    """Return the tensor with infinities, and NaN if it is legal, in one element of six each, and in at least one."""
    pick = torch.randint(0, 6, tensor.shape, generator=torch.Generator().manual_seed(seed))
    if pick.numel():
        pick.view(-1)[0] = seed % 3
    missing = float("nan") if legal.nonfinite else float("inf")
    for number, value in enumerate((missing, float("inf"), -float("inf"))):
        tensor = torch.where(pick == number, value, tensor)
    return tensor


def _touch_complex(legal: ValueRange, tensor: torch.Tensor, touch: Touch, seed: int) -> torch.Tensor:
    """Return complex numbers with a touch: all of them scaled, or some replaced by a real number."""
    if touch.kind == "scale":
        return tensor * touch.value
    if touch.kind == "near":
        return tensor
    real = _place_number(legal, tensor.real, touch, seed)
    return torch.where(real == tensor.real, tensor, real.to(tensor.dtype))


def _is_settled(spec: TensorSpec, legal: ValueRange) -> bool:
    """Return whether single values must not be changed: masks, lengths, indices and confined inputs."""
    return bool(spec.values.mask or legal.values.lengths or legal.values.under or legal.confined)


def _is_real(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point


def _find_ends(legal: ValueRange) -> tuple[float, float]:
    values = legal.values
    high = values.below - 1 if values.below is not None else values.high
    low = values.low if values.low is not None else (0.0 if values.below is not None or legal.nonnegative else None)
    return (-float("inf") if low is None else low), (float("inf") if high is None else high)


def _clamp(legal: ValueRange, tensor: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    low, high = _find_ends(legal)
    return changed.clamp(low, high).to(tensor.dtype)


def _place_number(legal: ValueRange, tensor: torch.Tensor, touch: Touch, seed: int) -> torch.Tensor:
    """Return the tensor with a number in it.

    With `fill` the number is everywhere. With `exact` the number and its neighbors above and below are in some rows or
    elements, chosen by the seed.
    """
    low, high = _find_ends(legal)
    number = touch.value
    if not low <= number <= high or (legal.binary and number not in (0, 1)):
        return tensor
    if not _is_real(tensor) and (number != int(number) or not _fits(tensor.dtype, int(number))):
        return tensor
    filled = torch.full_like(tensor, number if _is_real(tensor) else int(number))
    if touch.kind == "fill" or tensor.dtype == torch.bool or legal.binary:
        return filled
    if _is_real(tensor):
        ends = torch.finfo(tensor.dtype)
        above, below = (torch.nextafter(filled, torch.full_like(filled, end)) for end in (ends.max, ends.min))
    else:
        above, below = filled + 1, filled - 1
    choices = [filled, above.clamp(low, high).to(tensor.dtype), below.clamp(low, high).to(tensor.dtype)]
    if seed % 3 == 0:
        return filled
    generator = torch.Generator().manual_seed(seed)
    by_row = seed % 3 == 1 and tensor.dim() > 1
    shape = (*tensor.shape[:-1], 1) if by_row else tuple(tensor.shape)
    pick = torch.randint(0, 4 if by_row else 6, shape, generator=generator)
    for number_of_choice, choice in enumerate(choices):
        tensor = torch.where(pick == number_of_choice, choice, tensor)
    return tensor


def _fits(dtype: torch.dtype, number: int) -> bool:
    if dtype == torch.bool:
        return number in (0, 1)
    info = torch.iinfo(dtype)
    return info.min <= number <= info.max
