"""Describe how a weight's numbers in a file differ from the model's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

CHUNK_ELEMENTS = 1 << 22
ALLOWED_ROUNDINGS = 4
"""Units in the last place by which numbers may differ, for weights that were computed again."""
SMALLEST_FLOAT16 = 1.2e-7
"""Converters to float16 raise smaller numbers to 1e-7 so that they do not become 0."""
SCALE_TOLERANCE = 1e-3
SCALE_SAMPLE_ROWS = 64


@dataclass(frozen=True)
class Alteration:
    """The difference between a parameter and the same weight in a file."""

    differing: int
    size: int
    equal_share: float
    """The share of elements that are equal bit for bit."""
    first: tuple[int, ...]
    ours: float
    theirs: float
    rows: int
    """Rows, along the first axis, in which something differs."""
    row_count: int
    is_reordered: bool
    """True if the file has the same rows in another order."""
    is_scaled: bool
    """True if the file has the numbers times a factor: one for all, or one for each row or column."""

    def __str__(self) -> str:
        where = f"first at {list(self.first)}: PyTorch {self.ours:.7g}, file {self.theirs:.7g}"
        rows = f" in {self.rows} of {self.row_count} rows" if self.row_count < self.size else ""
        what = f"{self.differing} of {self.size} elements differ{rows}, {where}"
        if self.is_reordered:
            return f"{what}; the rows are the same in another order"
        return f"{what}; the numbers are the model's times a factor" if self.is_scaled else what


def compare_numbers(tensor: torch.Tensor, orders: Sequence[torch.Tensor]) -> Alteration | None:
    """Return how the file's numbers differ from the tensor, or None if one of their orders has the same numbers.

    An order in which the numbers are scaled is the right one, even if more of them are equal by chance in another.
    """
    closest: Alteration | None = None
    for order in orders:
        alteration = _compare_in_parts(tensor, order)
        if alteration is None or alteration.is_scaled:
            return alteration
        if closest is None or alteration.differing < closest.differing:
            closest = alteration
    return closest


def _compare_in_parts(tensor: torch.Tensor, order: torch.Tensor) -> Alteration | None:
    """Compare part by part, so that a large tensor is never copied at once."""
    our_tensor, their_tensor = (t.reshape(1) if t.dim() == 0 else t for t in (tensor, order))
    differing = equal = 0
    different_rows: list[torch.Tensor] = []
    first: tuple[tuple[int, ...], float, float] | None = None
    for start, ours, theirs in _split_rows(our_tensor, their_tensor):
        wrong = _mark_differences(ours, theirs)
        count = int(wrong.sum())
        equal += int(theirs.eq(ours.to(theirs.dtype)).sum())
        different_rows.append(start + torch.nonzero(wrong.reshape(len(wrong), -1).any(1)).flatten())
        if count and first is None:
            place = tuple(torch.nonzero(wrong)[0].tolist())
            first = ((start + place[0], *place[1:]), float(ours[place]), float(theirs[place]))
        differing += count
    if first is None:
        return None
    rows = torch.cat(different_rows)
    size = our_tensor.numel()
    return Alteration(
        differing,
        size,
        equal / size,
        *first,
        len(rows),
        len(our_tensor),
        is_reordered=_is_reordered(our_tensor, their_tensor, rows),
        is_scaled=differing >= 0.5 * int(our_tensor.count_nonzero()) and _is_scaled(our_tensor, their_tensor),
    )


def _split_rows(ours: torch.Tensor, theirs: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    step = max(1, CHUNK_ELEMENTS // max(1, ours[0].numel()))
    for start in range(0, len(ours), step):
        yield start, ours[start : start + step], theirs[start : start + step]


def _mark_differences(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """Mark the elements that differ by more than rounding to the narrower of the two dtypes."""
    cast = ours.to(theirs.dtype)
    differ = cast.ne(theirs) & ~(cast.isnan() & theirs.isnan())
    if not bool(differ.any()) or not ours.is_floating_point():
        return differ
    eps = max(torch.finfo(dtype).eps for dtype in (ours.dtype, theirs.dtype))
    wide, other = ours.double(), theirs.double()
    allowed = ALLOWED_ROUNDINGS * eps * wide.abs() if ours.dtype == theirs.dtype else 2 * eps * wide.abs()
    if theirs.dtype == torch.float16 != ours.dtype:
        allowed = allowed.clamp(min=SMALLEST_FLOAT16)
    return differ & ~((other - wide).abs() <= allowed)


def _is_reordered(ours: torch.Tensor, theirs: torch.Tensor, rows: torch.Tensor) -> bool:
    """Return whether the rows that differ are the same ones in another order, by a digest of each."""
    if len(rows) < 2 or ours.shape[0] == ours.numel() or ours.dtype != theirs.dtype:
        return False
    weights = torch.randn(ours[0].numel(), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    digests = []
    for tensor in (ours, theirs):
        step = max(1, CHUNK_ELEMENTS // len(weights))
        parts = [tensor[rows[i : i + step]].flatten(1).double() @ weights for i in range(0, len(rows), step)]
        digests.append(torch.cat(parts).sort().values)
    return torch.equal(*digests)


def _is_scaled(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Return whether the file's numbers are the model's times a factor for each index of some axis.

    Folding a norm into a layer does this. Only some rows of a large tensor are compared.
    """
    for axis in range(ours.dim() if ours.dim() > 1 else 0):
        rows = torch.arange(ours.shape[axis])
        if ours.numel() > CHUNK_ELEMENTS:
            rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(axis))[:SCALE_SAMPLE_ROWS]]
        pair = [tensor.index_select(axis, rows).movedim(axis, 0).flatten(1).double() for tensor in (ours, theirs)]
        if _has_constant_ratio(*pair):
            return True
    return _has_constant_ratio(*(tensor.reshape(1, -1)[:, :CHUNK_ELEMENTS].double() for tensor in (ours, theirs)))


def _has_constant_ratio(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Return whether each row of one tensor is the same row of the other times a factor that is not 0."""
    usable = ours.abs() > 1e-3 * ours.abs().amax(1, keepdim=True)
    if int(usable.sum(1).max()) < 2:
        return False
    ratio = torch.where(usable, theirs / ours, torch.nan)
    middle = ratio.nanmedian(1, keepdim=True).values
    error = (theirs - middle * ours).abs()
    allowed = SCALE_TOLERANCE * (middle * ours).abs().amax(1, keepdim=True)
    is_alive = (middle.abs() > 1e-12) & middle.isfinite()
    known = usable.sum(1) >= 2
    return bool(known.any()) and bool(((error <= allowed) & is_alive)[known].all())
