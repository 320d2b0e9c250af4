"""Learn the legal values of undeclared inputs by running PyTorch.

An example of constants, or a spec line without limits, does not declare legal values. Whole numbers that index a table
are limited by its length, and the run shows the table. Other whole numbers are tried from small to large until PyTorch
refuses one. Floats are tried in every flavor.
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch.overrides import TorchFunctionMode

from fairway.judge.budget import choose_affordable_point, compute_volume
from fairway.judge.input_questions import ComparedNumbers, NonfiniteRecorder
from fairway.judge.runtimes.eager import disable_compilation, run_eager
from fairway.judge.runtimes.items import Item, Items, NamedItems, Operator
from fairway.judge.runtimes.operator_watch import OperatorWatch
from fairway.model.call_trace import trace_calls
from fairway.model.dims import Size
from fairway.model.example import choose_example
from fairway.model.ranges import NOT_DECLARED, ValueRange
from fairway.model.source import is_model_source
from fairway.model.spec import TensorSpec, Values
from fairway.model.subject import Subject
from fairway.model.values import Flavor

TRIED_UPWARD = (9, 64, 300, 70_000, 2**31 + 7)
TRIED_DOWNWARD = (0, -1, -100, -70_000, -(2**31) - 7)
"""Whole numbers that are tried. They are beyond the usual table sizes, beyond 16 bits and beyond 32 bits."""

MAX_BISECTED_NUMBER = 70_000
"""The exact end of the legal numbers is determined up to this number. Beyond it, trials may take too long."""

SLOW_FACTOR, SLOW_SECONDS = 20.0, 0.5
"""No trial follows one that takes this many times as long as an ordinary run, and this many seconds more."""

TRIED_FLAVORS: tuple[Flavor, ...] = ("zeros", "large", "least", "most", "log", "halves", "equal", "mixed")
MIN_TRIED_FLAVORS = 2
"""At least this many flavors are tried, whatever a run costs."""
MAX_TRIALS_FLOPS = 5e10
"""Floating-point operations that all trials of flavors may take together."""

MAX_LITERALS = 8
COMMON_NUMBERS = (0, 1, -1, 2)
"""Numbers that ordinary and edge values always contain."""

OnRanges = Callable[[tuple[ValueRange, ...]], None]


@dataclass(frozen=True)
class LearnedValues:
    """Ranges in the order of the spec, and the numbers of the model's own code."""

    ranges: tuple[ValueRange, ...]
    literals: tuple[float, ...] = ()


def learn_values(subject: Subject, report: OnRanges) -> LearnedValues:
    """Run the model to learn its legal values. `report` gets results early, because a trial may end the process."""
    base = [
        t.clone()
        for t in _zero_undeclared_integers(subject, subject.make(choose_affordable_point(subject), 1, "normal"))
    ]
    watch = NonfiniteRecorder(base)
    try:
        codes = _trace_codes(lambda: _run_watched(subject, base, watch))
    except Exception:
        return LearnedValues(subject.ranges)  # preflight reports this
    ranges = [
        replace(legal, nonfinite=index in watch.tested_inputs, infinite=index in watch.infinite_inputs)
        if not legal.is_declared and _is_real(subject.spec[index])
        else legal
        for index, legal in enumerate(subject.ranges)
    ]
    for index, (spec, legal) in enumerate(zip(subject.spec, ranges, strict=True)):
        if "int" in spec.dtype and legal.source == NOT_DECLARED and not legal.binary:
            ranges[index] = _learn_integers(_replace_ranges(subject, ranges), index)
            report(tuple(ranges))
    compared = _find_compared_numbers(subject, base)
    literals = find_literals(codes, subject.model, compared)
    return LearnedValues(_learn_floats(_replace_ranges(subject, ranges), base), literals)


def _find_compared_numbers(subject: Subject, base: Sequence[torch.Tensor]) -> list[float]:
    """Return the numbers with which operators compare for two different inputs. Others come from the inputs."""
    runs: list[dict[float, None]] = []
    for tensors in (base, subject.make(choose_affordable_point(subject), 2, "normal")):
        watch = ComparedNumbers()
        try:
            with watch:
                run_eager(subject, tensors)
        except Exception:
            break  # PyTorch refuses the values, or a dispatch mode cannot watch this model
        runs.append(watch.numbers)
    return [number for number in runs[0] if number in runs[-1]] if runs else []


def _run_watched(subject: Subject, tensors: list[torch.Tensor], watch: TorchFunctionMode) -> None:
    args, kwargs = subject.call(tensors)
    with torch.no_grad(), disable_compilation(), watch:
        subject.model(*args, **kwargs)


