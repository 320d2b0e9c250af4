"""A loop as one operator: `torch.scan` or `torch.while_loop` while a model is captured, plain steps in eager PyTorch.

Either way the step is the same function and its index a tensor, so what is proven in eager is what is exported.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

# Private names, seen to work in torch 2.9 to 2.13; torch.scan is not public yet.
from torch._higher_order_ops.scan import scan as _scan
from torch._higher_order_ops.while_loop import while_loop as _while_loop
from torch.utils._pytree import tree_flatten, tree_unflatten

from fairway.convert.rewrite.scalars import UNBOUND, Unrewritable, as_tensor, inside
from fairway.convert.rewrite.subscripts import get

Step = Callable[[Any, tuple[Any, ...]], tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]]


@dataclass(frozen=True)
class Steps:
    """How often, and what each step is handed: `at(k)` for the k-th, k a tensor."""

    start: Any
    stop: Any
    step: int
    at: Callable[[Any], Any]

    def __iter__(self) -> Iterator[Any]:
        """For a loop that was left to Python, over plain numbers."""
        return (self.at(k) for k in range(self.start, self.stop, self.step))


def _same(value: Any) -> Any:
    return value


def steps(*bounds: Any) -> Any:
    """`range(...)`."""
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if not isinstance(step, int):
        raise Unrewritable("the step of a range is not a plain number")
    return Steps(start, stop, step, _same)


def forever() -> Steps:
    """The steps of a `while`, which its body ends."""
    return Steps(0, MOST_STEPS, 1, _same)


MOST_STEPS = 2**31 - 1


def over(held: Any) -> Any:
    """`for row in held`: tensors by row, ranges as they are; anything else stays Python's to run through."""
    if isinstance(held, Steps):
        return held
    if isinstance(held, (Rows, torch.Tensor)):
        rows = held.tensor if isinstance(held, Rows) else held
        return Steps(0, rows.shape[0], 1, lambda k: get(rows, k))
    return held


def enumerate_(held: Any, start: Any = 0) -> Any:
    inner = over(held)
    if not isinstance(inner, Steps):
        return builtins.enumerate(held, start)
    plain = inner.start == 0 and inner.step == 1 if isinstance(inner.start, int) else False
    if not plain:
        raise Unrewritable("enumerate over a range that does not start at 0")
    return Steps(0, inner.stop, 1, lambda k: (k + start, inner.at(k)))


def zip_(*held: Any) -> Any:
    inner = [over(one) for one in held]
    if not any(isinstance(one, Steps) for one in inner):
        return builtins.zip(*held, strict=False)
    first = next(one for one in inner if isinstance(one, Steps))
    ats = [one.at if isinstance(one, Steps) else _at_list(one) for one in inner]
    if any(
        one.step != 1 or not isinstance(one.start, int) or one.start != 0 for one in inner if isinstance(one, Steps)
    ):
        raise Unrewritable("zip over a range that does not start at 0")
    return Steps(0, first.stop, 1, lambda k: tuple([at(k) for at in ats]))


def _at_list(held: Any) -> Callable[[Any], Any]:
    items = list(held)
    return lambda k: get(items, k)


def reversed_(held: Any) -> Any:
    inner = over(held)
    if isinstance(held, Rows):
        return Rows(held.tensor.flip(0))
    if not isinstance(inner, Steps):
        return builtins.reversed(held)
    if inner.step != 1:
        raise Unrewritable("a reversed range with a step")
    last = inner.start + inner.stop - 1
    return Steps(inner.start, inner.stop, 1, lambda k: inner.at(last - k))


