"""Run a loop as one operator, `torch.scan` or `torch.while_loop`, while a model is captured, else step by step.

In both cases the step is the same function and its index a tensor, so the code proven in eager PyTorch is exported.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from fairway.convert.rewrite.filled_lists import Growing, enter_loop, start_filling
from fairway.convert.rewrite.iterables import MOST_STEPS, Rows, Steps, extend, over, rows
from fairway.convert.rewrite.scalars import UNBOUND, RuntimeValue, Unrewritable, as_tensor, inside, select
from fairway.convert.rewrite.unrolled_growth import MAX_UNROLLED_STEPS, unroll_growing
from fairway.torch_internals import scan, tree_flatten, tree_unflatten, while_loop

Step = Callable[[Any, tuple[Any, ...]], tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]]


def collect(held: RuntimeValue, element: Callable[[object], object]) -> RuntimeValue:
    """Return the list of a comprehension."""
    held = over(held)
    if not isinstance(held, Steps):
        return [element(value) for value in held]

    def step(value: RuntimeValue, carried: tuple[RuntimeValue, ...]) -> RuntimeValue:
        made = element(value)
        return (), (rows(made if isinstance(made, Rows) else [made]),), ()

    _, (made,), _ = loop(held, step, (), ([],), 0)
    return made


def nested(held: RuntimeValue, inner: Callable[[object], object]) -> RuntimeValue:
    """Return the list of a comprehension with two loops: the inner lists, one after another."""
    held = over(held)
    if not isinstance(held, Steps):
        parts = [inner(value) for value in held]
        return Rows(torch.cat([rows(part) for part in parts]))
    return collect(held, inner)


def loop(
    held: RuntimeValue,
    step: Step,
    carried: tuple[RuntimeValue, ...],
    lists: tuple[RuntimeValue, ...],
    last: int,
    written: Iterable[int] = (),
    ended: int | None = None,
    filled: Sequence[int] = (),
) -> RuntimeValue:
    """Run the step for each item of `held`. Return the carried values, the lists, and the last values of other names.

    `written` are the positions in `carried` of tensors that the loop writes into. They get their new contents in place,
    since other names may refer to the same tensor. `ended` is the position of a flag that ends the loop.
    """
    held = over(held)
    outermost = [position for position in filled if not isinstance(carried[position], Growing)]
    carried = tuple(
        [start_filling(value) if position in filled else value for position, value in builtins.enumerate(carried)]
    )
    if torch.compiler.is_dynamo_compiling():  # a step inside a step: the lists have their room by now
        ends, made, bound = _run(held, step, carried, len(lists), last, ended)
    else:
        with enter_loop(_count_most_steps(held)):
            ends, made, bound = _run(held, step, carried, len(lists), last, ended)
    final = list(ends)
    for place in written:
        final[place] = _write_back(carried[place], final[place])
    for position in outermost:
        rows_used = final[position].used_rows()
        final[position] = [] if rows_used is None else Rows(rows_used)
    joined = tuple(
        [extend(old, new) if new is not None else old for old, new in builtins.zip(lists, made, strict=True)]
    )
    return tuple(final), joined, bound


def _count_most_steps(held: RuntimeValue) -> RuntimeValue:
    if not isinstance(held, Steps):
        return len(held) if hasattr(held, "__len__") else MOST_STEPS
    # Rounded up, over numbers that are not negative: exporters write `//` of sizes as a division that truncates.
    if held.step > 0:
        count = (held.stop - held.start + held.step - 1) // held.step
    else:
        count = (held.start - held.stop - held.step - 1) // -held.step
    return MOST_STEPS if isinstance(count, torch.Tensor) else count


def _run(
    held: RuntimeValue, step: Step, carried: tuple[RuntimeValue, ...], lists: int, last: int, ended: int | None
) -> RuntimeValue:
    if ended is not None:
        return _run_until_ended(held, step, carried, ended)
    if not isinstance(held, Steps):
        return _run_one_by_one(held, step, carried, lists, last)
    if torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return _capture_steps(held, step, carried, lists)
    return _run_one_by_one(_iterate_eagerly(held), step, carried, lists, last)


def _write_back(held: RuntimeValue, new: RuntimeValue) -> RuntimeValue:
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


def _iterate_eagerly(held: Steps) -> Iterable[RuntimeValue]:
    for k in range(int(held.start), int(held.stop), held.step):
        yield held.at(torch.tensor(k))


def _run_one_by_one(
    values: Iterable[RuntimeValue], step: Step, carried: tuple[RuntimeValue, ...], lists: int, last: int
) -> RuntimeValue:
    made: list[list[RuntimeValue]] = [[] for _ in range(lists)]
    bound: tuple[RuntimeValue, ...] = (UNBOUND,) * last
    for value in values:
        carried, news, bound = step(value, carried)
        for column, new in builtins.zip(made, news, strict=True):
            column.append(new)
    return carried, tuple([torch.stack(column) if column else None for column in made]), bound


def _capture_steps(held: Steps, step: Step, carried: tuple[RuntimeValue, ...], lists: int) -> RuntimeValue:
    start, stop = held.start, held.stop
    if not torch.compiler.is_dynamo_compiling():
        # A scan must know that it runs at least once, which is unknown for a number taken out of a tensor.
        stop = inside(stop)
        held = replace(held, stop=stop)
    if isinstance(start, torch.Tensor) or isinstance(stop, torch.Tensor):
        return _run_until(held, step, carried)
    is_maybe_empty = not (isinstance(start, int) and start == 0 and held.step > 0)
    before = None
    if carried:
        first = step(held.at(torch.scalar_tensor(start, dtype=torch.int64)), carried)
        if not _is_alike(carried, first[0]):
            # The first step makes what the others carry (from None, 0 or another shape), so it runs before the loop.
            before, carried = first, first[0]
    leaves, form = tree_flatten(carried)
    init = [_copy_contiguous(as_tensor(value)) for value in leaves] or [torch.zeros(())]

    def combine(state: list[RuntimeValue], k: torch.Tensor) -> RuntimeValue:
        # ONNX Runtime's Scan refuses a loop without steps. So there is one step more than needed, without effect.
        is_over = (k >= stop if held.step > 0 else k <= stop) if is_maybe_empty else None
        place = k if is_over is None else torch.where(is_over, k - held.step, k)
        ends, news, bound = step(held.at(place), tree_unflatten(state[: len(leaves)], form))
        ended, form_after = tree_flatten(ends)
        if form_after != form:
            raise Unrewritable("a step returns another structure than it takes")
        kept = [as_tensor(value, old) for value, old in builtins.zip(ended, state, strict=False)]
        rows_made = [as_tensor(value) for value in (*news, *bound)]
        if before is not None:  # the first step is in the loop again, without effect
            is_first = k == start
            kept = [select(is_first, old, new) for old, new in builtins.zip(state, kept, strict=False)]
            olds = map(as_tensor, (*before[1], *before[2]))
            rows_made = [select(is_first, old, new) for old, new in builtins.zip(olds, rows_made, strict=True)]
        if is_over is not None:
            kept = [select(is_over, old, new) for old, new in builtins.zip(state, kept, strict=False)]
        return [*map(_copy_contiguous, kept)] or [state[0].clone()], [*map(_copy_contiguous, rows_made)]

    end = stop + held.step if is_maybe_empty else stop
    ends, ys = scan(combine, init, torch.arange(start, end, held.step))
    if is_maybe_empty:
        ys = [y.narrow(0, 0, y.shape[0] - 1) for y in ys]
    handed_on = tree_unflatten(list(ends[: len(leaves)]), form)
    return handed_on, tuple(ys[:lists]), tuple([y[-1] for y in ys[lists:]])


def _is_alike(before: RuntimeValue, after: RuntimeValue) -> bool:
    """Return whether a step's results have the structure, shapes and dtypes of its arguments."""
    (old, form), (new, form_after) = tree_flatten(before), tree_flatten(after)
    return form == form_after and all(map(_is_like, old, new))


