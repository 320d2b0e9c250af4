"""Loops with few steps that end on a value and make a tensor longer at each step, such as decoders without a cache.

No operator can carry such a tensor. So all steps are computed, and the values of the step that ends the loop are taken
and cut to their length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fairway.convert.rewrite.iterables import Steps
from fairway.convert.rewrite.scalars import RuntimeValue, Unrewritable, as_tensor
from fairway.torch_internals import check, tree_flatten, tree_unflatten

MAX_UNROLLED_STEPS = 64
"""Loops with more steps are not unrolled."""

Step = Callable[[Any, tuple[Any, ...]], tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]]


def unroll_growing(held: Steps, step: Step, carried: tuple[RuntimeValue, ...], ended: int) -> tuple[RuntimeValue, ...]:
    """Run every step, and return what the first step carried that set the flag at the position `ended`."""
    made: list[tuple[RuntimeValue, ...]] = []
    for k in range(held.start, held.stop, held.step):
        carried = step(held.at(torch.tensor(k)), carried)[0]
        made.append(carried)
    flags = [as_tensor(values[ended]).to(torch.bool).reshape(()) for values in made[:-1]]
    is_last = torch.stack([*flags, torch.ones((), dtype=torch.bool)])
    place = is_last.to(torch.int64).argmax(0)
    forms = [tree_flatten(values) for values in made]
    if any(form != forms[-1][1] for _, form in forms[1:]):
        raise Unrewritable("a step returns another structure than it takes")
    columns = zip(*[leaves for leaves, _ in forms], strict=True)
    return tree_unflatten([_take_step(list(column), place) for column in columns], forms[-1][1])  # type: ignore[no-any-return]


def _take_step(column: Sequence[RuntimeValue], place: torch.Tensor) -> RuntimeValue:
    """Return the value of one step out of those of all steps, of which the last is the longest."""
    if not all(isinstance(value, torch.Tensor) for value in column):
        if all(value is column[-1] for value in column):
            return column[-1]
        column = [as_tensor(value) for value in column]
    last = column[-1]
    grown = [d for d in range(last.dim()) if not statically_known_true(column[0].shape[d] == last.shape[d])]
    rows = torch.stack([_fill_up(value, last) for value in column])
    value = rows.index_select(0, place.reshape(1)).squeeze(0)
    for dim in grown:
        sizes = torch.stack([as_tensor(item.shape[dim]) for item in column])
        length: RuntimeValue = sizes.index_select(0, place.reshape(1)).item()
        check(length >= 0)
        check(length <= last.shape[dim])
        value = value.narrow(dim, 0, length)
    return value


def _fill_up(value: torch.Tensor, longest: torch.Tensor) -> torch.Tensor:
    """Return the value with zeros behind it, as long as the longest."""
    for dim in range(value.dim()):
        missing = longest.shape[dim] - value.shape[dim]
        if not statically_known_true(missing == 0):
            shape = [*value.shape]
            shape[dim] = missing
            value = torch.cat([value, value.new_zeros(shape)], dim)
    return value
