"""Which way each branch of a run goes, how many steps its loops take, and how long the lists are that it makes tensors.

Read off the bytecode as it runs, in the user's code and in libraries other than torch. So a condition in the middle of
a line counts too, and nothing is guessed from the source but the words in which it is named.
"""

from __future__ import annotations

import dis
import sys
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from fairway.model.source import is_models

_MAKING = (torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor)
"""torch.from_numpy tells nobody that it is called."""


@dataclass(frozen=True)
class TraceSite:
    """A place that can go more than one way: a jump in a function's bytecode, or a line that makes a list a tensor."""

    code: types.CodeType
    offset: int
    kind: str
    """`loop` or `list`; of a jump, at what answer to its question it is taken: `true`, `false`, or `none`."""


Span = tuple[int, int, int, int]
"""First line, last line, first column, last column."""


@cache
def position(site: TraceSite) -> Span:
    """Return where the expression that decides is in its file."""
    return (site.offset, site.offset, 0, 0) if site.kind == "list" else span_at(site.code, site.offset)


def span_at(code: types.CodeType, offset: int) -> Span:
    """Return where the expression of an instruction is in its file."""
    first, last, start, end = _positions(code)[offset // 2]
    return first or 0, last or first or 0, start or 0, end or 0


@cache
def _positions(code: types.CodeType) -> list[tuple[int | None, int | None, int | None, int | None]]:
    return list(code.co_positions())


@dataclass
class Ways:
    """What a run did at each site, in the order in which the sites were met."""

    clock: Callable[[], int]
    taken: dict[TraceSite, set[Any]] = field(default_factory=dict)
    """For a jump the answers to its question, for a loop its steps each time it was entered, for a list its shape."""
    counts: dict[tuple[types.CodeType, Span], set[int]] = field(default_factory=dict)
    """How often the answer was yes in one call of the function: the steps of a `while`, which asks at two places."""
    when: dict[tuple[TraceSite, Any], int] = field(default_factory=dict)
    """When a question was first answered so, by the clock given, in that order. For loops and lists when first met."""
    paused: dict[tuple[int, types.CodeType], Counter[TraceSite]] = field(default_factory=dict)
    """The steps taken so far in generators that have handed something out."""


def ways_of(run: Callable[[], Any], clock: Callable[[], int] = int) -> Ways:
    """Runs it once, followed instruction by instruction."""
    ways = Ways(clock=clock)

    def enter(frame: types.FrameType, event: str, _: Any) -> Any:
        jumps = jumps_of(frame.f_code) if is_models(frame.f_code.co_filename) else {}
        if not jumps:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return _follow(jumps, ways, ways.paused.pop((id(frame), frame.f_code), Counter()))

    before = sys.gettrace()
    with _Lists(ways):
        sys.settrace(enter)
        try:
            run()
        finally:
            sys.settrace(before)
    return ways


@cache
def jumps_of(code: types.CodeType) -> dict[int, tuple[int, TraceSite]]:
    """The instructions that go one of two ways: where each goes on if it does not jump, and its site."""
    found: dict[int, tuple[int, TraceSite]] = {}
    begins = None
    for one, following in pairwise(dis.get_instructions(code)):
        begins = one.offset if begins is None else begins
        if one.opname == "FOR_ITER" or ("JUMP" in one.opname and "IF" in one.opname):
            # A long jump has a prefix, and Python 3.11 stops at the prefix alone.
            found[begins] = found[one.offset] = following.offset, TraceSite(code, one.offset, _kind(one.opname))
        begins = begins if one.opname == "EXTENDED_ARG" else None
    return found


def _kind(name: str) -> str:
    if name == "FOR_ITER":
        return "loop"
    return "none" if name.endswith("NONE") else "true" if "IF_TRUE" in name else "false"


def _follow(jumps: Mapping[int, tuple[int, TraceSite]], ways: Ways, steps: Counter[TraceSite]) -> Any:
    """What is called at each instruction of one call of the function."""
    last = -1

    def at(frame: types.FrameType, event: str, _: Any) -> Any:
        nonlocal last
        if event == "opcode":
            if last in jumps and frame.f_lasti != jumps[last][1].offset:
                straight, site = jumps[last]
                yes = (frame.f_lasti == straight) == (site.kind != "true")
                steps[site] += yes
                ways.when.setdefault((site, None if site.kind == "loop" else yes), ways.clock())
                if site.kind != "loop":
                    ways.taken.setdefault(site, set()).add(yes)
                elif not yes:
                    ways.taken.setdefault(site, set()).add(steps.pop(site))
            last = frame.f_lasti
        elif event == "return" and _pauses(frame):
            ways.paused[id(frame), frame.f_code] = steps
        elif event == "return":
            _close(steps, ways)
        return at

    return at


def _pauses(frame: types.FrameType) -> bool:
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] in ("YIELD_VALUE", "RETURN_GENERATOR")


def _close(steps: Counter[TraceSite], ways: Ways) -> None:
    """The function has ended, its questions were so often true. A loop that was left early hangs on what ended it."""
    asked: Counter[tuple[types.CodeType, Span]] = Counter()
    for site, number in steps.items():
        if site.kind != "loop":
            asked[site.code, position(site)] += number
    for place, number in asked.items():
        ways.counts.setdefault(place, set()).add(number)


class _Lists(TorchFunctionMode):
    """Notes the shape of every list, tuple or array that is made a tensor, by line."""

    def __init__(self, ways: Ways) -> None:
        super().__init__()
        self.ways = ways

    def __torch_function__(self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        data = args[-1 if func is torch.Tensor.new_tensor else 0] if args else None
        if func in _MAKING and isinstance(data, (list, tuple, np.ndarray)):
            self._note(data)
        return func(*args, **(kwargs or {}))

    def _note(self, data: Any) -> None:
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None and not is_models(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            shape = data.shape if isinstance(data, np.ndarray) else (len(data),)
            site = TraceSite(frame.f_code, frame.f_lineno, "list")
            self.ways.taken.setdefault(site, set()).add(tuple(shape))
            self.ways.when.setdefault((site, None), self.ways.clock())
