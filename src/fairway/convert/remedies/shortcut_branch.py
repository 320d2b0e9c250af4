"""A branch on a value that only saves work, such as `if mask.any(): x = fill(x, mask)`, is taken always one way.

torch.export cannot capture a decision on a value, and a trace keeps the example's. Where both ways give the same
result, because the longer one does nothing when there is nothing to do, one of them is recorded for good. Which one is
found by running the model so: it must agree with itself, left alone, over the corners of its domain.

A size that is known by value only, as of `mask.nonzero()`, is taken for a large one where `forward` asks whether it is
zero, `if rows.numel() == 0: return x`; that way does nothing either when there are no rows.

Refuses before a capture has failed at such a decision, under strict capture, if no sample takes both sides of a branch,
and where neither way agrees.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fairway.convert.remedies.constants import Constants
from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Where

Site = tuple[str, int]
"""File and line of a decision."""

FAILED_AT_A_DECISION = "FW303"
MOST = 3
"""Decisions of which each is tried both ways by itself; more are tried all one way and all the other."""


MOST_ANSWERS = 20_000
"""Answers at one line after which it is a `while` that never ends if it is always answered so."""

LARGE = 2**20
"""What an unknown size is taken for."""


class Deciding(TorchFunctionMode):
    """While entered, the decisions at some lines are made already; every line that asks is noted."""

    def __init__(self, answers: Mapping[Site, bool] | None = None) -> None:
        super().__init__()
        self._answers = answers or {}
        self._given: Counter[Site] = Counter()
        self.met: dict[Site, str] = {}

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        asks = func is torch.Tensor.__bool__ or (func is torch.Tensor.item and args[0].dtype == torch.bool)
        if not asks:
            return func(*args, **(kwargs or {}))
        frame: Any = sys._getframe(1)
        while frame.f_code.co_name == "__torch_function__":  # torch.export has modes of its own in between
            frame = frame.f_back
        site = (frame.f_code.co_filename, frame.f_lineno)
        self.met.setdefault(site, frame.f_code.co_qualname)
        if site not in self._answers:
            return func(*args)
        self._given[site] += 1
        if self._given[site] > MOST_ANSWERS:
            raise RuntimeError(f"{Path(site[0]).name}:{site[1]}: taken always one way, this loop does not end")
        return self._answers[site]


@contextmanager
def unknown_sizes_large() -> Iterator[None]:
    """A question about one size that is known by value only is answered as for a large one, where it has no answer."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols

    original: Any = torch.SymBool.__bool__

    def decide(self: torch.SymBool) -> bool:
        try:
            return bool(original(self))
        except GuardOnDataDependentSymNode as error:
            unknown = free_unbacked_symbols(error.cond)
            answer = error.cond.subs(dict.fromkeys(unknown, LARGE))
            if len(unknown) != 1 or answer not in (True, False):
                raise
            return bool(answer)

    torch.SymBool.__bool__ = decide  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.SymBool.__bool__ = original  # type: ignore[method-assign]


@dataclass(frozen=True)
class BranchDecision:
    """One way to decide everywhere."""

    answers: Mapping[Site, bool]

    @property
    def strategy(self) -> str:
        decided = [f"{Path(file).name}:{line} always {yes}" for (file, line), yes in self.answers.items()]
        return ", ".join(decided) or "unknown size"

    @contextmanager
    def install(self) -> Iterator[None]:
        with Deciding(self.answers), unknown_sizes_large():
            yield


def detect(case: Case) -> Match | Refusal:
    if not any(finding.code == FAILED_AT_A_DECISION for finding in case.findings):
        return Refusal("no capture has failed at a decision on a value so far")
    if case.route.capture == "strict":
        return Refusal("strict capture reads a mode's own code as part of the model")
    with Deciding() as run, Constants(case.model).following(), torch.no_grad():
        case.model(*case.args, **case.kwargs)
    unseen = [site for site in run.met if case.both_ways is not None and site not in case.both_ways]
    if unseen:
        file, line = unseen[0]
        place = Where(file=file, line=line, function=run.met[unseen[0]])
        return Refusal("no sample takes both sides of this branch, so one side may not stand for both", (place,))
    ways: list[tuple[bool, ...]] = [(yes,) * len(run.met) for yes in ((True, False) if run.met else (True,))]
    if len(run.met) <= MOST:
        ways += [way for way in itertools.product((True, False), repeat=len(run.met)) if way not in ways]
    rewrites = tuple(BranchDecision(dict(zip(run.met, way, strict=True))) for way in ways)
    places = tuple(Where(file=file, line=line, function=name) for (file, line), name in run.met.items())
    return Match("branches on values are taken one way, which gives the same", places, rewrites)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    case.decided += list(match.data[0].answers)
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
