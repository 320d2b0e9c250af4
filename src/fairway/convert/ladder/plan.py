"""Which rung comes next. The order is a table; what earlier rungs found moves along it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairway.convert.blocks.repeats import Repeat
from fairway.convert.ladder.route import Route, parse_route

LARGER = 2
"""How often a file that is wrong at larger sizes is exported from one of those."""

SOURCE = ("loop_unrolled", "list_frozen", "module_chosen_by_value", "shortcut_branch")
"""The remedies that change what the user's source does."""

TRACE_OPSETS = range(7, 21)
"""What the TorchScript exporter writes (torch 2.13)."""


@dataclass(frozen=True)
class PlannedRung:
    """A route, with or without rewrites of the user's source, and without some remedy that may have done harm."""

    route: Route
    rewrites: bool = False
    without: str = ""
    wrong_at: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Sizes to take the example from: there, an earlier rung's file was wrong."""
    decided: bool = False
    """With decisions on values made beforehand; walked only where a remedy can do that."""
    repeats: tuple[Repeat, ...] = ()
    """Runs of equal blocks of which three are captured."""
    wrong_points: tuple[tuple[tuple[str, int], ...], ...] = ()
    """Points at which the last file of several captures was wrong."""

    @property
    def name(self) -> str:
        without = f" without {self.without}" if self.without else ""
        larger = " from a larger example" if self.wrong_at else " once more" if self.wrong_points else ""
        how = " with branches decided" if self.decided else " with rewrites" if self.rewrites else ""
        return self.route.name + how + without + larger

    @property
    def needs(self) -> tuple[str, ...]:
        """Remedies of which one must be chosen, or the step is a repetition of an earlier one."""
        return SOURCE if self.decided else ()


BORROWED = "transformers_patches"
"""The remedy that is not ours. Where it did not help, the same route is tried once without it."""

_LADDER: tuple[tuple[str, bool, str], ...] = (
    ("export-dynamic", True, ""),
    ("trace", True, ""),
    ("export-dynamic", False, ""),
    ("export-dynamic", False, BORROWED),
    ("export-auto", False, ""),
    ("trace", False, ""),
    ("strict-dynamic", False, ""),
    ("export-named", False, ""),
    ("script", False, ""),
)
"""Cheapest likely success first. Rewrites come first where a line calls for them: without, it ends in failure."""

PIECES = "pieces"
FIXED_DIMS = ("FW302", "FW402")
"""Findings after which a dim depends on the region of sizes that was captured."""

LOOP = "FW206"

BRANCH = "FW207"
"""Once a branch in the user's own code was to blame, scripting is next: it alone keeps both arms."""

FIXED = "FW402"
"""`len(t)` and `int(size)` fix a size for non-strict capture, and stay symbolic under strict capture."""

DECISION = "FW303"

_POINTLESS = {
    # A missing or failing translation is the same however the dims were declared.
    "FW304": ("export-auto", "export-named", "strict-dynamic"),
    "FW305": ("export-auto", "export-named", "strict-dynamic"),
    # A decision on data cannot be captured by torch.export whatever is said of the dims.
    "FW303": ("export-auto", "export-named"),
    "FW501": ("export-auto", "export-named", "strict-dynamic"),
    "FW502": ("export-auto", "export-named", "strict-dynamic"),
}


def next_step(
    rungs: Sequence[Any], settings: Any, suspects: Sequence[Any], repeats: tuple[Repeat, ...] = ()
) -> PlannedRung | None:
    """The first step of the ladder that was not walked and is not ruled out; None when the ladder ends.

    What was walked with blocks taken out counts only as long as they are: without, it is another step.
    """
    walked = [rung.step for rung in rungs]
    rungs = [rung for rung in rungs if rung.step.repeats == repeats or rung.route.traced]
    out = _ruled_out(rungs)
    tried = {name for rung in rungs for name in rung.tried}
    steps = _larger(rungs) + _pieces(rungs, settings) + _decided(rungs, settings)
    steps += _steps(settings, bool(suspects) and settings.remedies)
    seen = {finding.code for rung in rungs for finding in rung.findings}
    sooner = (PIECES, "script") if BRANCH in seen else ("strict-dynamic",) if FIXED in seen else ()
    steps.sort(key=lambda step: step.route.name not in sooner)
    for step in steps:
        if not step.route.traced:
            step = replace(step, repeats=repeats)
        if step not in walked and step.name not in out and (not step.without or step.without in tried):
            return step
    return None


