"""Draws input values for a spec: realistic ones by seed, and edges by flavor."""

from __future__ import annotations

import math
from typing import Literal

import torch

from fairway.model.dims import Point
from fairway.model.spec import TensorSpec

Flavor = Literal["normal", "zeros", "large", "least", "most", "same", "log", "halves", "equal", "mixed"]
FLAVORS: tuple[Flavor, ...] = (
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
legal values. In `same` all integers, or all lengths, are one legal value; seeds count through these values from both
ends inward, and floats are drawn. In `log` each row has its own magnitude, from 1e-6 to 1e6. In `halves` floats are
multiples of 0.5, with zeros among them. In `equal` all rows are the same, and so are inputs of one shape and dtype. In
`mixed` some rows and some elements are at an edge and the others are ordinary."""

_MIXED_LAYERS: tuple[Flavor, ...] = ("normal", "zeros", "large", "least", "most", "same", "log")

UNDECLARED_BELOW = 10
"""Integers without a declared limit are usually drawn from 0..9."""

LOG_DECADES = 6
"""In `log` values, the powers of ten below and above 1."""
HALF_LOG_DECADES = 4
"""The powers of ten above 1 for float16, which ends at 65504."""
HALVES_RANGE = 4
"""In `halves` values, the largest magnitude without declared ends."""

ZEROS_AMONG_HALVES = 1 / 3
"""In every second sample of `halves`, the share of elements that are exactly 0, next to others of either sign."""

LARGE_MAGNITUDE = 30.0
NEAR_EDGE_SHARE = 0.9
"""Edges of floats without declared ends are at this share of LARGE_MAGNITUDE or more: a constant has no variance."""

FAR_MAGNITUDE = 4 * LARGE_MAGNITUDE
"""The magnitude of some `large` values: exp overflows or vanishes in float32 beyond ±104."""

ROWS_AT_EDGE, ELEMENTS_AT_EDGE = 0.5, 0.15
"""In `mixed` values: the share of rows that are at an edge throughout, and of other elements that are."""


def make_tensor(
    spec: TensorSpec,
    point: Point,
    generator: torch.Generator,
    flavor: Flavor,
    usual: tuple[int, int] | None = None,
) -> torch.Tensor:
    """Return a legal tensor for `spec` at `point`, reproducible from the generator's state.

    `usual` are the ends of the range for integers in all flavors except `log` and `large`.
    """
    shape = spec.sizes(point)
    if flavor == "mixed":
        layers = [make_tensor(spec, point, generator, layer, usual) for layer in _MIXED_LAYERS]
        return _mix(layers, generator, _count_row_axes(spec))
    dtype = getattr(torch, spec.dtype)
    if spec.values.mask:
        return _draw_mask(spec.values.mask, shape, generator, flavor).to(dtype)
    if spec.values.lengths is not None:
        most = spec.values.lengths.at(point)
        return _draw_integers(shape, min(1, most), most, generator, flavor).to(dtype)
    if spec.values.under is not None:
        return _draw_integers(shape, 0, max(spec.values.under.at(point) - 1, 0), generator, flavor).to(dtype)
    if dtype == torch.bool:
        if flavor == "same":
            return torch.full(shape, bool(generator.initial_seed() % 2))
        if flavor in ("least", "zeros", "most"):
            return torch.full(shape, flavor == "most")
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_floating_point or dtype.is_complex:
        return _draw_floats(spec, shape, dtype, generator, flavor)
    low = int(spec.values.low or 0)
    if spec.values.below is not None:
        high = spec.values.below - 1
    elif spec.values.high is not None:
        high = int(spec.values.high)
    else:
        high = UNDECLARED_BELOW - 1
    if flavor == "log":
        return _draw_log_integers(shape, low, high, generator).to(dtype)
    if flavor == "large":
        ends = torch.where(torch.rand(shape, generator=generator) < 0.5, low, high)
        inner = _draw_log_integers(shape, low, high, generator)
        return torch.where(torch.rand(shape, generator=generator) < 0.25, ends, inner).to(dtype)
    low, high = (low, high) if usual is None else usual
    return _draw_integers(shape, low, high, generator, flavor).to(dtype)


def _draw_floats(
    spec: TensorSpec, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator, flavor: Flavor
) -> torch.Tensor:
    if dtype.is_complex:
        return _draw_complex(spec, shape, dtype, generator, flavor)
    low, high = spec.values.low, spec.values.high
    if low is not None and high is not None:
        if flavor in ("least", "most"):
            return torch.full(shape, low if flavor == "least" else high, dtype=dtype)
        if flavor == "zeros" and low <= 0 <= high:
            return torch.zeros(shape, dtype=dtype)
        if flavor == "log":
            largest = max(abs(low), abs(high))
            return (largest * _draw_log_rows(shape, generator, -2 * LOG_DECADES, 0)).clamp(low, high).to(dtype)
        if flavor == "halves":
            drawn = (
                torch.randint(
                    math.ceil(2 * low), max(math.floor(2 * high), math.ceil(2 * low)) + 1, shape, generator=generator
                )
                / 2
            )
            drawn = _sprinkle_zeros(drawn, generator) if low <= 0 <= high else drawn
            return drawn.clamp(low, high).to(dtype)
        return (low + (high - low) * torch.rand(shape, generator=generator)).to(dtype)
    if flavor == "zeros":
        return torch.zeros(shape, dtype=dtype)
    if flavor in ("least", "most"):
        far = LARGE_MAGNITUDE * (NEAR_EDGE_SHARE + (1 - NEAR_EDGE_SHARE) * torch.rand(shape, generator=generator))
        return (far if flavor == "most" else -far).to(dtype)
    if flavor == "log":
        most = HALF_LOG_DECADES if dtype == torch.float16 else LOG_DECADES
        return _draw_log_rows(shape, generator, -LOG_DECADES, most).to(dtype)
    if flavor == "halves":
        # Some values are finer, for models that multiply by 4 or by 16 before they round.
        parts = (2, 2, 8, 2, 2, 32, 2, 8)[generator.initial_seed() % 8]
        most = parts * HALVES_RANGE
        return _sprinkle_zeros(torch.randint(-most, most + 1, shape, generator=generator) / parts, generator).to(dtype)
    drawn = torch.randn(shape, generator=generator)
    if flavor == "large":
        drawn = _spread_far(drawn * LARGE_MAGNITUDE, generator)
    return drawn.to(dtype)


def _sprinkle_zeros(drawn: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return the numbers with zeros among them for odd seeds."""
    if generator.initial_seed() % 2 == 0:
        return drawn
    return torch.where(torch.rand(drawn.shape, generator=generator) < ZEROS_AMONG_HALVES, 0.0, drawn)


def _draw_complex(
    spec: TensorSpec, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator, flavor: Flavor
) -> torch.Tensor:
    """Return complex numbers. Both parts are drawn like real numbers, except in `log`: its rows have one magnitude."""
    real = _draw_floats(spec, shape, torch.float32, generator, flavor)
    if flavor == "log":
        return torch.polar(real.abs(), 2 * math.pi * torch.rand(shape, generator=generator)).to(dtype)
    return torch.complex(real, _draw_floats(spec, shape, torch.float32, generator, flavor)).to(dtype)


def _draw_log_rows(shape: tuple[int, ...], generator: torch.Generator, low: int, high: int) -> torch.Tensor:
    """Return values near ±1 times one power of ten for each row. The seed decides the first row's power."""
    rows = (*shape[:-1], 1) if shape else ()
    power = torch.randint(low, high + 1, rows, generator=generator).double()
    if power.numel():
        power.view(-1)[0] = low + generator.initial_seed() % (high - low + 1)
    drawn = 0.5 + torch.rand(shape, generator=generator, dtype=torch.float64)
    sign = torch.where(torch.rand(shape, generator=generator) < 0.5, -1.0, 1.0)
    return drawn * sign * 10**power


def _draw_log_integers(shape: tuple[int, ...], low: int, high: int, generator: torch.Generator) -> torch.Tensor:
    """Return integers of all magnitudes between the ends, of either sign if both are legal."""
    largest = max(abs(low), abs(high), 1)
    power = torch.rand(shape, generator=generator, dtype=torch.float64) * math.log2(largest + 1)
    sign = torch.where(torch.rand(shape, generator=generator) < 0.5, -1.0, 1.0)
    drawn = ((2**power).floor() * sign).to(torch.int64)
    return torch.where((drawn < low) | (drawn > high), -drawn, drawn).clamp(low, high)


def _spread_far(drawn: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Move every fourth element to ±FAR_MAGNITUDE, so four elements are enough to have one."""
    start = int(torch.randint(0, 4, (), generator=generator))
    chosen = (torch.arange(drawn.numel()) + start).reshape(drawn.shape) % 4 == 0
    return torch.where(chosen, FAR_MAGNITUDE * torch.sgn(drawn), drawn)


def _draw_integers(
    shape: tuple[int, ...], low: int, high: int, generator: torch.Generator, flavor: Flavor
) -> torch.Tensor:
    if flavor in ("least", "zeros"):
        return torch.full(shape, low)
    if flavor == "most":
        return torch.full(shape, high)
    if flavor == "same":
        return torch.full(shape, _count_through(low, high, generator.initial_seed()))
    return torch.randint(low, high + 1, shape, generator=generator)


def _count_through(low: int, high: int, seed: int) -> int:
    """Return low, high, low + 1, high - 1, … by the seed, and then from the start."""
    place = seed % (high - low + 1)
    return low + place // 2 if place % 2 == 0 else high - place // 2


def _draw_mask(kind: str, shape: tuple[int, ...], generator: torch.Generator, flavor: Flavor) -> torch.Tensor:
    """Return rows padded on one side, a random one unless the kind names it; `least` pads none, `most` all but one."""
    rows, length = shape[:-1], shape[-1]
    if flavor in ("least", "zeros"):
        real = torch.full(rows, length)
    elif flavor == "most":
        real = torch.ones(rows, dtype=torch.int64)
    elif flavor == "same":
        real = torch.full(rows, _count_through(1, max(length, 1), generator.initial_seed()))
    else:
        real = torch.randint(1, max(length, 1) + 1, rows, generator=generator)
    side = torch.rand((), generator=generator)
    left = "left" in kind or ("right" not in kind and side < 0.5)
    place = torch.arange(length)
    keep = place >= length - real[..., None] if left else place < real[..., None]
    return keep if kind.startswith("keep") else ~keep


def bring_near(spec: TensorSpec, tensor: torch.Tensor, value: float, seed: int) -> torch.Tensor:
    """Move half of a float tensor's elements near `value`, at distances of all magnitudes from 1e-5 to 1e-1.

    Tensors of other dtypes, and those for which the value is not legal, are returned unchanged.
    """
    low, high = spec.values.low, spec.values.high
    if not tensor.dtype.is_floating_point or (low is not None and high is not None and not low <= value <= high):
        return tensor
    generator = torch.Generator().manual_seed(seed)
    power, side, chosen = (torch.rand(tensor.shape, generator=generator) for _ in range(3))
    off = 10 ** (-5 + 4 * power) * torch.where(side < 0.5, -1.0, 1.0) * max(abs(value), 1e-3)
    close = (value + off).clamp(low, high) if low is not None else value + off
    return torch.where(chosen < 0.5, close.to(tensor.dtype), tensor)


def _count_row_axes(spec: TensorSpec) -> int:
    """Return the number of trailing axes to keep together: a mask's rows are legal only when complete."""
    return 1 if spec.values.mask else 0


def _mix(layers: list[torch.Tensor], generator: torch.Generator, row_axes: int = 0) -> torch.Tensor:
    """Return the first layer with some rows and elements of the others. `row_axes` trailing axes stay together."""
    first = layers[0]
    axes = first.dim() - row_axes
    if axes < 1 or first.numel() == 0:
        return first
    shape = first.shape[:axes] + (1,) * row_axes
    by_row = _pick_layers(len(layers), (shape[0],) + (1,) * (first.dim() - 1), ROWS_AT_EDGE, generator)
    by_element = _pick_layers(len(layers), shape, ELEMENTS_AT_EDGE, generator)
    choice = torch.where(by_row > 0, by_row, by_element)
    mixed = first.clone()
    for index, layer in enumerate(layers):
        mixed = torch.where(choice == index, layer, mixed)
    return mixed


def _pick_layers(count: int, shape: tuple[int, ...], share: float, generator: torch.Generator) -> torch.Tensor:
    """Return layer numbers: 0, except for a share of the places, which get one of the others."""
    hit = torch.rand(shape, generator=generator) < share
    return torch.where(hit, torch.randint(1, count, shape, generator=generator), 0)


def resemble(example: torch.Tensor, shape: tuple[int, ...], generator: torch.Generator, flavor: Flavor) -> torch.Tensor:
    """Return a tensor of another shape whose values stay within those of `example`: no others are known to be legal."""
    if example.numel() == 0:
        return torch.zeros(shape, dtype=example.dtype)
    if flavor == "mixed":
        return _mix([resemble(example, shape, generator, edge) for edge in ("normal", "least", "most")], generator)
    if flavor in ("least", "most") and not example.dtype.is_complex:
        edge = example.min() if flavor == "least" else example.max()
        if not example.dtype.is_floating_point:
            return edge.expand(shape).clone()
        # Spread over the last tenth of the range: a constant has no variance to divide by.
        inward = (1 - NEAR_EDGE_SHARE) * float(example.double().max() - example.double().min())
        off = inward * torch.rand(shape, generator=generator, dtype=torch.float64)
        return (edge.double() + (off if flavor == "least" else -off)).to(example.dtype)
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