def _replace_ranges(subject: Subject, ranges: Sequence[ValueRange]) -> Subject:
    return replace(subject, study=replace(subject.study, ranges=tuple(ranges)))


def _zero_undeclared_integers(subject: Subject, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors with undeclared whole numbers of spec lines at zero, the likeliest to be legal."""
    free = [
        "int" in spec.dtype and legal.source == NOT_DECLARED and subject.given is None
        for spec, legal in zip(subject.spec, subject.ranges, strict=True)
    ]
    return [torch.zeros_like(t) if zero else t for t, zero in zip(tensors, free, strict=True)]


def _trace_codes(run: Callable[[], object]) -> list[types.CodeType]:
    """Return the functions of the model and its libraries, other than torch, that a run enters."""
    entered: dict[types.CodeType, None] = {}

    def note(frame: types.FrameType, event: str, _: object) -> None:
        if frame.f_code not in entered and is_model_source(frame.f_code.co_filename):
            entered[frame.f_code] = None

    with trace_calls(note):
        run()
    return list(entered)


def find_literals(
    codes: Sequence[types.CodeType], model: torch.nn.Module, compared: Sequence[float] = ()
) -> tuple[float, ...]:
    """Return the numbers that operators compare with, then those of the code that runs and of modules' attributes.

    Common numbers are left out.
    """
    literals: dict[float, None] = {}
    for code in codes:
        literals.update((float(n), None) for n in code.co_consts if type(n) in (int, float))
    for module in model.modules():
        numbers = [v for k, v in vars(module).items() if type(v) is float and not k.startswith("_")]
        literals.update(dict.fromkeys(numbers))
    # Fractions are more often thresholds than whole numbers, which are mostly axes and sizes.
    ordered = dict.fromkeys([*compared, *sorted(literals, key=lambda n: n.is_integer())])
    return tuple(n for n in ordered if n not in COMMON_NUMBERS and abs(n) < 1e30)[:MAX_LITERALS]


class _LookupRecorder(OperatorWatch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Records the number of rows of the tables that an input of whole numbers indexes."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._inputs = [t.reshape(-1).long() if not t.dtype.is_floating_point else None for t in tensors]
        self.rows: dict[int, int] = {}

    def watch(self, func: Operator, args: Items, kwargs: NamedItems) -> Item:
        name = func.overloadpacket.__name__
        if name in ("embedding", "_embedding_bag", "_embedding_bag_forward_only"):
            self._note(args[1], args[0].shape[0])
        elif name in ("index_select", "gather"):
            self._note(args[2], args[0].shape[args[1]] if args[0].dim() else 1)
        elif name == "index" and len([i for i in args[1] if i is not None]) == 1:
            axis = next(k for k, i in enumerate(args[1]) if i is not None)
            self._note(args[1][axis], args[0].shape[axis])
        return func(*args, **kwargs)

    def _note(self, places: Item, rows: int) -> None:
        if not isinstance(places, torch.Tensor) or places.dtype in (torch.bool, torch.uint8):
            return
        flat = places.reshape(-1).long()
        for index, tensor in enumerate(self._inputs):
            if tensor is not None and tensor.numel() == flat.numel() > 0 and torch.equal(tensor, flat):
                self.rows[index] = min(rows, self.rows.get(index, rows))


def _learn_integers(subject: Subject, index: int) -> ValueRange:
    """Return the range of one input of whole numbers."""
    spec, legal = subject.spec[index], subject.ranges[index]
    base = _zero_undeclared_integers(subject, subject.make(subject.example, 1, "normal"))
    rows = _count_indexed_rows(subject, index, base)
    if rows is not None:
        values = Values(low=0.0, high=float(rows - 1))
        return replace(legal, values=values, usual=None, source=f"from the table of {rows} rows that it indexes")
    info = torch.iinfo(getattr(torch, spec.dtype))
    trials = _ValueTrials(subject, index, base)
    low, high = int(base[index].min()), int(base[index].max())
    upward, downward = [*TRIED_UPWARD], [*TRIED_DOWNWARD]
    if info.bits <= 16:  # all numbers of such a dtype are likely: pixels, samples of sound
        upward, downward = [*upward, info.max], [*downward, info.min]
    high, refused_above = _find_last_accepted(trials, high, sorted(v for v in upward if high < v <= info.max))
    low, refused_below = _find_last_accepted(
        trials, low, sorted((v for v in downward if info.min <= v < low), reverse=True)
    )
    dim = _find_limiting_dim(subject, index, high) if refused_above else None
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


def _find_limiting_dim(subject: Subject, index: int, high: int) -> str | None:
    """Return the dim whose size is the largest legal number at two points, as for lengths, or None."""
    other = choose_example(subject.domain, subject.spec, {}, avoid=subject.example)
    for name, size in subject.example.items():
        if size != high or other[name] == size:
            continue
        base = subject.make(other, 3, "normal")
        base[index] = torch.ones_like(base[index])
        try:
            trials = _ValueTrials(subject, index, base)
        except Exception:
            return None
        if trials.is_accepted(other[name]) and not trials.is_accepted(other[name] + 1):
            return name
    return None


def _count_indexed_rows(subject: Subject, index: int, base: Sequence[torch.Tensor]) -> int | None:
    """Return the rows of the smallest table that the input indexes, or None."""
    tensors = list(base)
    usual = subject.make(subject.example, 3, "normal")[index]
    for candidate in (usual, base[index]):
        tensors[index] = candidate
        watch = _LookupRecorder(tensors)
        try:
            with watch:
                run_eager(subject, tensors)
        except Exception:
            if index not in watch.rows:
                continue  # the ordinary values are not legal, but those of the example are
        if index in watch.rows:
            return watch.rows[index]
    return None


class _ValueTrials:
    """Runs the model with one number in half of an input's elements, to see if PyTorch accepts it."""

    def __init__(self, subject: Subject, index: int, base: Sequence[torch.Tensor]) -> None:
        self._subject, self._index, self._base = subject, index, list(base)
        started = time.monotonic()
        run_eager(subject, base)
        self._ordinary_seconds = time.monotonic() - started
        self.refusal = ""

    def is_accepted(self, number: int) -> bool:
        tensors = list(self._base)
        changed = tensors[self._index].clone()
        changed.reshape(-1)[:: 2 if changed.numel() > 1 else 1] = number
        tensors[self._index] = changed
        started = time.monotonic()
        try:
            run_eager(self._subject, tensors)
        except Exception as error:
            self.refusal = describe_error(error)
            return False
        seconds = time.monotonic() - started
        if seconds > SLOW_FACTOR * self._ordinary_seconds + SLOW_SECONDS:
            self.refusal = f"it takes {seconds:.1f} s at {number}"
            return False
        return True


def _find_last_accepted(trials: _ValueTrials, start: int, tried: Sequence[int]) -> tuple[int, str]:
    """Return the furthest number that PyTorch accepts, and its refusal of the next one, or "" if none was refused."""
    last = start
    for number in tried:
        if trials.is_accepted(number):
            last = number
            continue
        refusal, refused = trials.refusal, number
        while abs(refused - last) > 1 and abs(refused) <= MAX_BISECTED_NUMBER:
            middle = (refused + last) // 2
            if trials.is_accepted(middle):
                last = middle
            else:
                refusal, refused = trials.refusal, middle
        return last, refusal
    return last, ""


def _learn_floats(subject: Subject, ordinary: Sequence[torch.Tensor]) -> tuple[ValueRange, ...]:
    """Confine each input whose values PyTorch refuses in some flavor while it accepts ordinary ones."""
    ranges = list(subject.ranges)
    open_ones = [i for i, r in enumerate(ranges) if not r.is_declared and _is_real(subject.spec[i])]
    point = choose_affordable_point(subject)
    if not open_ones:
        return tuple(ranges)
    affordable = int(MAX_TRIALS_FLOPS / max(subject.study.flops_per_volume * compute_volume(point), 1.0))
    for flavor in TRIED_FLAVORS[: max(MIN_TRIED_FLAVORS, affordable)]:
        drawn = subject.make(point, 3, flavor)
        if not _find_refusal(subject, [drawn[i] if i in open_ones else t for i, t in enumerate(ordinary)]):
            continue
        for index in open_ones:
            refusal = _find_refusal(subject, [drawn[i] if i == index else t for i, t in enumerate(ordinary)])
            if refusal:
                source = f"PyTorch refuses others: {refusal}"
                ranges[index] = replace(ranges[index], confined=True, nonfinite=False, infinite=False, source=source)
    return tuple(ranges)


def _is_real(spec: TensorSpec) -> bool:
    return spec.dtype.startswith(("float", "bfloat"))


def _find_refusal(subject: Subject, tensors: Sequence[torch.Tensor]) -> str:
    try:
        run_eager(subject, tensors)
    except Exception as error:
        return describe_error(error)
    return ""


def describe_error(error: BaseException) -> str:
    """Return the type of an exception and the first line of its text."""
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:200]
