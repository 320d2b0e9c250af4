"""Input values for a spec: realistic ones by seed, and edges by flavour."""

from __future__ import annotations

import math
from typing import Literal

import torch

from fairway.model.dims import Point
from fairway.model.spec import TensorSpec

Flavour = Literal["normal", "zeros", "large", "least", "most", "same", "log", "halves", "equal", "mixed"]
FLAVOURS: tuple[Flavour, ...] = (
    "normal",
    "zeros",
    "large",
    "least",
    "most",
    "same",
    "log",
    "halves",
    "equal",
    "mixed",
)
"""`normal` draws by seed. `zeros`, `large`, `least` and `most` are edges: all zero, large numbers, and the ends of the
legal values. In `same` all whole numbers, or all lengths, are one legal value, and seeds count through them from both
ends inwards; floats are drawn. In `log` each row has its own magnitude, from 1e-6 to 1e6. In `halves` floats are
multiples of 0.5. In `equal` all rows are the same, and so are inputs of one shape and dtype. In `mixed` some rows and
some elements are at an edge and the others are ordinary."""

_MIXED_LAYERS: tuple[Flavour, ...] = ("normal", "zeros", "large", "least", "most", "same", "log")

UNDECLARED_BELOW = 10
"""Whole numbers without a declared limit are usually drawn from 0..9."""

LOG_DECADES = 6
"""In `log` values, powers of ten to either side of 1."""
HALF_LOG_DECADES = 4
"""The same upwards for float16, which ends at 65504."""
HALVES_RANGE = 4
"""In `halves` values, the largest magnitude without declared ends."""

LARGE = 30.0
NEAR = 0.9
"""Floats without declared ends go to ±LARGE, spread over its last tenth: a constant has no variance to divide by."""

FAR = 4 * LARGE
"""Where some `large` values are: far enough out that exp overflows or vanishes in float32, from ±104 on."""

ROWS_AT_EDGE, ELEMENTS_AT_EDGE = 0.5, 0.15
"""In `mixed` values: the share of rows that are at an edge throughout, and of elements besides."""


def make_tensor(
    spec: TensorSpec,
    point: Point,
    generator: torch.Generator,
    flavour: Flavour,
    usual: tuple[int, int] | None = None,
) -> torch.Tensor:
    """Return a legal tensor for `spec` at `point`, reproducible from the generator's state.

    `usual` are the ends of what whole numbers are drawn from in all flavours but `log` and `large`.
    """
    shape = spec.sizes(point)
    if flavour == "mixed":
        layers = [make_tensor(spec, point, generator, one, usual) for one in _MIXED_LAYERS]
        return _mix(layers, generator, _indivisible(spec))
    dtype = getattr(torch, spec.dtype)
    if spec.values.mask:
        return _mask(spec.values.mask, shape, generator, flavour).to(dtype)
    if spec.values.lengths is not None:
        most = spec.values.lengths.at(point)
        return _whole(shape, min(1, most), most, generator, flavour).to(dtype)
    if dtype == torch.bool:
        if flavour == "same":
            return torch.full(shape, bool(generator.initial_seed() % 2))
        if flavour in ("least", "zeros", "most"):
            return torch.full(shape, flavour == "most")
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_floating_point or dtype.is_complex:
        return _real(spec, shape, dtype, generator, flavour)
    low = int(spec.values.low or 0)
    if spec.values.below is not None:
        high = spec.values.below - 1
    elif spec.values.high is not None:
        high = int(spec.values.high)
    else:
        high = UNDECLARED_BELOW - 1
    if flavour == "log":
        return _log_whole(shape, low, high, generator).to(dtype)
    if flavour == "large":
        ends = torch.where(torch.rand(shape, generator=generator) < 0.5, low, high)
        inner = _log_whole(shape, low, high, generator)
        return torch.where(torch.rand(shape, generator=generator) < 0.25, ends, inner).to(dtype)
    low, high = (low, high) if usual is None else usual
    return _whole(shape, low, high, generator, flavour).to(dtype)


