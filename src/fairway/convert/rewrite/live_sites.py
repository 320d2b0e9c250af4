"""Which of the lines that were read really run, and what varies there: the model runs at several points of its domain.

A loop counts if it takes another number of steps at another point, a branch if it goes both ways, a choice or a list if
its line runs at all. Code that does not run is never accused and never in the way of a rewrite. Neither is what runs
only once, such as a print at the first call: the first run is not observed.
"""

from __future__ import annotations

import ast
import dis
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from fairway.convert.rewrite.find import Lines, Site, every_site, line_of
from fairway.model.source import is_users
from fairway.model.study import Line, Study

Span = tuple[int, int, int, int]
"""First line, first column, last line, last column."""

LEAST_RUNS = 2
"""Runs of which the steps can be compared."""
VISITS = 2
"""How often every point is visited."""


@dataclass(frozen=True)
class PassCounter:
    """Instructions of one function whose passes are counted."""

    code: types.CodeType
    entered: frozenset[int]
    """Where the site itself begins."""
    inside: int | None = None
    """Where the body of a loop or of a branch begins."""


@dataclass
class Passes:
    """How often one run passed a probe."""

    entered: int = 0
    inside: int = 0


@dataclass
class Observed:
    """What several runs did at one site."""

    steps: list[int] = field(default_factory=list)
    """How often the body was begun, run by run."""
    ran: bool = False
    sides: set[bool] = field(default_factory=set)
    """For a branch, which sides were taken."""

    def add(self, passes: Passes) -> None:
        self.steps.append(passes.inside)
        self.ran |= passes.entered > 0
        if passes.inside:
            self.sides.add(True)
        if passes.entered > passes.inside:
            self.sides.add(False)


def live_lines(
    model: torch.nn.Module,
    given: Mapping[str, Any] | None,
    runs: Iterable[Callable[[], Any]],
    study: Study | None = None,
) -> Lines | None:
    """Return the lines of sites that ran and varied, or None if the model could not be run at two points.

    `runs` run the model at different points; the first of them is repeated, unobserved, before all others. Without a
    suspicious line nothing is run. Branches that the study found to depend on the inputs count if they ran.
    """
    sites = every_site(model, given)
    if not sites:
        return frozenset()
    known = _lines_of(study)
    points = list(runs)
    with suppress(Exception):  # a point that PyTorch refuses is for the judge to meet
        points[0]()
    live = sites
    # What a cache remembers by size, as einops does, runs at the first visit of a point and not at the second.
    for _ in range(VISITS):
        seen = _observe(live, points) if live else {}
        if seen is None:
            return None
        live = tuple(site for site in live if site not in seen or _is_live(site, seen[site], known))
    return frozenset(map(line_of, live))


def _observe(sites: Sequence[Site], runs: Sequence[Callable[[], Any]]) -> dict[Site, Observed] | None:
    """Return what the runs did at each site that can be followed; None if too few could be made."""
    probes = {site: probe for site in sites if (probe := make_probe(site)) is not None}
    observed = {site: Observed() for site in probes}
    count = 0
    for run in runs:
        with suppress(Exception):
            for one, passes in zip(observed.values(), count_passes(run, list(probes.values())), strict=True):
                one.add(passes)
            count += 1
    return observed if count >= LEAST_RUNS else None


def _lines_of(study: Study | None) -> frozenset[Line] | None:
    """Return the lines of branches that depend on the inputs, as far as the study saw; None without a study."""
    if study is None:
        return None
    unreached = {(one.where.file or "", one.where.line or 0) for one in study.unreached}
    return study.both_ways | unreached


def _is_live(site: Site, observed: Observed, known: frozenset[Line] | None) -> bool:
    if not observed.ran:
        return False
    if site.suspect.kind == "branch":  # those of libraries are found where two runs part
        varies = known is None or len(observed.sides) > 1 or line_of(site) in known
        return varies and is_users(site.source.file)
    return site.suspect.kind != "loop" or site.suspect.by_value or len(set(observed.steps)) > 1


def count_passes(run: Callable[[], Any], probes: Sequence[PassCounter]) -> list[Passes]:
    """Run once, and count how often each probe is passed."""
    counts = [Passes() for _ in probes]
    places: dict[types.CodeType, dict[int, list[tuple[Passes, bool]]]] = {}
    for probe, passes in zip(probes, counts, strict=True):
        here = places.setdefault(probe.code, {})
        for offset in probe.entered:
            here.setdefault(offset, []).append((passes, False))
        if probe.inside is not None:
            here.setdefault(probe.inside, []).append((passes, True))

    def enter(frame: types.FrameType, event: str, _: Any) -> Any:
        here = places.get(frame.f_code)
        if here is None:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False

        def at(frame: types.FrameType, event: str, _: Any) -> Any:
            if event == "opcode":
                for passes, inside in here.get(frame.f_lasti, ()):
                    if inside:
                        passes.inside += 1
                    else:
                        passes.entered += 1
            return at

        return at

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        run()
    finally:
        sys.settrace(before)
    return counts


def make_probe(site: Site) -> PassCounter | None:
    """Return where a site and its body begin in the bytecode; None if that cannot be told."""
    shift = _indentation(site)
    outer, inner = _parts(site.node)
    for code in _codes(site.source.function.__code__):
        begin = _first_within(code, _span(inner, shift)) if inner is not None else None
        if inner is not None and begin is None:
            continue
        entered = _first_within(code, _span(outer, shift))
        if inner is None and entered is None:
            continue
        return PassCounter(code, frozenset({entered if entered is not None else 0}), begin)
    return None


def _parts(node: ast.AST) -> tuple[ast.AST, ast.AST | None]:
    """Return the expression at which a site begins, and what it repeats or decides."""
    match node:
        case ast.For(iter=asked, body=body):
            return asked, body[0]
        case ast.While(test=asked, body=body) | ast.If(test=asked, body=body):
            return asked, body[0]
        case ast.IfExp(test=asked, body=chosen):
            return asked, chosen
        case ast.ListComp(elt=item) | ast.SetComp(elt=item) | ast.GeneratorExp(elt=item):
            return node, item
    return node, None


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of what is defined inside a function, innermost first, and its own."""
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _codes(one)
    yield code


def _first_within(code: types.CodeType, span: Span) -> int | None:
    """Return the first instruction of an expression or statement."""
    first, start, last, end = span
    for one in dis.get_instructions(code):
        place = one.positions
        if one.opname in _IDLE or place is None or place.lineno is None or place.end_lineno is None:
            continue
        if (first, start) <= (place.lineno, place.col_offset or 0) and (
            (place.end_lineno, place.end_col_offset or 0) <= (last, end)
        ):
            return one.offset
    return None


_IDLE = ("RESUME", "COPY_FREE_VARS", "MAKE_CELL", "CACHE", "EXTENDED_ARG", "RETURN_GENERATOR", "POP_TOP", "NOP")
"""Instructions that compute nothing, or at which Python's tracing does not stop."""


def _span(node: ast.AST, shift: int) -> Span:
    place: Any = node
    return (
        place.lineno,
        place.col_offset + shift,
        place.end_lineno or place.lineno,
        (place.end_col_offset or 0) + shift,
    )


def _indentation(site: Site) -> int:
    """Return by how many columns the function's text was moved to the left before it was parsed."""
    line = site.source.text(site.source.function.__code__.co_firstlineno)
    return len(line) - len(line.lstrip())