def _larger(rungs: Sequence[Any]) -> list[PlannedRung]:
    """A size of 1 in the example is taken for always 1, also one that is computed, such as the number of blocks.

    A file that is wrong at larger sizes is exported again from one of those, and if need be once more: a branch on a
    size is taken the way the example goes. Not where a loop is to blame: it would only be unrolled further.
    """
    larger = [rung for rung in rungs if rung.step.wrong_at]
    for rung in larger[-1:] or rungs:
        wrong_at = rung.evidence.wrong_at if rung.evidence is not None else {}
        unrolled = any(finding.code == LOOP for finding in rung.findings)
        if wrong_at and not unrolled and not (rung.route.traced or rung.route.pieces) and len(larger) < LARGER:
            return [replace(rung.step, wrong_at=tuple(wrong_at.items()))]
    return []


def _pieces(rungs: Sequence[Any], settings: Any) -> list[PlannedRung]:
    """Several captures, where one was wrong or impossible because it follows the way that one size goes.

    Its file is right at some sizes and wrong at others; or a dim cannot stay dynamic, also where torch has its way. A
    file of several captures that is wrong is made once more with the points at which it is.
    """
    captures = [rung for rung in rungs if not rung.route.traced and not rung.route.pieces]
    by_size = any(r.evidence is not None and r.verdict == "wrong" and r.evidence.wrong_by_size for r in captures)
    fixed = any(finding.code in FIXED_DIMS for rung in captures for finding in rung.findings)
    had_its_way = any(rung.route.dims == "auto" for rung in captures)
    wanted = PIECES in settings.routes if settings.routes else by_size or (fixed and had_its_way)
    if not wanted:
        return []
    steps = [PlannedRung(parse_route(PIECES, settings.opset))]
    for rung in [rung for rung in rungs if rung.route.pieces][:LARGER]:
        if rung.verdict == "wrong" and rung.evidence is not None and rung.evidence.wrong_by_size:
            steps.append(replace(rung.step, wrong_points=rung.evidence.wrong_points))
    return steps


def _decided(rungs: Sequence[Any], settings: Any) -> list[PlannedRung]:
    """The first route that failed at a decision on a value, once more with that made beforehand."""
    for rung in rungs:
        if settings.remedies and not rung.route.traced and any(f.code == DECISION for f in rung.findings):
            return [replace(rung.step, rewrites=True, decided=True)]
    return []


def _ruled_out(rungs: Sequence[Any]) -> set[str]:
    """Names of steps that cannot end differently from one that was walked."""
    out: set[str] = set()
    for rung in rungs:
        rewritten = any(name in SOURCE for name, _ in rung.remedies)
        if rung.step.rewrites and not rewritten and not rung.step.decided:
            out.add(rung.step.route.name)  # no rewrite was found or proven, so this was the plain route already
        if rung.route.traced or rewritten:
            continue
        if rung.captured is not None:
            out.add("export-named")  # it differs in what it refuses, not in what it writes
            if any(finding.code == LOOP for finding in rung.findings):
                out.add("strict-dynamic")  # it unrolls loops, too
        for finding in rung.findings:
            out.update(_POINTLESS.get(finding.code, ()))
    return out


def _steps(settings: Any, rewrites: bool) -> list[PlannedRung]:
    names = settings.routes or tuple(dict.fromkeys(name for name, _, _ in _LADDER))
    steps = [
        PlannedRung(parse_route(name, settings.opset), rewriting, without)
        for name, rewriting, without in _LADDER
        if name in names and (rewrites or not rewriting)
    ]
    return [s for s in steps if not s.route.traced or settings.opset is None or settings.opset in TRACE_OPSETS]
