"""Run the model at several points of its domain, and find the suspicious lines that run and vary.

A loop counts if its number of steps differs between points, a branch if it takes both sides, a choice or a list if its
line runs at all. Code that does not run is never a suspect and never keeps a rewrite from being made. The same holds
for code that runs only once, such as a print at the first call, since the first run is not observed.
"""

from __future__ import annotations

import ast
import dis
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import torch

from fairway.convert.rewrite.find import Lines, Site, find_all_sites, get_site_line
from fairway.convert.rewrite.scalars import RuntimeValue
from fairway.model.call_trace import TraceFunction, trace_calls
from fairway.model.source import is_user_code
from fairway.model.study import Line, Study

Span = tuple[int, int, int, int]
"""First line, first column, last line, last column."""

MIN_RUNS = 2
"""Runs that are needed to compare the numbers of steps."""
VISITS_PER_POINT = 2
"""Observed runs at each point."""


@dataclass(frozen=True)
class PassCounter:
    """Instructions of one function whose passes are counted."""

    code: types.CodeType
    entered: frozenset[int]
    """The offsets at which the site begins."""
    inside: int | None = None
    """The offset at which the body of a loop or of a branch begins."""


@dataclass
class Passes:
    """The number of times that one run passed a probe."""

    entered: int = 0
    inside: int = 0


@dataclass
class Observed:
    """The behavior of one site in several runs."""

    steps: list[int] = field(default_factory=list)
    """The number of times that the body began, run by run."""
    ran: bool = False
    sides: set[bool] = field(default_factory=set)
    """For a branch, the sides that were taken."""

    def add(self, passes: Passes) -> None:
        self.steps.append(passes.inside)
        self.ran |= passes.entered > 0
        if passes.inside:
            self.sides.add(True)
        if passes.entered > passes.inside:
            self.sides.add(False)


def find_live_lines(
    model: torch.nn.Module,
    given: Mapping[str, object] | None,
    runs: Iterable[Callable[[], object]],
    study: Study | None = None,
) -> Lines | None:
    """Return the lines of sites that ran and varied, or None if the model could not be run at two points.

    `runs` run the model at different points; the first of them is repeated, unobserved, before all others. Without a
    suspicious line nothing is run. Branches that the study found to depend on the inputs count if they ran.
    """
    sites = find_all_sites(model, given)
    if not sites:
        return frozenset()
    known = _find_dependent_lines(study)
    points = list(runs)
    with suppress(Exception):  # the judge reports a point that PyTorch refuses
        points[0]()
    live = sites
    # Code behind a cache by size, as in einops, runs at the first visit of a point and not at the second.
    for _ in range(VISITS_PER_POINT):
        seen = _observe(live, points) if live else {}
        if seen is None:
            return None
        live = tuple(site for site in live if site not in seen or _is_live(site, seen[site], known))
    return frozenset(map(get_site_line, live))


def _observe(sites: Sequence[Site], runs: Sequence[Callable[[], object]]) -> dict[Site, Observed] | None:
    """Return the behavior of each site that can be observed, or None if too few runs succeeded."""
    probes = {site: probe for site in sites if (probe := make_probe(site)) is not None}
    observed = {site: Observed() for site in probes}
    count = 0
    for run in runs:
        with suppress(Exception):
            for site, passes in zip(observed.values(), count_passes(run, list(probes.values())), strict=True):
                site.add(passes)
            count += 1
    return observed if count >= MIN_RUNS else None


def _find_dependent_lines(study: Study | None) -> frozenset[Line] | None:
    """Return the lines of branches that depend on the inputs, as far as the study saw; None without a study."""
    if study is None:
        return None
    unreached = {(branch.where.file or "", branch.where.line or 0) for branch in study.unreached}
    return study.both_ways | unreached


def _is_live(site: Site, observed: Observed, known: frozenset[Line] | None) -> bool:
    if not observed.ran:
        return False
    if site.suspect.kind == "branch":  # branches of libraries are found by comparing two runs
        varies = known is None or len(observed.sides) > 1 or get_site_line(site) in known
        return varies and is_user_code(site.source.file)
    return site.suspect.kind != "loop" or site.suspect.by_value or len(set(observed.steps)) > 1


