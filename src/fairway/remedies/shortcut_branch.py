"""A branch on a value that only saves work, such as `if mask.any(): x = fill(x, mask)`, is taken always one way.

torch.export cannot capture a decision on a value, and a trace keeps the example's. Where both ways give the same
result, because the longer one does nothing when there is nothing to do, one of them is recorded for good. Which one is
found by running the model so: it must agree with itself, left alone, over the corners of its domain.

Refuses before a capture has failed at such a decision, where the model asks no tensor for a yes or no, and where
neither way agrees.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fairway.findings import Where
from fairway.remedies.contract import Applied, Case, Match, Refusal, Remedy

Site = tuple[str, int]
"""File and line of a decision."""

FAILED_AT_A_DECISION = "FW303"
MOST = 3
"""Decisions of which each is tried both ways by itself; more are tried all one way and all the other."""


class Deciding(TorchFunctionMode):
    """While entered, the decisions at some lines are made already; every line that asks is noted."""

    def __init__(self, answers: Mapping[Site, bool] | None = None) -> None:
        super().__init__()
        self._answers = answers or {}
        self.met: dict[Site, str] = {}

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if func is not torch.Tensor.__bool__:
            return func(*args, **(kwargs or {}))
        frame: Any = sys._getframe(1)
        while frame.f_code.co_name == "__torch_function__":  # torch.export has modes of its own in between
            frame = frame.f_back
        site = (frame.f_code.co_filename, frame.f_lineno)
        self.met.setdefault(site, frame.f_code.co_qualname)
        return self._answers[site] if site in self._answers else func(*args)


@dataclass(frozen=True)
class Rewrite:
    """One way to decide everywhere."""

    answers: Mapping[Site, bool]

    @property
    def strategy(self) -> str:
        return ", ".join(f"{Path(file).name}:{line} always {yes}" for (file, line), yes in self.answers.items())

    def install(self) -> AbstractContextManager[Any]:
        return Deciding(self.answers)


def detect(case: Case) -> Match | Refusal:
    if not any(finding.code == FAILED_AT_A_DECISION for finding in case.findings):
        return Refusal("no capture has failed at a decision on a value so far")
    if case.route.capture == "strict":
        return Refusal("strict capture reads a mode's own code as part of the model")
    with Deciding() as run, torch.no_grad():
        case.model(*case.args, **case.kwargs)
    if not run.met:
        return Refusal("the model asks no tensor for a yes or no")
    ways: list[tuple[bool, ...]] = [(yes,) * len(run.met) for yes in (True, False)]
    if len(run.met) <= MOST:
        ways += [way for way in itertools.product((True, False), repeat=len(run.met)) if way not in ways]
    rewrites = tuple(Rewrite(dict(zip(run.met, way, strict=True))) for way in ways)
    places = tuple(Where(file=file, line=line, function=name) for (file, line), name in run.met.items())
    return Match("branches on values are taken one way, which gives the same", places, rewrites)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    with match.data[0].install():
        yield


REMEDY = Remedy(
    name="shortcut_branch",
    cures="FW207",
    title="A branch on a value only saves work",
    stage="source",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="The model is run both ways beside itself in eager PyTorch; the original judges the file.",
    detect=detect,
    apply=apply,
)