def _real(
    spec: TensorSpec, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator, flavour: Flavour
) -> torch.Tensor:
    if dtype.is_complex:
        return _complex(spec, shape, dtype, generator, flavour)
    low, high = spec.values.low, spec.values.high
    if low is not None and high is not None:
        if flavour in ("least", "most"):
            return torch.full(shape, low if flavour == "least" else high, dtype=dtype)
        if flavour == "zeros" and low <= 0 <= high:
            return torch.zeros(shape, dtype=dtype)
        if flavour == "log":
            largest = max(abs(low), abs(high))
            return (largest * _log_rows(shape, generator, -2 * LOG_DECADES, 0)).clamp(low, high).to(dtype)
        if flavour == "halves":
            drawn = (
                torch.randint(
                    math.ceil(2 * low), max(math.floor(2 * high), math.ceil(2 * low)) + 1, shape, generator=generator
                )
                / 2
            )
            return drawn.clamp(low, high).to(dtype)
        return (low + (high - low) * torch.rand(shape, generator=generator)).to(dtype)
    if flavour == "zeros":
        return torch.zeros(shape, dtype=dtype)
    if flavour in ("least", "most"):
        far = LARGE * (NEAR + (1 - NEAR) * torch.rand(shape, generator=generator))
        return (far if flavour == "most" else -far).to(dtype)
    if flavour == "log":
        most = HALF_LOG_DECADES if dtype == torch.float16 else LOG_DECADES
        return _log_rows(shape, generator, -LOG_DECADES, most).to(dtype)
    if flavour == "halves":
        # Halves of what a model multiplies by 4 or by 16 before it rounds are finer.
        parts = (2, 2, 8, 2, 2, 32, 2, 8)[generator.initial_seed() % 8]
        most = parts * HALVES_RANGE
        return (torch.randint(-most, most + 1, shape, generator=generator) / parts).to(dtype)
    drawn = torch.randn(shape, generator=generator)
    if flavour == "large":
        drawn = _spread_far(drawn * LARGE, generator)
    return drawn.to(dtype)


def _complex(
    spec: TensorSpec, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator, flavour: Flavour
) -> torch.Tensor:
    """Return complex numbers: both parts as real ones are drawn, but for `log`, whose rows keep one magnitude."""
    real = _real(spec, shape, torch.float32, generator, flavour)
    if flavour == "log":
        return torch.polar(real.abs(), 2 * math.pi * torch.rand(shape, generator=generator)).to(dtype)
    return torch.complex(real, _real(spec, shape, torch.float32, generator, flavour)).to(dtype)


def _log_rows(shape: tuple[int, ...], generator: torch.Generator, low: int, high: int) -> torch.Tensor:
    """Return values near ±1 times one power of ten for each row. The first row's power goes by the seed."""
    rows = (*shape[:-1], 1) if shape else ()
    power = torch.randint(low, high + 1, rows, generator=generator).double()
    if power.numel():
        power.view(-1)[0] = low + generator.initial_seed() % (high - low + 1)
    drawn = 0.5 + torch.rand(shape, generator=generator, dtype=torch.float64)
    sign = torch.where(torch.rand(shape, generator=generator) < 0.5, -1.0, 1.0)
    return drawn * sign * 10**power


def _log_whole(shape: tuple[int, ...], low: int, high: int, generator: torch.Generator) -> torch.Tensor:
    """Return whole numbers of all magnitudes between the ends, of either sign if both are legal."""
    largest = max(abs(low), abs(high), 1)
    power = torch.rand(shape, generator=generator, dtype=torch.float64) * math.log2(largest + 1)
    sign = torch.where(torch.rand(shape, generator=generator) < 0.5, -1.0, 1.0)
    drawn = ((2**power).floor() * sign).to(torch.int64)
    return torch.where((drawn < low) | (drawn > high), -drawn, drawn).clamp(low, high)


