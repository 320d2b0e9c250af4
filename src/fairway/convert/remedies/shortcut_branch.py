"""A branch on a value that only saves work, such as `if mask.any(): x = fill(x, mask)`, is captured with one side only.

torch.export cannot capture a decision on a value, and a trace keeps the example's decision. If both sides give the same
result, because the longer side has no effect on inputs that do not need it, one side is captured. To find it, the model
is run with each side: it must agree with the unchanged model over the corners of its domain.

A check of the inputs, `assert mask.any()` or `if mask.any(): raise`, keeps the side that legal inputs take: the other
one gives no outputs. A branch of which all samples take the same side keeps the other side, if that gives the same for
them: inputs that would take it find the model's own code there, as in `if low.any(): x = x.clamp_min(0)`. `torch.equal`
answers as it does for the example.

A size that depends on values, as of `mask.nonzero()`, counts as large if `forward` asks whether it is zero, as in `if
rows.numel() == 0: return x`. The side for many rows does nothing either if there are none.

Refuses until a capture has failed at such a decision. Also refuses under strict capture, and if neither side agrees
with the unchanged model.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode

from fairway.convert.remedies.constants import Constants
from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.convert.rewrite.input_checks import is_input_check
from fairway.diagnostics import Code, Where
from fairway.torch_internals import Untyped, replace_internal

Site = tuple[str, int]
"""File and line of a decision."""

DECISION_FINDING = Code.DATA_DEPENDENT
MAX_SEPARATE_BRANCHES = 3
"""Decisions up to which every combination is tried. Beyond that, all are tried one way and all the other way."""

MAX_ANSWERS_PER_LINE = 20_000
"""Equal answers at one line after which the line is taken for a `while` that never ends."""

_COMPARISONS = (torch.equal, torch.Tensor.equal)

LARGE_SIZE = 2**20
"""The size that is assumed for an unknown one."""


class DecidedBranches(TorchFunctionMode):
    """Inside this mode, decisions at given lines have given answers, and every line that asks is recorded."""

    def __init__(self, answers: Mapping[Site, bool] | None = None, comparisons: Sequence[bool] = ()) -> None:
        super().__init__()
        self._answers = answers or {}
        self._comparisons = iter(comparisons)
        self._given: Counter[Site] = Counter()
        self.met: dict[Site, str] = {}
        self.seen: dict[Site, set[bool]] = {}
        self.compared: list[bool] = []
        """The results of `torch.equal`, in their order."""
        self.comparing_sites: dict[Site, None] = {}
        """The lines that asked for them."""

    def __torch_function__(
        self, func: Untyped, types: Untyped, args: Sequence[Untyped] = (), kwargs: Untyped = None
    ) -> Untyped:
        if func in _COMPARISONS:
            known = next(self._comparisons, None)
            self.compared.append(func(*args, **(kwargs or {})) if known is None else known)
            self.comparing_sites[_find_asking_site()[0]] = None
            return self.compared[-1]
        asks = func is torch.Tensor.__bool__ or (func is torch.Tensor.item and args[0].dtype == torch.bool)
        if not asks:
            return func(*args, **(kwargs or {}))
        site, name = _find_asking_site()
        self.met.setdefault(site, name)
        if site not in self._answers:
            answer = func(*args)
            self.seen.setdefault(site, set()).add(answer)
            return answer
        self._given[site] += 1
        if self._given[site] > MAX_ANSWERS_PER_LINE:
            raise RuntimeError(f"{Path(site[0]).name}:{site[1]}: this loop does not end if its condition never changes")
        return self._answers[site]


def _find_asking_site() -> tuple[Site, str]:
    """Return the line that calls torch now, and its function."""
    frame: Untyped = sys._getframe(2)
    while frame.f_code.co_name == "__torch_function__":  # torch.export's own modes come in between
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno), frame.f_code.co_qualname


@contextmanager
def assume_large_sizes() -> Iterator[None]:
    """Answer questions about a size that depends on values as for a large one, if they have no answer."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols

    original: Untyped = torch.SymBool.__bool__

    def decide(self: torch.SymBool) -> bool:
        try:
            return bool(original(self))
        except GuardOnDataDependentSymNode as error:
            unknown = free_unbacked_symbols(error.cond)
            answer = error.cond.subs(dict.fromkeys(unknown, LARGE_SIZE))
            if len(unknown) != 1 or answer not in (True, False):
                raise
            return bool(answer)

    with replace_internal("symbolic_bool", decide):
        yield


@dataclass(frozen=True)
class BranchDecision:
    """One combination of answers to the decisions of a model."""

    answers: Mapping[Site, bool]
    comparisons: tuple[bool, ...] = ()
    undecided: frozenset[Site] = frozenset()
    """Decisions of which the file does not lack a side that the model may take."""
    comparing_sites: tuple[Site, ...] = ()
    """Lines at which `torch.equal` answers as for the example. The file lacks what follows from another answer."""

    @property
    def strategy(self) -> str:
        decided = [f"{Path(file).name}:{line} always {yes}" for (file, line), yes in self.answers.items()]
        return ", ".join(decided) or "unknown size"

    @contextmanager
    def install(self) -> Iterator[None]:
        with DecidedBranches(self.answers, self.comparisons), assume_large_sizes():
            yield


def detect(case: Case) -> Match | Refusal:
    if not any(finding.code == DECISION_FINDING for finding in case.findings):
        return Refusal("no capture has failed at a decision on a value so far")
    if case.route.capture == "strict":
        return Refusal("strict capture reads a mode's own code as part of the model")
    with DecidedBranches() as run, Constants(case.model).follow_calls(), torch.no_grad():
        case.model(*case.args, **case.kwargs)
    constant = {site: next(iter(answers)) for site, answers in run.seen.items() if len(answers) == 1}
    checks = {site: answer for site, answer in constant.items() if is_input_check(*site)}
    both_ways = run.met if case.both_ways is None else case.both_ways
    unseen = {s: not answer for s, answer in constant.items() if s not in checks and s not in both_ways}
    settled = checks | unseen
    open_sites = [site for site in run.met if site not in settled]
    decisions = tuple(
        BranchDecision(
            settled | dict(zip(open_sites, answers, strict=True)),
            tuple(run.compared),
            frozenset(settled),
            (*run.comparing_sites,),
        )
        for answers in _combine(len(open_sites))
    )
    places = tuple(Where(file=file, line=line, function=name) for (file, line), name in run.met.items())
    return Match("branches on values always take one side, which gives the same", places, decisions)


def _combine(count: int) -> list[tuple[bool, ...]]:
    """Return the combinations of answers to try, equal answers first."""
    combinations = [(answer,) * count for answer in ((True, False) if count else (True,))]
    if count <= MAX_SEPARATE_BRANCHES:
        mixed = itertools.product((True, False), repeat=count)
        combinations += [answers for answers in mixed if answers not in combinations]
    return combinations


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    case.decided += [site for site in match.data[0].answers if site not in match.data[0].undecided]
    case.decided += match.data[0].comparing_sites
    with match.data[0].install():
        yield


REMEDY = Remedy(
    name="shortcut_branch",
    cures=Code.BRANCH_FROZEN,
    title="A branch on a value only saves work",
    stage="source",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="The decided model is compared with the original in eager PyTorch; the original judges the file.",
    detect=detect,
    apply=apply,
    order=40,
)
