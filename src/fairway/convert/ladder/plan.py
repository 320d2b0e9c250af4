"""Chooses the next rung. The order is a table; the findings of earlier rungs change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairway.convert.blocks.repeats import Repeat
from fairway.convert.ladder.route import parse_route
from fairway.convert.remedies.catalogue import BUILT_IN
from fairway.convert.rewrite.find import Suspect
from fairway.convert.types import SOURCE_REMEDIES, PlannedRung, Rung, Settings
from fairway.diagnostics import Code

MAX_LARGER_EXAMPLES = 2
"""How often a file that is wrong at larger sizes is exported again from one of those sizes."""

TRACE_OPSETS = range(7, 21)
"""The opsets that the TorchScript exporter writes (torch 2.13)."""


RETRIED_WITHOUT = tuple(name for name, remedy in BUILT_IN.items() if remedy.retried_without)
"""Remedies without which the first route is tried once more if they did not help."""

_LADDER: tuple[tuple[str, bool, str], ...] = (
    ("export-dynamic", True, ""),
    ("trace", True, ""),
    ("export-dynamic", False, ""),
    *(("export-dynamic", False, name) for name in RETRIED_WITHOUT),
    ("export-auto", False, ""),
    ("trace", False, ""),
    ("strict-dynamic", False, ""),
    ("export-named", False, ""),
    ("script", False, ""),
)
"""The cheapest likely success comes first. Rewrites come first if a line calls for them: it fails without them."""

PIECES_ROUTE = "pieces"
FIXED_DIM_CODES = (Code.DIM_SPECIALIZED, Code.DIM_FIXED)
"""Findings that say that a dim depends on the region of sizes that was captured."""

BRANCH = Code.BRANCH_FROZEN
"""After a branch in the user's own code was to blame, scripting is next: only it keeps both sides."""

FIXED_DIM = Code.DIM_FIXED
"""`len(t)` and `int(size)` fix a size for non-strict capture, and stay symbolic under strict capture."""

_OTHER_CAPTURES = ("export-auto", "export-named", "strict-dynamic")

_POINTLESS: dict[str, tuple[str, ...]] = {
    # A missing or failing translation is the same however the dims were declared.
    Code.NO_TRANSLATION: _OTHER_CAPTURES,
    Code.TRANSLATION_FAILED: _OTHER_CAPTURES,
    # torch.export cannot capture a decision on data, however the dims are declared.
    Code.DATA_DEPENDENT: ("export-auto", "export-named"),
    Code.TIME_LIMIT: _OTHER_CAPTURES,
    Code.MEMORY_LIMIT: _OTHER_CAPTURES,
}


def choose_next_step(
    rungs: Sequence[Rung], settings: Settings, suspects: Sequence[Suspect], repeats: tuple[Repeat, ...] = ()
) -> PlannedRung | None:
    """Return the first step of the ladder that was not tried and is not ruled out, or None at the end of the ladder.

    Rungs that were tried on shortened runs of blocks do not count once the runs have changed.
    """
    walked = [rung.step for rung in rungs]
    rungs = [rung for rung in rungs if rung.step.repeats == repeats or rung.route.is_traced]
    ruled_out = _find_ruled_out(rungs)
    tried = {name for rung in rungs for name in rung.tried}
    steps = _plan_larger_example(rungs) + _plan_pieces(rungs, settings) + _plan_decisions(rungs, settings)
    steps += _plan_ladder(settings, bool(suspects) and settings.remedies)
    codes = {finding.code for rung in rungs for finding in rung.findings}
    sooner = (PIECES_ROUTE, "script") if BRANCH in codes else ("strict-dynamic",) if FIXED_DIM in codes else ()
    steps.sort(key=lambda step: step.route.name not in sooner)
    for step in steps:
        if not step.route.is_traced:
            step = replace(step, repeats=repeats)
        if step not in walked and step.name not in ruled_out and (not step.without or step.without in tried):
            return step
    return None


