"""Which loops in libraries' code follow a size: the model is run, and their steps are counted."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch

from fairway.rewrite.find import Lines, Site, every_site, line_of
from fairway.subject.source import is_users


def loops_of_libraries(
    model: torch.nn.Module, given: Mapping[str, Any] | None, runs: Iterable[Callable[[], Any]]
) -> Lines:
    """Loops in libraries' code that take another number of steps in another of the runs, which differ in sizes.

    Read alone, their code has many loops that are never entered, or that go over layers. Without a loop nothing is run.
    """
    read = [s for s in every_site(model, given) if not is_users(s.source.file) and isinstance(s.node, ast.For)]
    counts = []
    for run in runs if read else ():
        with suppress(Exception):  # a point that PyTorch refuses is for the judge to meet
            counts.append(steps_taken(run, read))
    return frozenset(line_of(site) for i, site in enumerate(read) if len({count[i] for count in counts}) > 1)


def steps_taken(run: Callable[[], Any], loops: Sequence[Site]) -> list[int]:
    """How often each loop's body is begun during the run."""
    wanted: dict[types.CodeType, dict[int, int]] = {}
    for i, site in enumerate(loops):
        assert isinstance(site.node, ast.For)
        wanted.setdefault(site.source.function.__code__, {})[site.node.body[0].lineno] = i
    counts = [0] * len(loops)

    def trace(frame: types.FrameType, event: str, _: Any) -> Any:
        lines = wanted.get(frame.f_code)
        if lines is not None and event == "line" and frame.f_lineno in lines:
            counts[lines[frame.f_lineno]] += 1
        return None if lines is None else trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return counts
