"""Study a model before it is exported: learn its legal values, follow its branches, aim at unreached sides."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence, Sized
from dataclasses import replace
from math import prod

from fairway.diagnostics import Where
from fairway.judge.aim import (
    aim_at_numbers,
    aim_at_values,
    find_constants,
    find_edge,
    make_sample_at,
    solve_sizes,
)
from fairway.judge.budget import MAX_LARGEST_SAMPLE_FLOPS, compute_volume
from fairway.judge.conditions import find_expression, locate_condition
from fairway.judge.coverage import Branch, Coverage
from fairway.judge.judge import make_sample_inputs
from fairway.judge.lattice import LatticeHints, build_lattice
from fairway.judge.legal import learn_values
from fairway.judge.randomness import find_draw, get_generator_states
from fairway.judge.runtimes.eager import run_eager
from fairway.model.example import choose_example
from fairway.model.sample import Sample
from fairway.model.source import make_where
from fairway.model.study import Line, PythonRead, Study, UnreachedBranch
from fairway.model.subject import Subject

MAX_SURVEYED_SAMPLES = 40
"""At most this many samples are followed, the cheapest of the lattice."""
READ_SAMPLES = 4
"""Reads of tensors' values are recorded in this many of the followed samples, and in all of them if there are any."""
MAX_BRANCHES_AIMED_AT = 12
MAX_READS_AIMED_AT = 6
MAX_ELEMENTS_RUN = 2_000_000
"""Elements that the inputs of all followed samples may have together."""
MAX_FLOPS_RUN = 3e10
"""Floating-point operations that all followed samples may take together."""
MAX_JUDGED_FLOPS = MAX_LARGEST_SAMPLE_FLOPS["quick"] / 4
"""The judge runs an aimed sample at every level if it takes no more operations than this."""
MIN_SAMPLES = 2
MAX_DRAWS_TRIED = 4
"""At most this many samples that draw random numbers are run again from other random states."""
MAX_EDGES = 4
"""The edge of at most this many branches on values is searched for."""
MAX_EDGE_RUNS = 100
"""Runs that the search for all edges may take."""
MAX_ANSWERS_OF_A_CHOICE = 4
"""A value that Python reads chooses something if it is one of this many. Others are numbers to compute with."""
MAX_WITNESSES = 12
"""At most this many samples are run at every level because they take a side of a branch."""

OnStudy = Callable[[Study], None]


def study_values(subject: Subject, report: OnStudy) -> Study:
    """Return the legal values. `report` gets results early, because a trial of values may end the process."""
    study = subject.study
    if not subject.ranges:
        return study
    learned = learn_values(subject, lambda ranges: report(replace(study, ranges=ranges)))
    return replace(study, ranges=learned.ranges, literals=learned.literals)


def survey_branches(subject: Subject) -> Study:
    """Return the study with the branches that were not reached, and samples that reach the others."""
    coverage = Coverage()
    runs: list[Sample] = []
    for number, sample in enumerate(_choose_cheapest(subject)):
        _follow_sample(subject, coverage, runs, sample, reads=number < READ_SAMPLES or bool(coverage.reads))
    aimed: list[Sample] = []
    unreached: list[UnreachedBranch] = []
    for number, branch in enumerate(coverage.find_open_branches()):
        if branch.missing_answer is None:
            continue  # a sample aimed at another branch reached it
        if number < MAX_BRANCHES_AIMED_AT:
            reached, unreached_branches = _aim_at_branch(subject, coverage, runs, branch)
        else:
            reached, unreached_branches = [], [_describe_unreached(branch, coverage, runs)]
        aimed += reached
        unreached += unreached_branches
    aimed += _aim_at_reads(subject, coverage, runs)
    edges = _find_edges(subject, coverage, runs)
    aimed += [*edges, *_choose_witnesses(coverage, runs)]
    return replace(
        subject.study,
        aimed=tuple(dict.fromkeys(aimed)),
        unreached=_keep_distinct(unreached),
        reads=_describe_reads(coverage),
        both_ways=_find_lines_both_ways(coverage),
        random=_find_random(subject, coverage.drawing, aimed),
    )