def _is_like(old: RuntimeValue, new: RuntimeValue) -> bool:
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


def _run_until_ended(held: RuntimeValue, step: Step, carried: tuple[RuntimeValue, ...], ended: int) -> RuntimeValue:
    """Run steps until the flag at the position `ended` is true, or there are no more."""
    is_captured = torch.compiler.is_compiling() or torch.compiler.is_exporting()
    if is_captured and not isinstance(held, Steps):
        return _unroll_until_ended(held, step, carried, ended), (), ()
    if not is_captured:
        for value in _iterate_eagerly(held) if isinstance(held, Steps) else held:
            carried = step(value, carried)[0]
            if bool(carried[ended]):
                break
        return carried, (), ()
    start, stop = as_tensor(held.start), as_tensor(held.stop)
    first = step(held.at(start), carried)[0]
    if not _is_alike(carried, first):  # the first step makes what the others carry
        if _grows_at_each_step(held, step, first):
            return unroll_growing(held, step, carried, ended), (), ()
        carried, start = first, start + held.step
    leaves, form = tree_flatten(carried)

    def flag_of(state: tuple[RuntimeValue, ...]) -> torch.Tensor:
        flag: torch.Tensor = as_tensor(tree_unflatten(list(state), form)[ended]).to(torch.bool).reshape(())
        return flag

    def more(k: torch.Tensor, *state: object) -> torch.Tensor:
        going: torch.Tensor = k < stop if held.step > 0 else k > stop
        return torch.logical_and(going, torch.logical_not(flag_of(state)))

    def again(k: torch.Tensor, *state: object) -> RuntimeValue:
        ends, form_after = tree_flatten(step(held.at(k), tree_unflatten(list(state), form))[0])
        if form_after != form:
            raise Unrewritable("a step returns another structure than it takes")
        return (
            k + held.step,
            *[_copy_contiguous(as_tensor(value, old)) for value, old in builtins.zip(ends, state, strict=True)],
        )

    init = (start.clone(), *[_copy_contiguous(as_tensor(value)) for value in leaves])
    state = while_loop(more, again, init)[1:]  # type: ignore[no-untyped-call]
    return tree_unflatten(list(state), form), (), ()


