"""Batches as a server merges them: their sizes, the requests in them, and the order of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fairway.judge.yardstick import Array
from fairway.model.batch_dim import find_smallest_batch
from fairway.model.dims import Dim
from fairway.model.values import Flavor


@dataclass(frozen=True)
class Batch:
    """The rows and values of each part. A part is the request of one client."""

    parts: tuple[int, ...]
    seed: int
    edge: Flavor | None = None
    """The flavor of every second part. The others have ordinary values."""

    @property
    def size(self) -> int:
        return sum(self.parts)

    @property
    def flavors(self) -> tuple[Flavor, ...]:
        return ("normal",) if self.edge is None else ("normal", self.edge)

    def list_parts(self, flavor: Flavor) -> list[int]:
        """Return the indices of the parts with values of this flavor."""
        edge = [self.edge is not None and number % 2 == 1 for number in range(len(self.parts))]
        return [number for number, is_edge in enumerate(edge) if is_edge == (flavor != "normal")]


def choose_sizes(dim: Dim, has_middle: bool) -> list[int]:
    """Return the sizes of the smallest batch of two parts, of one between, and of the largest batch."""
    low, high = 2 * find_smallest_batch(dim), dim.sizes[-1]
    between = (low + high) // 2 // dim.multiple * dim.multiple
    return sorted({low, high, *([between] if has_middle and between > low else [])})


def divide_batch(size: int, dim: Dim) -> list[tuple[int, ...]]:
    """Return ways of dividing a batch into legal parts: the smallest parts, and another way if they have several rows.

    A file that mixes rows in pairs looks right if every request has an even number of rows.
    """
    unit = find_smallest_batch(dim)
    ways = [_fill_up(size, unit, ())]
    longer = unit + dim.multiple
    if unit > dim.multiple and size - longer >= unit:
        ways.append(_fill_up(size, unit, (longer,)))
    return ways


def _fill_up(size: int, unit: int, first: tuple[int, ...]) -> tuple[int, ...]:
    """Return parts of `unit` rows after the `first` ones. The last part takes the remainder."""
    count, rest = divmod(size - sum(first), unit)
    return (*first, *(unit,) * (count - 1), unit + rest)


def shuffle_numbers(count: int, seed: int) -> list[int]:
    """Return the numbers below `count` in another order."""
    order = [int(n) for n in torch.randperm(count, generator=torch.Generator().manual_seed(seed))]
    return order if order != list(range(count)) else order[::-1]


def spread_numbers(count: int, most: int) -> list[int]:
    """Return at most `most` numbers below `count`, the first and the last among them."""
    return sorted({round(n) for n in np.linspace(0, count - 1, min(count, most))})


def split_array(array: Array, parts: Sequence[int], axis: int) -> list[Array]:
    return np.split(array, np.cumsum(parts)[:-1], axis)


def find_row_axis(batch: Batch, first_part: Array, together: Array) -> int | None:
    """Return the axis of an output with one entry for each row, or None if there is none."""
    if first_part.ndim != together.ndim:
        return None
    grown = [axis for axis in range(together.ndim) if first_part.shape[axis] != together.shape[axis]]
    sizes = [(first_part.shape[axis], together.shape[axis]) for axis in grown]
    return grown[0] if sizes == [(batch.parts[0], batch.size)] else None