class Rows:
    """A list of tensors of one shape, kept as one tensor with a row for each."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def append(self, value: torch.Tensor) -> None:
        self.tensor = torch.cat([self.tensor, value.unsqueeze(0)])

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            backwards = key.step == -1 and key.start is None and key.stop is None
            return Rows(self.tensor.flip(0) if backwards else self.tensor[key])
        return self.tensor[key]

    def __len__(self) -> int:
        return self.tensor.shape[0]


def unbind(held: Any, dim: int = 0) -> Any:
    """`held.unbind(dim)`, for a loop to run over."""
    return Rows(held.movedim(dim, 0)) if isinstance(held, torch.Tensor) else held.unbind(dim)


def rows(held: Any) -> torch.Tensor:
    """The rows that one step put into a list."""
    if isinstance(held, Rows):
        return held.tensor
    if not held:
        raise Unrewritable("a step of the loop puts nothing into the list")
    if not all(isinstance(value, torch.Tensor) for value in held):
        raise Unrewritable("the loop collects something other than tensors")
    return torch.stack(held)


def extend(held: Any, more: torch.Tensor) -> Rows:
    more = more.flatten(0, 1)
    if isinstance(held, Rows):
        return Rows(torch.cat([held.tensor, more]))
    return Rows(torch.cat([torch.stack(held), more]) if held else more)


def stack(held: Any, dim: int = 0) -> torch.Tensor:
    return held.tensor.movedim(0, dim) if isinstance(held, Rows) else torch.stack(held, dim)


def cat(held: Any, dim: int = 0) -> torch.Tensor:
    if not isinstance(held, Rows):
        return torch.cat(held, dim)
    place = dim if dim >= 0 else dim + held.tensor.dim() - 1
    return held.tensor.movedim(0, place).flatten(place, place + 1)


def len_(held: Any) -> Any:
    if isinstance(held, Rows):
        return held.tensor.shape[0]
    return held.shape[0] if isinstance(held, torch.Tensor) else len(held)


def sum_(held: Any, start: Any = 0) -> Any:
    return held.tensor.sum(0) + start if isinstance(held, Rows) else builtins.sum(held, start)


def collect(held: Any, element: Callable[[Any], Any]) -> Any:
    """A list comprehension."""
    held = over(held)
    if not isinstance(held, Steps):
        return [element(value) for value in held]

    def step(value: Any, carried: tuple[Any, ...]) -> Any:
        made = element(value)
        return (), (rows(made if isinstance(made, Rows) else [made]),), ()

    _, (made,), _ = loop(held, step, (), ([],), 0)
    return made


def nested(held: Any, inner: Callable[[Any], Any]) -> Any:
    """The outer part of a comprehension with two loops: the inner lists, one after another."""
    held = over(held)
    if not isinstance(held, Steps):
        parts = [inner(value) for value in held]
        return Rows(torch.cat([rows(part) for part in parts]))
    return collect(held, inner)


def loop(
    held: Any,
    step: Step,
    carried: tuple[Any, ...],
    lists: tuple[Any, ...],
    last: int,
    written: Iterable[int] = (),
    ended: int | None = None,
) -> Any:
    """Runs the step over what is held. Gives back the carried names, the lists, and the names last bound inside.

    `written` are the places in `carried` of tensors that the loop writes into: they are given their new contents in
    place, as other names may stand for the same tensor. `ended` is the place of a flag that ends the loop.
    """
    held = over(held)
    if ended is not None:
        ends, made, bound = _until_ended(held, step, carried, ended)
    elif not isinstance(held, Steps):
        ends, made, bound = _one_by_one(held, step, carried, len(lists), last)
    elif torch.compiler.is_compiling() or torch.compiler.is_exporting():
        ends, made, bound = _captured(held, step, carried, len(lists))
    else:
        ends, made, bound = _one_by_one(_eager(held), step, carried, len(lists), last)
    final = list(ends)
    for place in written:
        final[place] = _write_back(carried[place], final[place])
    joined = tuple(
        [extend(old, new) if new is not None else old for old, new in builtins.zip(lists, made, strict=True)]
    )
    return tuple(final), joined, bound


def _write_back(held: Any, new: Any) -> Any:
    """Give a tensor, list or dict its new contents in place."""
    match held:
        case torch.Tensor():
            held.copy_(new)
        case list():
            held[:] = new
        case dict():
            held.update(new)
        case _:
            return new
    return held


def _eager(held: Steps) -> Iterable[Any]:
    for k in range(int(held.start), int(held.stop), held.step):
        yield held.at(torch.tensor(k))


def _one_by_one(values: Iterable[Any], step: Step, carried: tuple[Any, ...], lists: int, last: int) -> Any:
    made: list[list[Any]] = [[] for _ in range(lists)]
    bound: tuple[Any, ...] = (UNBOUND,) * last
    for value in values:
        carried, news, bound = step(value, carried)
        for column, new in builtins.zip(made, news, strict=True):
            column.append(new)
    return carried, tuple([torch.stack(column) if column else None for column in made]), bound


def _captured(held: Steps, step: Step, carried: tuple[Any, ...], lists: int) -> Any:
    start, stop = held.start, held.stop
    if not torch.compiler.is_dynamo_compiling():
        # A scan must know that it runs at least once; of a number taken out of a tensor nothing is known.
        stop = inside(stop)
        held = replace(held, stop=stop)
    if isinstance(start, torch.Tensor) or isinstance(stop, torch.Tensor):
        return _until(held, step, carried)
    before = None
    if carried:
        first = step(held.at(torch.scalar_tensor(start, dtype=torch.int64)), carried)
        if not _alike(carried, first[0]):
            # The first step makes what the others carry on (None, 0, another shape): it is taken out of the loop.
            before, carried, start = first, first[0], start + held.step
    leaves, form = tree_flatten(carried)
    init = [_own(as_tensor(value)) for value in leaves] or [torch.zeros(())]

    def combine(state: list[Any], k: torch.Tensor) -> Any:
        ends, news, bound = step(held.at(k), tree_unflatten(state[: len(leaves)], form))
        ended, form_after = tree_flatten(ends)
        if form_after != form:
            raise Unrewritable("what a step hands on has another structure than what it was given")
        kept = [_own(as_tensor(value, old)) for value, old in builtins.zip(ended, state, strict=False)]
        return kept or [state[0].clone()], [_own(as_tensor(value)) for value in (*news, *bound)]

    ends, ys = _scan(combine, init, torch.arange(start, stop, held.step))
    if before is not None:
        ys = [
            torch.cat([as_tensor(a).unsqueeze(0), b])
            for a, b in builtins.zip((*before[1], *before[2]), ys, strict=True)
        ]
    handed_on = tree_unflatten(list(ends[: len(leaves)]), form)
    return handed_on, tuple(ys[:lists]), tuple([y[-1] for y in ys[lists:]])


def _alike(before: Any, after: Any) -> bool:
    """Whether a step hands on what it was given: the same structure, shapes and dtypes."""
    (old, form), (new, form_after) = tree_flatten(before), tree_flatten(after)
    return form == form_after and all(map(_is_like, old, new))


def _is_like(old: Any, new: Any) -> bool:
    if isinstance(old, torch.Tensor):
        return (
            isinstance(new, torch.Tensor)
            and old.dim() == new.dim()
            and old.dtype == new.dtype
            and (old.shape == new.shape)
        )
    return isinstance(old, (bool, int, float, torch.SymInt)) and (
        not isinstance(new, torch.Tensor) or (new.dim() == 0 and as_tensor(old).dtype == new.dtype)
    )


def _until_ended(held: Any, step: Step, carried: tuple[Any, ...], ended: int) -> Any:
    """Run steps until the flag at the place `ended` is true, or there are no more."""
    if not isinstance(held, Steps) or not (torch.compiler.is_compiling() or torch.compiler.is_exporting()):
        for value in _eager(held) if isinstance(held, Steps) else held:
            carried = step(value, carried)[0]
            if bool(carried[ended]):
                break
        return carried, (), ()
    start, stop = as_tensor(held.start), as_tensor(held.stop)
    first = step(held.at(start), carried)[0]
    if not _alike(carried, first):  # the first step makes what the others carry on
        carried, start = first, start + held.step
    leaves, form = tree_flatten(carried)

    def flag_of(state: tuple[Any, ...]) -> torch.Tensor:
        flag: torch.Tensor = as_tensor(tree_unflatten(list(state), form)[ended]).to(torch.bool)
        return flag

    def more(k: torch.Tensor, *state: Any) -> torch.Tensor:
        going: torch.Tensor = k < stop if held.step > 0 else k > stop
        return torch.logical_and(going, torch.logical_not(flag_of(state)))

    def again(k: torch.Tensor, *state: Any) -> Any:
        ends, form_after = tree_flatten(step(held.at(k), tree_unflatten(list(state), form))[0])
        if form_after != form:
            raise Unrewritable("what a step hands on has another structure than what it was given")
        return (k + held.step, *[_own(as_tensor(value, old)) for value, old in builtins.zip(ends, state, strict=True)])

    init = (start.clone(), *[_own(as_tensor(value)) for value in leaves])
    state = _while_loop(more, again, init)[1:]  # type: ignore[no-untyped-call]
    return tree_unflatten(list(state), form), (), ()


def _own(value: torch.Tensor) -> torch.Tensor:
    """A copy in the plain memory layout: scan compares layouts, and refuses outputs that share memory."""
    return value.clone(memory_format=torch.contiguous_format)


def _until(held: Steps, step: Step, carried: tuple[Any, ...]) -> Any:
    start, stop = as_tensor(held.start), as_tensor(held.stop)
    probe = step(held.at(start), carried)
    if probe[1] or probe[2]:
        raise Unrewritable("how often the loop runs depends on a value, and it collects a result at each step")

    def more(k: torch.Tensor, *state: Any) -> torch.Tensor:
        going: torch.Tensor = k < stop if held.step > 0 else k > stop
        return going

    def again(k: torch.Tensor, *state: Any) -> Any:
        ends = step(held.at(k), state)[0]
        return (k + held.step, *[_own(as_tensor(value, old)) for value, old in builtins.zip(ends, state, strict=True)])

    init = (start.clone(), *[_own(as_tensor(value)) for value in carried])
    return tuple(_while_loop(more, again, init)[1:]), (), ()  # type: ignore[no-untyped-call]
