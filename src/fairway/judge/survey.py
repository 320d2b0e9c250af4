"""Study a model before it is exported: learn its legal values, follow its branches, aim at what no sample reached."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from fairway.diagnostics import Where
from fairway.judge.aim import aim_at_values, find_edge, sample_at, solve_sizes
from fairway.judge.budget import LARGEST_FLOPS, volume
from fairway.judge.conditions import place_of
from fairway.judge.coverage import Branch, Coverage
from fairway.judge.judge import sample_inputs
from fairway.judge.lattice import lattice
from fairway.judge.legal import learn_values
from fairway.judge.randomness import find_draw, generator_states
from fairway.judge.runtimes.eager import run_eager
from fairway.model.example import choose_example
from fairway.model.sample import Sample
from fairway.model.study import Line, Study, Unreached
from fairway.model.subject import Subject

SURVEYED_SAMPLES = 40
"""Samples that are followed: the cheapest of the lattice."""
READ_SAMPLES = 4
"""Of those, samples during which reads of tensors' values are noted."""
BRANCHES_AIMED_AT = 12
ELEMENTS_RUN = 2_000_000
"""Elements of inputs that all followed samples may have together."""
FLOPS_RUN = 3e10
"""Floating-point operations that all followed samples may take together."""
JUDGED_FLOPS = LARGEST_FLOPS["quick"] / 4
"""Operations up to which the judge runs an aimed sample at every level."""
LEAST_SAMPLES = 2
DRAWS_TRIED = 4
"""Samples that draw random numbers and are run again from other random states."""
EDGES_FOUND = 4
"""Branches on values whose edge is looked for."""
EDGE_RUNS = 100
"""Runs that this may take in all."""
WITNESSES = 12
"""Samples that are run at every level because they take a side of a branch."""

Report = Callable[[Study], None]


def study_values(subject: Subject, report: Report) -> Study:
    """Return the legal values. `report` gets what is known so far, since a trial of values may end the process."""
    study = subject.study
    if not subject.ranges:
        return study
    learned = learn_values(subject, lambda ranges: report(replace(study, ranges=ranges)))
    return replace(study, ranges=learned.ranges, literals=learned.literals)


def survey_branches(subject: Subject) -> Study:
    """Return the study with which branches were not reached, and samples that reach the others."""
    coverage = Coverage(subject.model)
    runs: list[Sample] = []
    for number, one in enumerate(_cheapest(subject)):
        _follow(subject, coverage, runs, one, reads=number < READ_SAMPLES)
    aimed: list[Sample] = []
    unreached: list[Unreached] = []
    for number, branch in enumerate(coverage.open_branches()):
        if branch.missing is None:
            continue  # a sample aimed at another branch reached it
        if number < BRANCHES_AIMED_AT:
            found, missed = _aim(subject, coverage, runs, branch)
        else:
            found, missed = [], [_describe(branch, coverage, runs)]
        aimed += found
        unreached += missed
    edges = _edges(subject, coverage, runs)
    return replace(
        subject.study,
        aimed=tuple(dict.fromkeys([*aimed, *edges, *_witnesses(coverage, runs)])),
        unreached=_distinct(unreached),
        both_ways=_lines_both_ways(coverage),
        random=_find_random(subject, coverage.drawing),
    )


def _witnesses(coverage: Coverage, runs: Sequence[Sample]) -> list[Sample]:
    """Return a sample for each side of each branch that depends on the inputs, so that every level runs both."""
    found: dict[Sample, None] = {}
    for branch in coverage.branches.values():
        if branch.missing is None and coverage.depends_on_inputs(branch):
            for answer in (True, False):
                met = [o.run for o in branch.observations if o.answer is answer]
                found.update({runs[met[0]]: None} if met else {})
    return list(found)[:WITNESSES]


def _edges(subject: Subject, coverage: Coverage, runs: list[Sample]) -> list[Sample]:
    """Return samples close to either side of each branch on values, so that a shifted threshold shows."""
    found: list[Sample] = []
    plain = Sample(tuple(subject.example.items()), seed=3)
    if not subject.ranges or cost_of(subject, plain) > FLOPS_RUN / EDGE_RUNS:
        return []
    branches = [b for b in coverage.branches.values() if b.missing is None and not _about_sizes(b, runs)]
    for branch in [b for b in branches if coverage.depends_on_inputs(b)][:EDGES_FOUND]:

        def answer_at(one: Sample, branch: Branch = branch) -> bool | None:
            _follow(subject, coverage, runs, one)
            answers = {o.answer for o in branch.observations if o.run == len(runs) - 1}
            return answers.pop() if len(answers) == 1 else None

        found += find_edge(plain, answer_at)
    return found


