"""Learn by running PyTorch which values are legal for inputs whose values are not declared.

An example of constants, or a spec line without limits, does not say what may be fed. Whole numbers that index a table
end with it, and the run shows which table that is. For all others, values are tried from small to large until PyTorch
refuses one. Floats are tried in every flavour.
"""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fairway.judge.budget import affordable_point, volume
from fairway.judge.runtimes.eager import run_eager
from fairway.judge.runtimes.operator_watch import Watch
from fairway.model.dims import Size
from fairway.model.example import choose_example
from fairway.model.ranges import NOT_DECLARED, ValueRange
from fairway.model.source import is_models
from fairway.model.spec import TensorSpec, Values
from fairway.model.subject import Subject
from fairway.model.values import Flavour

TRIED_UPWARD = (9, 64, 300, 70_000, 2**31 + 7)
TRIED_DOWNWARD = (0, -1, -100, -70_000, -(2**31) - 7)
"""Whole numbers that are tried. They lie beyond the usual table sizes, beyond 16 bits and beyond 32 bits."""

WIDEST_BISECTED = 70_000
"""Largest number up to which the exact end of the legal numbers is looked for. Beyond it, trials may take too long."""

SLOW_FACTOR, SLOW_SECONDS = 20.0, 0.5
"""A trial that takes longer than this many times an ordinary run, and this many seconds more, is the last one."""

TRIED_FLAVOURS: tuple[Flavour, ...] = ("zeros", "large", "least", "most", "log", "halves", "equal", "mixed")
LEAST_FLAVOURS = 2
"""Of these, flavours that are tried whatever a run costs."""
TRIALS_FLOPS = 5e10
"""Floating-point operations that trials of flavours may take in all."""

NONFINITE_FUNCTIONS = frozenset(
    {
        "isnan",
        "isinf",
        "isfinite",
        "isposinf",
        "isneginf",
        "nan_to_num",
        "nan_to_num_",
        "nansum",
        "nanmean",
    }
)
"""A model that calls one of these on an input expects NaN or infinity there."""

MOST_LITERALS = 8
COMMON_NUMBERS = (0, 1, -1, 2)
"""Numbers that ordinary and edge values contain already."""

Report = Callable[[tuple[ValueRange, ...]], None]


@dataclass(frozen=True)
class Learned:
    """Ranges in the order of the spec, and the numbers of the model's own code."""

    ranges: tuple[ValueRange, ...]
    literals: tuple[float, ...] = ()


def learn_values(subject: Subject, report: Report) -> Learned:
    """Run the model to learn its legal values. `report` gets what is known so far, since a trial may be the last."""
    base = [t.clone() for t in _with_small_numbers(subject, subject.make(affordable_point(subject), 1, "normal"))]
    watch = _Nonfinite(base)
    try:
        codes = _codes_that_run(lambda: _run_watched(subject, base, watch))
    except Exception:
        return Learned(subject.ranges)  # the look at the model reports this
    ranges = [
        replace(legal, nonfinite=index in watch.asked and not legal.declared and _is_real(subject.spec[index]))
        for index, legal in enumerate(subject.ranges)
    ]
    for index, (spec, legal) in enumerate(zip(subject.spec, ranges, strict=True)):
        if "int" in spec.dtype and legal.source == NOT_DECLARED and not legal.binary:
            ranges[index] = _learn_whole(_with_ranges(subject, ranges), index)
            report(tuple(ranges))
    return Learned(_learn_floats(_with_ranges(subject, ranges), base), find_literals(codes, subject.model))


def _run_watched(subject: Subject, tensors: list[torch.Tensor], watch: TorchFunctionMode) -> None:
    args, kwargs = subject.call(tensors)
    with torch.no_grad(), watch:
        subject.model(*args, **kwargs)


def _with_ranges(subject: Subject, ranges: Sequence[ValueRange]) -> Subject:
    return replace(subject, study=replace(subject.study, ranges=tuple(ranges)))