def _spread_far(drawn: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One element in four goes to ±FAR; so there is one as soon as there are four."""
    start = int(torch.randint(0, 4, (), generator=generator))
    chosen = (torch.arange(drawn.numel()) + start).reshape(drawn.shape) % 4 == 0
    return torch.where(chosen, FAR * torch.sgn(drawn), drawn)


def _whole(shape: tuple[int, ...], low: int, high: int, generator: torch.Generator, flavour: Flavour) -> torch.Tensor:
    if flavour in ("least", "zeros"):
        return torch.full(shape, low)
    if flavour == "most":
        return torch.full(shape, high)
    if flavour == "same":
        return torch.full(shape, _count(low, high, generator.initial_seed()))
    return torch.randint(low, high + 1, shape, generator=generator)


def _count(low: int, high: int, seed: int) -> int:
    """low, high, low + 1, high - 1, … by the seed, and over again."""
    place = seed % (high - low + 1)
    return low + place // 2 if place % 2 == 0 else high - place // 2


def _mask(kind: str, shape: tuple[int, ...], generator: torch.Generator, flavour: Flavour) -> torch.Tensor:
    """Rows padded on one side, drawn where the kind leaves it open; `least` pads nothing, `most` all but one."""
    rows, length = shape[:-1], shape[-1]
    if flavour in ("least", "zeros"):
        real = torch.full(rows, length)
    elif flavour == "most":
        real = torch.ones(rows, dtype=torch.int64)
    elif flavour == "same":
        real = torch.full(rows, _count(1, max(length, 1), generator.initial_seed()))
    else:
        real = torch.randint(1, max(length, 1) + 1, rows, generator=generator)
    side = torch.rand((), generator=generator)
    left = "left" in kind or ("right" not in kind and side < 0.5)
    place = torch.arange(length)
    keep = place >= length - real[..., None] if left else place < real[..., None]
    return keep if kind.startswith("keep") else ~keep


def bring_near(spec: TensorSpec, tensor: torch.Tensor, value: float, seed: int) -> torch.Tensor:
    """Half of a float tensor's elements moved to the neighbourhood of `value`, at all distances from 1e-5 to 1e-1.

    Tensors of other dtypes, and those in which the value is not legal, are left alone.
    """
    low, high = spec.values.low, spec.values.high
    if not tensor.dtype.is_floating_point or (low is not None and high is not None and not low <= value <= high):
        return tensor
    generator = torch.Generator().manual_seed(seed)
    power, side, chosen = (torch.rand(tensor.shape, generator=generator) for _ in range(3))
    off = 10 ** (-5 + 4 * power) * torch.where(side < 0.5, -1.0, 1.0) * max(abs(value), 1e-3)
    close = (value + off).clamp(low, high) if low is not None else value + off
    return torch.where(chosen < 0.5, close.to(tensor.dtype), tensor)


def _indivisible(spec: TensorSpec) -> int:
    """How many of the last axes belong together: a mask's row is legal only as a whole."""
    return 1 if spec.values.mask else 0


def _mix(layers: list[torch.Tensor], generator: torch.Generator, whole: int = 0) -> torch.Tensor:
    """The first layer, with some rows and some elements from the others. `whole` trailing axes are never torn."""
    first = layers[0]
    axes = first.dim() - whole
    if axes < 1 or first.numel() == 0:
        return first
    shape = first.shape[:axes] + (1,) * whole
    by_row = _pick(len(layers), (shape[0],) + (1,) * (first.dim() - 1), ROWS_AT_EDGE, generator)
    by_element = _pick(len(layers), shape, ELEMENTS_AT_EDGE, generator)
    choice = torch.where(by_row > 0, by_row, by_element)
    mixed = first.clone()
    for index, layer in enumerate(layers):
        mixed = torch.where(choice == index, layer, mixed)
    return mixed


def _pick(count: int, shape: tuple[int, ...], share: float, generator: torch.Generator) -> torch.Tensor:
    """Layer numbers: 0 but for a share of the places, which get one of the others."""
    hit = torch.rand(shape, generator=generator) < share
    return torch.where(hit, torch.randint(1, count, shape, generator=generator), 0)


def resemble(
    example: torch.Tensor, shape: tuple[int, ...], generator: torch.Generator, flavour: Flavour
) -> torch.Tensor:
    """A tensor of another shape whose values stay within those of `example`, which is all that is known to be legal."""
    if example.numel() == 0:
        return torch.zeros(shape, dtype=example.dtype)
    if flavour == "mixed":
        return _mix([resemble(example, shape, generator, one) for one in ("normal", "least", "most")], generator)
    if flavour in ("least", "most") and not example.dtype.is_complex:
        edge = example.min() if flavour == "least" else example.max()
        if not example.dtype.is_floating_point:
            return edge.expand(shape).clone()
        # Spread over the last tenth of the range: a constant has no variance to divide by.
        inward = (1 - NEAR) * float(example.double().max() - example.double().min())
        off = inward * torch.rand(shape, generator=generator, dtype=torch.float64)
        return (edge.double() + (off if flavour == "least" else -off)).to(example.dtype)
    if example.dtype.is_floating_point and example.numel() > 8:
        wide = example.double()
        spread = float(wide.std())
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64) * spread + float(wide.mean())
        return drawn.clamp(float(wide.min()), float(wide.max())).to(example.dtype)
    if not (example.dtype.is_floating_point or example.dtype.is_complex or example.dtype == torch.bool):
        drawn = torch.randint(int(example.min()), int(example.max()) + 1, shape, generator=generator)
        return drawn.to(example.dtype)
    pick = torch.randint(0, example.numel(), shape, generator=generator)
    return example.reshape(-1)[pick.reshape(-1)].reshape(shape).clone()
