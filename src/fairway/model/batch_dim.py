"""The batch dim: the one dim that counts rows, by the inputs alone. The judge and the server use the same rule."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.model.dims import Dim
from fairway.model.spec import TensorSpec


def find_batch_dim(specs: Sequence[TensorSpec]) -> str | None:
    """Return the first dim of the first input, if each input has it on exactly one axis and in no expression."""
    if not specs or not all(spec.shape for spec in specs):
        return None
    name = specs[0].shape[0].text
    if name not in specs[0].shape[0].names:
        return None
    once = all([size.text for size in spec.shape if name in size.names] == [name] for spec in specs)
    return name if once else None


def find_batch_axes(specs: Sequence[TensorSpec], dim: str) -> dict[str, int]:
    """Return the axis of each input that has the batch dim."""
    return {spec.name: [size.text for size in spec.shape].index(dim) for spec in specs}


def find_smallest_batch(dim: Dim) -> int:
    """Return the smallest legal number of rows that is not zero."""
    return max(1, -(-dim.low // dim.multiple)) * dim.multiple