def count_passes(run: Callable[[], RuntimeValue], probes: Sequence[PassCounter]) -> list[Passes]:
    """Run once, and count how often each probe is passed."""
    counts = [Passes() for _ in probes]
    offsets: dict[types.CodeType, dict[int, list[tuple[Passes, bool]]]] = {}
    for probe, passes in zip(probes, counts, strict=True):
        counted = offsets.setdefault(probe.code, {})
        for offset in probe.entered:
            counted.setdefault(offset, []).append((passes, False))
        if probe.inside is not None:
            counted.setdefault(probe.inside, []).append((passes, True))

    def trace_call(frame: types.FrameType, event: str, _: object) -> TraceFunction | None:
        counted = offsets.get(frame.f_code)
        if counted is None:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False

        def trace_instruction(frame: types.FrameType, event: str, _: object) -> TraceFunction:
            if event == "opcode":
                for passes, is_inside in counted.get(frame.f_lasti, ()):
                    if is_inside:
                        passes.inside += 1
                    else:
                        passes.entered += 1
            return trace_instruction

        return trace_instruction

    with trace_calls(trace_call):
        run()
    return counts


def make_probe(site: Site) -> PassCounter | None:
    """Return the offsets at which a site and its body begin in the bytecode; None if they cannot be found."""
    shift = _measure_indentation(site)
    outer, inner = _split_site(site.node)
    for code in _walk_code(site.source.function.__code__):
        begin = _find_instruction(code, _get_span(inner, shift)) if inner is not None else None
        if inner is not None and begin is None:
            continue
        entered = _find_instruction(code, _get_span(outer, shift))
        if inner is None and entered is None:
            continue
        return PassCounter(code, frozenset({entered if entered is not None else 0}), begin)
    return None


def _split_site(node: ast.AST) -> tuple[ast.AST, ast.AST | None]:
    """Return the expression at which a site begins, and the first statement that it repeats or decides."""
    match node:
        case ast.For(iter=head, body=body):
            return head, body[0]
        case ast.While(test=head, body=body) | ast.If(test=head, body=body):
            return head, body[0]
        case ast.IfExp(test=head, body=chosen):
            return head, chosen
        case ast.ListComp(elt=item) | ast.SetComp(elt=item) | ast.GeneratorExp(elt=item):
            return node, item
    return node, None


def _walk_code(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of functions defined inside a function, innermost first, and its own."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _walk_code(constant)
    yield code


def _find_instruction(code: types.CodeType, span: Span) -> int | None:
    """Return the first instruction of an expression or statement."""
    first, start, last, end = span
    for step in dis.get_instructions(code):
        place = step.positions
        if step.opname in _IDLE_INSTRUCTIONS or place is None or place.lineno is None or place.end_lineno is None:
            continue
        if (first, start) <= (place.lineno, place.col_offset or 0) and (
            (place.end_lineno, place.end_col_offset or 0) <= (last, end)
        ):
            return step.offset
    return None


_IDLE_INSTRUCTIONS = (
    "RESUME",
    "COPY_FREE_VARS",
    "MAKE_CELL",
    "CACHE",
    "EXTENDED_ARG",
    "RETURN_GENERATOR",
    "POP_TOP",
    "NOP",
)
"""Instructions that compute nothing, or at which Python's tracing does not stop."""


def _get_span(node: ast.AST, shift: int) -> Span:
    place: RuntimeValue = node
    return (
        place.lineno,
        place.col_offset + shift,
        place.end_lineno or place.lineno,
        (place.end_col_offset or 0) + shift,
    )


def _measure_indentation(site: Site) -> int:
    """Return the indentation that was removed from the function's text before it was parsed."""
    line = site.source.text(site.source.function.__code__.co_firstlineno)
    return len(line) - len(line.lstrip())