def _aim_at_reads(subject: Subject, coverage: Coverage, runs: list[Sample]) -> list[Sample]:
    """Return samples at which a value is another one that Python reads without a branch, and that never changed."""
    aimed: list[Sample] = []
    for stack, read in coverage.find_loose_reads()[:MAX_READS_AIMED_AT]:
        if len(read.results) > 1 or not subject.ranges:
            continue

        def reaches(sample: Sample, results: Sized = read.results) -> bool:
            return _follow_sample(subject, coverage, runs, sample, reads=True) and len(results) > 1

        expressions = [find_expression(place.file, place.span) for place in stack]
        numbers = [number for tree in expressions if tree is not None for number in find_constants(tree)]
        sample = aim_at_numbers(subject, numbers, runs, reaches)
        aimed += [] if sample is None else [sample, replace(sample, seed=sample.seed + 1)]
    return aimed


def _describe_reads(coverage: Coverage) -> tuple[PythonRead, ...]:
    """Return the reads without a branch as data for a result, one for each line."""
    reads: dict[Line, PythonRead] = {}
    for stack, read in coverage.find_loose_reads():
        place = stack[0]
        tree = find_expression(place.file, place.span)
        where = make_where(place.file, place.span[0], read.function)
        text = ast.unparse(tree) if tree is not None else (where.source or "")
        (value,) = read.results if len(read.results) == 1 else ("",)
        lines = frozenset((place.file, place.span[0]) for place in stack)
        known = reads.get((place.file, place.span[0]))
        if known is None or not known.value:
            reads[place.file, place.span[0]] = PythonRead(where, text, lines, str(value))
    return tuple(reads.values())


def _choose_witnesses(coverage: Coverage, runs: Sequence[Sample]) -> list[Sample]:
    """Return a sample for each side of each branch that depends on the inputs, so that every level runs both."""
    witnesses: dict[Sample, None] = {}
    for branch in coverage.branches.values():
        if branch.missing_answer is None and coverage.depends_on_inputs(branch):
            for answer in (True, False):
                met = [o.run for o in branch.observations if o.answer is answer]
                witnesses.update({runs[met[0]]: None} if met else {})
    for _, read in coverage.find_loose_reads():
        if len(read.results) <= MAX_ANSWERS_OF_A_CHOICE:
            witnesses.update((runs[run], None) for run in read.results.values())
    return list(witnesses)[:MAX_WITNESSES]


def _find_edges(subject: Subject, coverage: Coverage, runs: list[Sample]) -> list[Sample]:
    """Return samples close to both sides of each branch on values, so that a shifted threshold shows."""
    samples: list[Sample] = []
    plain = Sample(tuple(subject.example.items()), seed=3)
    if not subject.ranges or estimate_sample_flops(subject, plain) > MAX_FLOPS_RUN / MAX_EDGE_RUNS:
        return []
    branches = [b for b in coverage.branches.values() if b.missing_answer is None and not _is_about_sizes(b, runs)]
    for branch in [b for b in branches if coverage.depends_on_inputs(b)][:MAX_EDGES]:

        def answer_at(sample: Sample, branch: Branch = branch) -> bool | None:
            _follow_sample(subject, coverage, runs, sample)
            answers = {o.answer for o in branch.observations if o.run == len(runs) - 1}
            return answers.pop() if len(answers) == 1 else None

        samples += find_edge(plain, answer_at)
    return samples


def _find_lines_both_ways(coverage: Coverage) -> frozenset[Line]:
    """Return the lines of conditions of which every part that depends on the inputs went both ways."""
    lines: dict[Line, bool] = {}
    for branch in coverage.branches.values():
        if branch.missing_answer is not None and not coverage.depends_on_inputs(branch):
            continue
        for place in coverage.find_deciding_lines(branch):
            lines[place] = lines.get(place, True) and branch.missing_answer is None
    return frozenset(place for place, both in lines.items() if both)


def _choose_cheapest(subject: Subject) -> list[Sample]:
    """Return the samples to follow: those with the fewest elements, within a limit for all together."""
    other = choose_example(subject.domain, subject.spec, {}, avoid=subject.example)
    hints = LatticeHints(subject.given, thresholds=subject.study.literals)
    samples = build_lattice(subject.domain, subject.example, other, "standard", subject.flavors, hints)
    chosen: list[Sample] = []
    left = MAX_ELEMENTS_RUN
    flops_left = MAX_FLOPS_RUN
    for sample in sorted(samples, key=lambda s: _count_elements(subject, s)):
        left -= _count_elements(subject, sample)
        flops_left -= subject.study.flops_per_volume * compute_volume(sample.sizes)
        if len(chosen) >= MAX_SURVEYED_SAMPLES or (min(left, flops_left) < 0 and len(chosen) >= MIN_SAMPLES):
            break
        chosen.append(sample)
    return chosen