def _grows_at_each_step(held: Steps, step: Step, first: tuple[RuntimeValue, ...]) -> bool:
    """Return whether a loop with few steps makes a tensor longer at each of them, so that no operator can carry it."""
    if not isinstance(held.start, int) or not isinstance(held.stop, int):
        return False
    count = len(range(held.start, held.stop, held.step))
    if not 2 < count <= MAX_UNROLLED_STEPS:
        return False
    second = step(held.at(torch.tensor(held.start + held.step)), first)[0]
    return not _is_alike(first, second)


def _unroll_until_ended(
    held: Iterable[RuntimeValue], step: Step, carried: tuple[RuntimeValue, ...], ended: int
) -> tuple[RuntimeValue, ...]:
    """Run every step of a loop over plain objects, such as layers. Keep the values from the step that set the flag."""
    for value in held:
        flag = carried[ended]
        after = step(value, carried)[0]
        if flag is not False:
            after = tuple([select(flag, old, new) for old, new in builtins.zip(carried, after, strict=True)])
        carried = after
    return carried


def _copy_contiguous(value: torch.Tensor) -> torch.Tensor:
    """Return a copy in the plain memory layout. Scan compares layouts, and refuses outputs that share memory."""
    return value.clone(memory_format=torch.contiguous_format)


def _run_until(held: Steps, step: Step, carried: tuple[RuntimeValue, ...]) -> RuntimeValue:
    start, stop = as_tensor(held.start), as_tensor(held.stop)
    probe = step(held.at(start), carried)
    if probe[1] or probe[2]:
        raise Unrewritable("the number of steps depends on a value, and the loop collects a result at each step")

    def more(k: torch.Tensor, *state: object) -> torch.Tensor:
        going: torch.Tensor = k < stop if held.step > 0 else k > stop
        return going

    def again(k: torch.Tensor, *state: object) -> RuntimeValue:
        ends = step(held.at(k), state)[0]
        return (
            k + held.step,
            *[_copy_contiguous(as_tensor(value, old)) for value, old in builtins.zip(ends, state, strict=True)],
        )

    init = (start.clone(), *[_copy_contiguous(as_tensor(value)) for value in carried])
    return tuple(while_loop(more, again, init)[1:]), (), ()  # type: ignore[no-untyped-call]