def _with_small_numbers(subject: Subject, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors with undeclared whole numbers of spec lines at zero, the likeliest to be legal."""
    free = [
        "int" in spec.dtype and legal.source == NOT_DECLARED and subject.given is None
        for spec, legal in zip(subject.spec, subject.ranges, strict=True)
    ]
    return [torch.zeros_like(t) if zero else t for t, zero in zip(tensors, free, strict=True)]


def _codes_that_run(run: Callable[[], Any]) -> list[types.CodeType]:
    """Return the functions of the model and its libraries, other than torch, that a run enters."""
    entered: dict[types.CodeType, None] = {}

    def note(frame: types.FrameType, event: str, _: Any) -> None:
        if frame.f_code not in entered and is_models(frame.f_code.co_filename):
            entered[frame.f_code] = None

    before = sys.gettrace()
    sys.settrace(note)
    try:
        run()
    finally:
        sys.settrace(before)
    return list(entered)


def find_literals(codes: Sequence[types.CodeType], model: torch.nn.Module) -> tuple[float, ...]:
    """Return the numbers in the code that runs and in the attributes of modules, without the common ones."""
    found: dict[float, None] = {}
    for code in codes:
        found.update((float(n), None) for n in code.co_consts if type(n) in (int, float))
    for module in model.modules():
        numbers = [v for k, v in vars(module).items() if type(v) is float and not k.startswith("_")]
        found.update(dict.fromkeys(numbers))
    finite = [n for n in found if n not in COMMON_NUMBERS and abs(n) < 1e30]
    # Fractions are more often thresholds than whole numbers, which are mostly axes and sizes.
    return tuple(sorted(finite, key=lambda n: n.is_integer()))[:MOST_LITERALS]


class _Lookups(Watch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Notes how many rows the tables have that an input of whole numbers indexes."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._inputs = [t.reshape(-1).long() if not t.dtype.is_floating_point else None for t in tensors]
        self.rows: dict[int, int] = {}

    def watch(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        name = func.overloadpacket.__name__
        if name in ("embedding", "_embedding_bag", "_embedding_bag_forward_only"):
            self._note(args[1], args[0].shape[0])
        elif name in ("index_select", "gather"):
            self._note(args[2], args[0].shape[args[1]] if args[0].dim() else 1)
        elif name == "index" and len([i for i in args[1] if i is not None]) == 1:
            axis = next(k for k, i in enumerate(args[1]) if i is not None)
            self._note(args[1][axis], args[0].shape[axis])
        return func(*args, **kwargs)

    def _note(self, places: Any, rows: int) -> None:
        if not isinstance(places, torch.Tensor) or places.dtype in (torch.bool, torch.uint8):
            return
        flat = places.reshape(-1).long()
        for index, tensor in enumerate(self._inputs):
            if tensor is not None and tensor.numel() == flat.numel() > 0 and torch.equal(tensor, flat):
                self.rows[index] = min(rows, self.rows.get(index, rows))


def _learn_whole(subject: Subject, index: int) -> ValueRange:
    """Return what one input of whole numbers may hold."""
    spec, legal = subject.spec[index], subject.ranges[index]
    base = _with_small_numbers(subject, subject.make(subject.example, 1, "normal"))
    rows = _rows_indexed(subject, index, base)
    if rows is not None:
        values = Values(low=0.0, high=float(rows - 1))
        return replace(legal, values=values, usual=None, source=f"from the table of {rows} rows that it indexes")
    info = torch.iinfo(getattr(torch, spec.dtype))
    accepts = _Trials(subject, index, base)
    low, high = int(base[index].min()), int(base[index].max())
    upward, downward = [*TRIED_UPWARD], [*TRIED_DOWNWARD]
    if info.bits <= 16:  # all numbers of such a dtype are likely: pixels, samples of sound
        upward, downward = [*upward, info.max], [*downward, info.min]
    high, refused_above = _last_accepted(accepts, high, sorted(v for v in upward if high < v <= info.max))
    low, refused_below = _last_accepted(
        accepts, low, sorted((v for v in downward if info.min <= v < low), reverse=True)
    )
    dim = _dim_that_ends(subject, index, high) if refused_above else None
    if dim is not None:
        source = f"PyTorch refuses more than {dim}"
        return replace(legal, values=Values(lengths=Size(dim)), usual=None, source=source)
    if refused_above and low == -high - 1:
        low = 0  # a list of that many items; negative numbers count from its end
    refused = refused_above or refused_below
    usual = legal.usual or (low, high)
    inner = (max(usual[0], low), min(usual[1], high))
    return replace(
        legal,
        values=Values(low=float(low), high=float(high)),
        usual=None if refused_above and refused_below else (inner if inner[0] <= inner[1] else (low, high)),
        source=f"PyTorch refuses others: {refused}" if refused else NOT_DECLARED,
    )


def _dim_that_ends(subject: Subject, index: int, high: int) -> str | None:
    """Return the dim whose size is the largest legal number, as for lengths; seen at two points, or None."""
    other = choose_example(subject.domain, subject.spec, {}, avoid=subject.example)
    for name, size in subject.example.items():
        if size != high or other[name] == size:
            continue
        base = subject.make(other, 3, "normal")
        base[index] = torch.ones_like(base[index])
        try:
            trials = _Trials(subject, index, base)
        except Exception:
            return None
        if trials.accepts(other[name]) and not trials.accepts(other[name] + 1):
            return name
    return None


def _rows_indexed(subject: Subject, index: int, base: Sequence[torch.Tensor]) -> int | None:
    """Return the rows of the smallest table that the input indexes, or None."""
    tensors = list(base)
    usual = subject.make(subject.example, 3, "normal")[index]
    for candidate in (usual, base[index]):
        tensors[index] = candidate
        watch = _Lookups(tensors)
        try:
            with watch:
                run_eager(subject, tensors)
        except Exception:
            if index not in watch.rows:
                continue  # the ordinary values are not legal; those of the example are
        if index in watch.rows:
            return watch.rows[index]
    return None


class _Trials:
    """Runs the model with one number in half of an input's elements, and tells whether PyTorch accepts it."""

    def __init__(self, subject: Subject, index: int, base: Sequence[torch.Tensor]) -> None:
        self._subject, self._index, self._base = subject, index, list(base)
        started = time.monotonic()
        run_eager(subject, base)
        self._ordinary_seconds = time.monotonic() - started
        self.refusal = ""

    def accepts(self, number: int) -> bool:
        tensors = list(self._base)
        changed = tensors[self._index].clone()
        changed.reshape(-1)[:: 2 if changed.numel() > 1 else 1] = number
        tensors[self._index] = changed
        started = time.monotonic()
        try:
            run_eager(self._subject, tensors)
        except Exception as error:
            self.refusal = first_line(error)
            return False
        seconds = time.monotonic() - started
        if seconds > SLOW_FACTOR * self._ordinary_seconds + SLOW_SECONDS:
            self.refusal = f"it takes {seconds:.1f} s at {number}"
            return False
        return True


def _last_accepted(trials: _Trials, start: int, tried: Sequence[int]) -> tuple[int, str]:
    """Return the furthest number that PyTorch accepts, and its refusal of the next one; empty if none was refused."""
    last = start
    for number in tried:
        if trials.accepts(number):
            last = number
            continue
        refusal, refused = trials.refusal, number
        while abs(refused - last) > 1 and abs(refused) <= WIDEST_BISECTED:
            middle = (refused + last) // 2
            if trials.accepts(middle):
                last = middle
            else:
                refusal, refused = trials.refusal, middle
        return last, refusal
    return last, ""


def _learn_floats(subject: Subject, ordinary: Sequence[torch.Tensor]) -> tuple[ValueRange, ...]:
    """Confine the inputs whose values in some flavour PyTorch refuses, beside ordinary ones that it accepts."""
    ranges = list(subject.ranges)
    open_ones = [i for i, r in enumerate(ranges) if not r.declared and _is_real(subject.spec[i])]
    point = affordable_point(subject)
    if not open_ones:
        return tuple(ranges)
    affordable = int(TRIALS_FLOPS / max(subject.study.flops_per_volume * volume(point), 1.0))
    for flavour in TRIED_FLAVOURS[: max(LEAST_FLAVOURS, affordable)]:
        drawn = subject.make(point, 3, flavour)
        if not _refusal(subject, [drawn[i] if i in open_ones else t for i, t in enumerate(ordinary)]):
            continue
        for index in open_ones:
            refusal = _refusal(subject, [drawn[i] if i == index else t for i, t in enumerate(ordinary)])
            if refusal:
                source = f"PyTorch refuses others: {refusal}"
                ranges[index] = replace(ranges[index], confined=True, nonfinite=False, source=source)
    return tuple(ranges)


class _Nonfinite(TorchFunctionMode):
    """Notes the inputs in which the model looks for NaN or infinity."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._places = {t.untyped_storage().data_ptr(): i for i, t in enumerate(tensors) if t.nbytes}
        self.asked: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in NONFINITE_FUNCTIONS and args and isinstance(args[0], torch.Tensor):
            place = self._places.get(args[0].untyped_storage().data_ptr())
            self.asked.update(() if place is None else (place,))
        return func(*args, **(kwargs or {}))


def _is_real(spec: TensorSpec) -> bool:
    return spec.dtype.startswith(("float", "bfloat"))


def _refusal(subject: Subject, tensors: Sequence[torch.Tensor]) -> str:
    try:
        run_eager(subject, tensors)
    except Exception as error:
        return first_line(error)
    return ""


def first_line(error: BaseException) -> str:
    """Return the kind of an exception and the first line of its text."""
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:200]