def _plan_larger_example(rungs: Sequence[Rung]) -> list[PlannedRung]:
    """Plan to export a file that is wrong at larger sizes again from one of those sizes, at most twice.

    A capture treats a size of 1 in the example as always 1, also a computed size such as the number of blocks, and it
    takes a branch on a size the way the example goes. This does not help if a loop is to blame: a larger example would
    only unroll it further.
    """
    larger = [rung for rung in rungs if rung.step.wrong_at]
    for rung in larger[-1:] or rungs:
        wrong_at = rung.evidence.wrong_at if rung.evidence is not None else {}
        unrolled = any(finding.code == Code.LOOP_UNROLLED for finding in rung.findings)
        if (
            wrong_at
            and not unrolled
            and not (rung.route.is_traced or rung.route.pieces)
            and len(larger) < MAX_LARGER_EXAMPLES
        ):
            return [replace(rung.step, wrong_at=tuple(wrong_at.items()))]
    return []


def _plan_pieces(rungs: Sequence[Rung], settings: Settings) -> list[PlannedRung]:
    """Plan several captures if one is not enough, because it follows the branches of one size.

    The file of one capture is right at some sizes and wrong at others, or a dim cannot stay dynamic even with AUTO. If
    the file of several captures is wrong, it is made again with the points at which it is wrong.
    """
    captures = [rung for rung in rungs if not rung.route.is_traced and not rung.route.pieces]
    by_size = any(r.evidence is not None and r.verdict == "wrong" and r.evidence.wrong_by_size for r in captures)
    fixed = any(finding.code in FIXED_DIM_CODES for rung in captures for finding in rung.findings)
    tried_auto = any(rung.route.dims == "auto" for rung in captures)
    needed = PIECES_ROUTE in settings.routes if settings.routes else by_size or (fixed and tried_auto)
    if not needed:
        return []
    steps = [PlannedRung(parse_route(PIECES_ROUTE, settings.opset))]
    for rung in [rung for rung in rungs if rung.route.pieces][:MAX_LARGER_EXAMPLES]:
        if rung.verdict == "wrong" and rung.evidence is not None and rung.evidence.wrong_by_size:
            steps.append(replace(rung.step, wrong_points=rung.evidence.wrong_points))
    return steps


def _plan_decisions(rungs: Sequence[Rung], settings: Settings) -> list[PlannedRung]:
    """Plan the first route that failed at a decision on a value again, with the decision made beforehand."""
    for rung in rungs:
        if settings.remedies and not rung.route.is_traced and any(f.code == Code.DATA_DEPENDENT for f in rung.findings):
            return [replace(rung.step, rewrites=True, decided=True)]
    return []


def _find_ruled_out(rungs: Sequence[Rung]) -> set[str]:
    """Return the names of steps that would end in the same way as one that was tried."""
    out: set[str] = set()
    for rung in rungs:
        rewritten = any(name in SOURCE_REMEDIES for name, _ in rung.remedies)
        if rung.step.rewrites and not rewritten and not rung.step.decided:
            out.add(rung.step.route.name)  # no rewrite was found or proven, so this was the plain route already
        if rung.route.is_traced or rewritten:
            continue
        if rung.candidate is not None:
            out.add("export-named")  # it refuses other models, but writes the same file
            if any(finding.code == Code.LOOP_UNROLLED for finding in rung.findings):
                out.add("strict-dynamic")  # it unrolls loops too
        for finding in rung.findings:
            out.update(_POINTLESS.get(finding.code, ()))
            if finding.data.get("lacks_kernel"):
                out.update(_OTHER_CAPTURES)
    return out


def _plan_ladder(settings: Settings, rewrites: bool) -> list[PlannedRung]:
    names = settings.routes or tuple(dict.fromkeys(name for name, _, _ in _LADDER))
    steps = [
        PlannedRung(parse_route(name, settings.opset), rewriting, without)
        for name, rewriting, without in _LADDER
        if name in names and (rewrites or not rewriting)
    ]
    return [s for s in steps if not s.route.is_traced or settings.opset is None or settings.opset in TRACE_OPSETS]
