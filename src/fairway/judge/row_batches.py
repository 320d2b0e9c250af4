"""Batches as a server merges them: which sizes, divided into which requests, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fairway.judge.yardstick import Array
from fairway.model.batch_dim import smallest_batch
from fairway.model.dims import Dim
from fairway.model.values import Flavour


@dataclass(frozen=True)
class Batch:
    """The number of rows of each part, and which values the parts hold. A part is what one client would send."""

    parts: tuple[int, ...]
    seed: int
    edge: Flavour | None = None
    """The flavour of every second part; the others hold ordinary values."""

    @property
    def size(self) -> int:
        return sum(self.parts)

    @property
    def flavours(self) -> tuple[Flavour, ...]:
        return ("normal",) if self.edge is None else ("normal", self.edge)

    def numbers(self, flavour: Flavour) -> list[int]:
        """Return the numbers of the parts that hold values of this flavour."""
        edge = [self.edge is not None and number % 2 == 1 for number in range(len(self.parts))]
        return [number for number, is_edge in enumerate(edge) if is_edge == (flavour != "normal")]


def choose_sizes(dim: Dim, middle: bool) -> list[int]:
    """Return the smallest batch of two parts, a size between, and the limit."""
    low, high = 2 * smallest_batch(dim), dim.sizes[-1]
    between = (low + high) // 2 // dim.multiple * dim.multiple
    return sorted({low, high, *([between] if middle and between > low else [])})


def divide(size: int, dim: Dim) -> list[tuple[int, ...]]:
    """Return ways of dividing a batch into legal parts: the smallest parts, and if these have several rows, others too.

    A file that mixes rows in pairs looks right if every request has an even number of rows.
    """
    unit = smallest_batch(dim)
    ways = [_fill_up(size, unit, ())]
    longer = unit + dim.multiple
    if unit > dim.multiple and size - longer >= unit:
        ways.append(_fill_up(size, unit, (longer,)))
    return ways


def _fill_up(size: int, unit: int, first: tuple[int, ...]) -> tuple[int, ...]:
    """Return parts of `unit` rows after the `first` ones; the last part takes the remainder."""
    count, rest = divmod(size - sum(first), unit)
    return (*first, *(unit,) * (count - 1), unit + rest)


def shuffle(count: int, seed: int) -> list[int]:
    """Return the numbers below `count` in another order."""
    order = [int(n) for n in torch.randperm(count, generator=torch.Generator().manual_seed(seed))]
    return order if order != list(range(count)) else order[::-1]


def spread(count: int, most: int) -> list[int]:
    """Return at most `most` numbers below `count`, the first and the last among them."""
    return sorted({round(n) for n in np.linspace(0, count - 1, min(count, most))})


def split_array(array: Array, parts: Sequence[int], axis: int) -> list[Array]:
    return np.split(array, np.cumsum(parts)[:-1], axis)


def find_row_axis(batch: Batch, first_part: Array, together: Array) -> int | None:
    """Return the axis of an output that has one entry for each row; None if it has none."""
    if first_part.ndim != together.ndim:
        return None
    grown = [axis for axis in range(together.ndim) if first_part.shape[axis] != together.shape[axis]]
    sizes = [(first_part.shape[axis], together.shape[axis]) for axis in grown]
    return grown[0] if sizes == [(batch.parts[0], batch.size)] else None
