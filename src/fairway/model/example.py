"""Chooses the sizes to export from, and reads sizes off tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.dims import Domain, Point
from fairway.model.spec import TensorSpec

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)


def choose_example(
    domain: Domain, spec: Sequence[TensorSpec], preferred: Mapping[str, int], avoid: Point | None = None
) -> dict[str, int]:
    """Return distinct sizes of at least 2, primes if possible, none equal to a fixed size.

    Exporters specialize a size of 1 and merge dims whose sizes happen to be equal. With `avoid`, each dim gets a size
    that differs from that point's, if it has another one of at least 2. If no dim has, sizes of 1 and 0 are used.
    """
    point = _choose_sizes(domain, spec, preferred, avoid, may_repeat=True)
    return point if avoid is None or point != dict(avoid) else _choose_sizes(domain, spec, preferred, avoid, False)


def _choose_sizes(
    domain: Domain, spec: Sequence[TensorSpec], preferred: Mapping[str, int], avoid: Point | None, may_repeat: bool
) -> dict[str, int]:
    taken = {size.constant_value for item in spec for size in item.shape} | (
        set(preferred.values()) if avoid is None else set()
    )
    point: dict[str, int] = {}
    for dim in domain.dims:
        if dim.name in preferred and avoid is None:
            if preferred[dim.name] not in dim.sizes:
                raise complain(
                    Code.SPEC_CONTRADICTS_EXAMPLE, f"the example's {dim.name}={preferred[dim.name]} is outside {dim}"
                )
            point[dim.name] = preferred[dim.name]
            continue
        least = max(2, 2 * dim.low - 1)
        other = None if avoid is None else avoid[dim.name]
        ranked = [n * dim.multiple for n in (*_PRIMES, *range(101, 400, 2))] + list(dim.sizes[:400]) + [dim.high]
        legal = [n for n in ranked if n in dim.sizes and n != other] or [dim.sizes[0]]
        if may_repeat and other is not None and other > 1 and max(legal) < 2:
            legal = [other]
        free = [n for n in legal if n >= least and n not in taken and n not in point.values()]
        fair = [n for n in legal if n > 1 and n not in point.values()]
        point[dim.name] = (free or fair or legal)[0]
    return point


def read_sizes(spec: Sequence[TensorSpec], tensors: Sequence[torch.Tensor]) -> dict[str, int]:
    """Return the size of each dim, read off tensors; refuse tensors that disagree."""
    sizes: dict[str, tuple[int, str]] = {}
    for item, tensor in zip(spec, tensors, strict=True):
        for axis, (size, n) in enumerate(zip(item.shape, tensor.shape, strict=True)):
            if size.affine is None:
                continue
            name, slope, offset = size.affine
            value, rest = divmod(n - offset, slope)
            place = f"{item.name} axis {axis}"
            if rest:
                raise complain(Code.SPEC_CONTRADICTS_EXAMPLE, f"{place} is {n}, which is not {size} for any {name}")
            if name in sizes and sizes[name][0] != value:
                other, where = sizes[name]
                raise complain(Code.INPUTS_DISAGREE, f"{name} is {other} by {where} and {value} by {place}")
            sizes.setdefault(name, (value, place))
    return {name: value for name, (value, _) in sizes.items()}