def _count_elements(subject: Subject, sample: Sample) -> int:
    return sum(prod(spec.sizes(sample.sizes)) for spec in subject.spec)


def _follow_sample(
    subject: Subject, coverage: Coverage, runs: list[Sample], sample: Sample, reads: bool = False
) -> bool:
    """Run one sample under the coverage. Return whether PyTorch accepts it."""
    tensors = make_sample_inputs(subject, sample, ())
    runs.append(sample)
    before = get_generator_states()
    try:
        with coverage.follow(len(runs) - 1, tensors if reads else None):
            run_eager(subject, tensors)
    except Exception:
        return False
    if get_generator_states() != before:
        coverage.drawing.append(sample)
    return True


def _find_random(
    subject: Subject, drawing: Sequence[Sample], aimed: Sequence[Sample]
) -> tuple[Sample, Where | None] | None:
    """Return the first sample whose answer depends on random numbers, with the line that draws them.

    A generator of the model's own leaves no trace, so samples that were aimed at a rare side are run twice as well.
    """
    rare = [sample for sample in dict.fromkeys(aimed) if sample not in drawing and _is_cheap(subject, sample)]
    for sample in (*drawing[:MAX_DRAWS_TRIED], *rare[:MAX_WITNESSES]):
        try:
            differs, where = find_draw(subject, make_sample_inputs(subject, sample, ()))
        except Exception:
            continue  # PyTorch refuses the sample
        if differs:
            return sample, where
    return None


def _aim_at_branch(
    subject: Subject, coverage: Coverage, runs: list[Sample], branch: Branch
) -> tuple[list[Sample], list[UnreachedBranch]]:
    """Return samples that take the missing side of a branch, or the unreached branch if none does."""
    missing = branch.missing_answer
    assert missing is not None

    def reaches(sample: Sample) -> bool:
        return _follow_sample(subject, coverage, runs, sample) and missing in branch.answers

    sizes = solve_sizes(subject.domain, branch, runs)
    if sizes is not None:
        candidates = [make_sample_at(subject, point) for point in sizes.points]
        reached = [sample for sample in candidates if _is_cheap(subject, sample) and reaches(sample)]
        # Points that are too expensive here are left to the judge, if it can afford them.
        left = [
            sample
            for sample in candidates
            if not _is_cheap(subject, sample) and estimate_sample_flops(subject, sample) <= MAX_JUDGED_FLOPS
        ]
        missed = [] if reached or left or not candidates else [_describe_unreached(branch, coverage, runs)]
        return list(dict.fromkeys([*reached, *candidates])), missed
    sample = aim_at_values(subject, branch, runs, reaches) if subject.ranges else None
    if sample is not None:
        seeds = (sample, replace(sample, seed=sample.seed + 1))
        return list(seeds), []
    return [], [_describe_unreached(branch, coverage, runs)]


def _describe_unreached(branch: Branch, coverage: Coverage, runs: Sequence[Sample]) -> UnreachedBranch:
    """Return a branch as data for a result."""
    where = locate_condition(branch.site, branch.header)
    about = "sizes" if _is_about_sizes(branch, runs) else "values"
    return UnreachedBranch(
        where, ast.unparse(branch.test), bool(branch.missing_answer), about, coverage.find_lines_read_for(branch)
    )


def _is_cheap(subject: Subject, sample: Sample) -> bool:
    return (
        _count_elements(subject, sample) <= MAX_ELEMENTS_RUN and estimate_sample_flops(subject, sample) <= MAX_FLOPS_RUN
    )


def estimate_sample_flops(subject: Subject, sample: Sample) -> float:
    """Return the floating-point operations that a sample takes."""
    return subject.study.flops_per_volume * compute_volume(sample.sizes)


def _is_about_sizes(branch: Branch, runs: Sequence[Sample]) -> bool:
    """Return whether all runs at the same point had the same numbers."""
    by_point: dict[object, set[object]] = {}
    for o in branch.observations:
        by_point.setdefault(runs[o.run].point, set()).add(o.values)
    return len(by_point) > 1 and all(len(seen) == 1 for seen in by_point.values())


def _keep_distinct(unreached: Sequence[UnreachedBranch]) -> tuple[UnreachedBranch, ...]:
    return tuple({(u.where.file, u.where.line, u.condition): u for u in unreached}.values())