def _lines_both_ways(coverage: Coverage) -> frozenset[Line]:
    """Return the lines of conditions whose every part that depends on the inputs went both ways."""
    lines: dict[Line, bool] = {}
    for branch in coverage.branches.values():
        if branch.missing is not None and not coverage.depends_on_inputs(branch):
            continue
        for place in coverage.lines_deciding(branch):
            lines[place] = lines.get(place, True) and branch.missing is None
    return frozenset(place for place, both in lines.items() if both)


def _cheapest(subject: Subject) -> list[Sample]:
    """Return the samples to follow: those with the fewest elements, within a limit for all together."""
    other = choose_example(subject.domain, subject.spec, {}, avoid=subject.example)
    samples = lattice(
        subject.domain,
        subject.example,
        other,
        "standard",
        None,
        subject.flavours,
        subject.given,
        {},
        subject.study.literals,
    )
    chosen: list[Sample] = []
    left = ELEMENTS_RUN
    flops_left = FLOPS_RUN
    for one in sorted(samples, key=lambda s: _elements(subject, s)):
        left -= _elements(subject, one)
        flops_left -= subject.study.flops_per_volume * volume(one.sizes)
        if len(chosen) >= SURVEYED_SAMPLES or (min(left, flops_left) < 0 and len(chosen) >= LEAST_SAMPLES):
            break
        chosen.append(one)
    return chosen


def _elements(subject: Subject, one: Sample) -> int:
    return sum(prod(spec.sizes(one.sizes)) for spec in subject.spec)


def _follow(subject: Subject, coverage: Coverage, runs: list[Sample], one: Sample, reads: bool = False) -> bool:
    """Run one sample under the coverage; tell whether PyTorch accepts it."""
    tensors = sample_inputs(subject, one, ())
    runs.append(one)
    before = generator_states()
    try:
        with coverage.following(len(runs) - 1, reads):
            run_eager(subject, tensors)
    except Exception:
        return False
    if generator_states() != before:
        coverage.drawing.append(one)
    return True


def _find_random(subject: Subject, drawing: Sequence[Sample]) -> tuple[Sample, Where | None] | None:
    """Return the first of the samples that draw random numbers whose answer depends on them, with the line."""
    for one in drawing[:DRAWS_TRIED]:
        differs, where = find_draw(subject, sample_inputs(subject, one, ()))
        if differs:
            return one, where
    return None


def _aim(
    subject: Subject, coverage: Coverage, runs: list[Sample], branch: Branch
) -> tuple[list[Sample], list[Unreached]]:
    """Return samples that take the missing side of a branch, or the branch as unreached if none was found."""
    missing = branch.missing
    assert missing is not None

    def reaches(one: Sample) -> bool:
        return _follow(subject, coverage, runs, one) and missing in branch.answers

    sizes = solve_sizes(subject.domain, branch, runs)
    if sizes is not None:
        found = [sample_at(subject, point) for point in sizes.points]
        reached = [one for one in found if _cheap(subject, one) and reaches(one)]
        # Points that are dear to run here are left to the judge, if it can afford them.
        left = [one for one in found if not _cheap(subject, one) and cost_of(subject, one) <= JUDGED_FLOPS]
        missed = [] if reached or left or not found else [_describe(branch, coverage, runs)]
        return list(dict.fromkeys([*reached, *found])), missed
    one = aim_at_values(subject, branch, runs, reaches) if subject.ranges else None
    if one is not None:
        seeds = (one, replace(one, seed=one.seed + 1))
        return list(seeds), []
    return [], [_describe(branch, coverage, runs)]


def _describe(branch: Branch, coverage: Coverage, runs: Sequence[Sample]) -> Unreached:
    """Return a branch as data for a result."""
    where = place_of(branch.site, branch.header)
    about = "sizes" if _about_sizes(branch, runs) else "values"
    return Unreached(where, ast.unparse(branch.test), bool(branch.missing), about, coverage.lines_read_for(branch))


def _cheap(subject: Subject, one: Sample) -> bool:
    return _elements(subject, one) <= ELEMENTS_RUN and cost_of(subject, one) <= FLOPS_RUN


def cost_of(subject: Subject, one: Sample) -> float:
    """Return the floating-point operations that a sample takes."""
    return subject.study.flops_per_volume * volume(one.sizes)


def _about_sizes(branch: Branch, runs: Sequence[Sample]) -> bool:
    """Whether runs at one point always showed the same numbers."""
    by_point: dict[object, set[object]] = {}
    for o in branch.observations:
        by_point.setdefault(runs[o.run].point, set()).add(o.values)
    return len(by_point) > 1 and all(len(seen) == 1 for seen in by_point.values())


def _distinct(unreached: Sequence[Unreached]) -> tuple[Unreached, ...]:
    return tuple({(u.where.file, u.where.line, u.condition): u for u in unreached}.values())
