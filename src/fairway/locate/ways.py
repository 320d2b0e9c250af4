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

from fairway.locate.listen import is_models

_MAKING = (torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy, torch.Tensor.new_tensor)


@dataclass(frozen=True)
class Site:
    """A place that can go more than one way: a jump in a function's bytecode, or a line that makes a list a tensor."""

    code: types.CodeType
    offset: int
    kind: str
    """`loop` or `list`; of a jump, at what answer to its question it is taken: `true`, `false`, or `none`."""

    @property
    def position(self) -> tuple[int, int, int, int]:
        """First line, last line, first column, last column of the expression that decides."""
        if self.kind == "list":
            return self.offset, self.offset, 0, 0
        first, last, start, end = list(self.code.co_positions())[self.offset // 2]
        return first or 0, last or first or 0, start or 0, end or 0


@dataclass
class Ways:
    """What a run did at each site, in the order in which the sites were met."""

    taken: dict[Site, set[Any]] = field(default_factory=dict)
    """For a jump the answers to its question, for a loop its steps each time it was entered, for a list its shape."""
    counts: dict[Site, set[int]] = field(default_factory=dict)
    """How often the answer was yes in one call of the function: the steps of a `while`."""


def ways_of(run: Callable[[], Any]) -> Ways:
    """Runs it once, followed instruction by instruction."""
    ways = Ways()

    def enter(frame: types.FrameType, event: str, _: Any) -> Any:
        jumps = _jumps(frame.f_code) if is_models(frame.f_code.co_filename) else {}
        if not jumps:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return _follow(jumps, ways)

    before = sys.gettrace()
    with _Lists(ways):
        sys.settrace(enter)
        try:
            run()
        finally:
            sys.settrace(before)
    return ways


@cache
def _jumps(code: types.CodeType) -> dict[int, tuple[int, Site]]:
    """The instructions that go one of two ways: where each goes on if it does not jump, and its site."""
    found = {}
    for one, following in pairwise(dis.get_instructions(code)):
        if one.opname == "FOR_ITER" or ("JUMP" in one.opname and "IF" in one.opname):
            found[one.offset] = following.offset, Site(code, one.offset, _kind(one.opname))
    return found


def _kind(name: str) -> str:
    if name == "FOR_ITER":
        return "loop"
    return "none" if name.endswith("NONE") else "true" if "IF_TRUE" in name else "false"


def _follow(jumps: Mapping[int, tuple[int, Site]], ways: Ways) -> Any:
    """What is called at each instruction of one call of the function."""
    last = -1
    steps: Counter[Site] = Counter()

    def at(frame: types.FrameType, event: str, _: Any) -> Any:
        nonlocal last
        if event == "opcode":
            if last in jumps:
                straight, site = jumps[last]
                yes = (frame.f_lasti == straight) == (site.kind != "true")
                steps[site] += yes
                if site.kind != "loop":
                    ways.taken.setdefault(site, set()).add(yes)
                elif not yes:
                    ways.taken.setdefault(site, set()).add(steps.pop(site))
            last = frame.f_lasti
        elif event == "return":
            for site, number in steps.items():
                (ways.taken if site.kind == "loop" else ways.counts).setdefault(site, set()).add(number)
        return at

    return at


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
            self.ways.taken.setdefault(Site(frame.f_code, frame.f_lineno, "list"), set()).add(tuple(shape))
