"""Record the branches that a run takes, the steps of its loops, and the lengths of lists that become tensors.

The bytecode is followed as it runs, in the user's code and in libraries other than torch. So a condition in the middle
of a line counts too. The source is used only to name conditions.
"""

from __future__ import annotations

import dis
import sys
import types
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch.overrides import TorchFunctionMode

from fairway.judge.runtimes.items import Item, Items, NamedItems
from fairway.model.call_trace import TraceFunction, trace_calls
from fairway.model.source import is_model_source

_TENSOR_FACTORIES = (torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor)
"""Functions that make a tensor of a list. Calls of torch.from_numpy cannot be observed."""


@dataclass(frozen=True)
class TraceSite:
    """A place where runs can differ: a jump in a function's bytecode, or a line that makes a tensor of a list."""

    code: types.CodeType
    offset: int
    kind: str
    """`loop`, `list`, or the answer to its condition at which a jump is taken: `true`, `false` or `none`."""


Span = tuple[int, int, int, int]
"""First line, last line, first column, last column."""


@cache
def find_site_span(site: TraceSite) -> Span:
    """Return where the expression that decides is in its file."""
    return (site.offset, site.offset, 0, 0) if site.kind == "list" else find_span(site.code, site.offset)


def find_span(code: types.CodeType, offset: int) -> Span:
    """Return where the expression of an instruction is in its file."""
    first, last, first_column, last_column = _list_positions(code)[offset // 2]
    return first or 0, last or first or 0, first_column or 0, last_column or 0


@cache
def _list_positions(code: types.CodeType) -> list[tuple[int | None, int | None, int | None, int | None]]:
    return list(code.co_positions())


Answer: TypeAlias = bool | int | tuple[int, ...]
"""The answer to a condition, the steps of a loop, or the shape of a list."""


@dataclass
class BranchTrace:
    """The behavior of a run at each site, in the order in which the sites were reached."""

    clock: Callable[[], int]
    taken: dict[TraceSite, set[Answer]] = field(default_factory=dict)
    """For a jump the answers to its condition, for a loop its steps each time it was entered, for a list its shape."""
    counts: dict[tuple[types.CodeType, Span], set[int]] = field(default_factory=dict)
    """How often the answer was true in one call of the function: the steps of a `while`, which tests at two places."""
    when: dict[tuple[TraceSite, bool | None], int] = field(default_factory=dict)
    """The time by `clock` at which a condition first had an answer, or a loop or list was first reached."""
    paused: dict[tuple[int, types.CodeType], Counter[TraceSite]] = field(default_factory=dict)
    """The steps so far in generators that have yielded."""


def trace_branches(run: Callable[[], object], clock: Callable[[], int] = int) -> BranchTrace:
    """Call `run` once and follow it instruction by instruction."""
    trace = BranchTrace(clock=clock)

    def enter(frame: types.FrameType, event: str, _: object) -> TraceFunction | None:
        jumps = find_jumps(frame.f_code) if is_model_source(frame.f_code.co_filename) else {}
        if not jumps:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return _make_tracer(jumps, trace, trace.paused.pop((id(frame), frame.f_code), Counter()))

    with _ListRecorder(trace), trace_calls(enter):
        run()
    return trace


@cache
def find_jumps(code: types.CodeType) -> dict[int, tuple[int, TraceSite]]:
    """Return, by offset, each conditional jump: the offset of the next instruction, and the site."""
    jumps: dict[int, tuple[int, TraceSite]] = {}
    start = None
    for instruction, following in pairwise(dis.get_instructions(code)):
        start = instruction.offset if start is None else start
        if instruction.opname == "FOR_ITER" or ("JUMP" in instruction.opname and "IF" in instruction.opname):
            # A long jump has a prefix, and Python 3.11 stops at the prefix alone.
            jumps[start] = jumps[instruction.offset] = (
                following.offset,
                TraceSite(code, instruction.offset, _classify_jump(instruction.opname)),
            )
        start = start if instruction.opname == "EXTENDED_ARG" else None
    return jumps


def _classify_jump(name: str) -> str:
    if name == "FOR_ITER":
        return "loop"
    return "none" if name.endswith("NONE") else "true" if "IF_TRUE" in name else "false"


def _make_tracer(
    jumps: Mapping[int, tuple[int, TraceSite]], trace: BranchTrace, steps: Counter[TraceSite]
) -> TraceFunction:
    """Return the function that is called at each instruction of one call of a function."""
    last = -1

    def trace_instruction(frame: types.FrameType, event: str, _: object) -> TraceFunction:
        nonlocal last
        if event == "opcode":
            if last in jumps and frame.f_lasti != jumps[last][1].offset:
                straight, site = jumps[last]
                yes = (frame.f_lasti == straight) == (site.kind != "true")
                steps[site] += yes
                trace.when.setdefault((site, None if site.kind == "loop" else yes), trace.clock())
                if site.kind != "loop":
                    trace.taken.setdefault(site, set()).add(yes)
                elif not yes:
                    trace.taken.setdefault(site, set()).add(steps.pop(site))
            last = frame.f_lasti
        elif event == "return" and _is_pausing(frame):
            trace.paused[id(frame), frame.f_code] = steps
        elif event == "return":
            _close_call(steps, trace)
        return trace_instruction

    return trace_instruction


def _is_pausing(frame: types.FrameType) -> bool:
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] in ("YIELD_VALUE", "RETURN_GENERATOR")


def _close_call(steps: Counter[TraceSite], trace: BranchTrace) -> None:
    """Add the counts of a call that has ended. A loop that was left early is counted by the condition that ended it."""
    totals: Counter[tuple[types.CodeType, Span]] = Counter()
    for site, number in steps.items():
        if site.kind != "loop":
            totals[site.code, find_site_span(site)] += number
    for place, number in totals.items():
        trace.counts.setdefault(place, set()).add(number)


class _ListRecorder(TorchFunctionMode):
    """Records, by line, the shape of every list, tuple or array that becomes a tensor."""

    def __init__(self, trace: BranchTrace) -> None:
        super().__init__()
        self.trace = trace

    def __torch_function__(
        self, func: Callable[..., Item], kinds: object, args: Items = (), kwargs: NamedItems | None = None
    ) -> Item:
        data = args[-1 if func is torch.Tensor.new_tensor else 0] if args else None
        if func in _TENSOR_FACTORIES and isinstance(data, (list, tuple, np.ndarray)):
            self._note(data)
        return func(*args, **(kwargs or {}))

    def _note(self, data: npt.NDArray[np.generic] | list[Item] | tuple[Item, ...]) -> None:
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None and not is_model_source(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            shape = data.shape if isinstance(data, np.ndarray) else (len(data),)
            site = TraceSite(frame.f_code, frame.f_lineno, "list")
            self.trace.taken.setdefault(site, set()).add(tuple(shape))
            self.trace.when.setdefault((site, None), self.trace.clock())
