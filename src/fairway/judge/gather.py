"""Gather the evidence on one file. This runs in a separate process, because a runtime can crash."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir
import torch

from fairway.diagnostics import Code, Finding, Where
from fairway.diagnostics.excuses import count_reasons
from fairway.judge.answers import LEAN_MODEL_BYTES, RecordedAnswers, count_model_bytes
from fairway.judge.boundary import ShrunkFailure, shrink_failure
from fairway.judge.budget import choose_affordable_point, compute_volume
from fairway.judge.compare import is_lost
from fairway.judge.coverage_report import describe_values, report_unreached
from fairway.judge.evidence import Evidence, FileFacts, OutputError, TestedSample
from fairway.judge.guards import SizeCoverage, check_guards, count_excluded
from fairway.judge.judge import ENOUGH_FAILURES, HOPELESS_RATIO, Judge, Runner, open_runtime
from fairway.judge.lattice import Level
from fairway.judge.randomness import find_randomness
from fairway.judge.rows import compare_rows
from fairway.judge.sample_result import TIES_EXCUSE, SampleResult
from fairway.judge.samples import list_samples
from fairway.judge.weight_comparison import ModelTensors, compare_weights
from fairway.judge.yardstick import ERROR_FACTOR, STATED_TOLERANCES
from fairway.model.canary import Array, Feeds, make_canary
from fairway.model.dims import Point
from fairway.model.sample import Sample
from fairway.model.subject import Subject
from fairway.record.progress import EventSink, ItemsCounted

Sizes = dict[str, int]

MAX_EXCUSED_SHARE, MIN_EXCUSED_SAMPLES = 0.02, 3
"""A file is unproven if more than this share of its samples, and at least this many, are right by an excuse."""

MIN_LEGAL_SAMPLES = 8
"""If PyTorch refuses most samples, fewer accepted ones than this prove nothing."""


@dataclass(frozen=True)
class JudgeRequest:
    """A candidate, and what the judge needs to know about it."""

    path: str
    output_names: Sequence[str]
    level: Level
    edges: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By dim: sizes that the capture named."""
    data: Sequence[list[torch.Tensor]] = ()
    """Inputs given by the user."""
    answers: RecordedAnswers | None = None
    facts: FileFacts = field(default_factory=FileFacts)


def gather_evidence(subject: Subject, request: JudgeRequest, on_event: EventSink) -> Evidence:
    """Compare the file with PyTorch over the lattice. For a wrong file, find the smallest failing shape too."""
    path, level, answers, facts = request.path, request.level, request.answers, request.facts
    started = time.monotonic()
    weights = ModelTensors(subject.model)
    run = open_runtime(path, lean=count_model_bytes(subject.model) >= LEAN_MODEL_BYTES, threads=0 if answers else None)
    judge = Judge(subject, run, request.output_names, request.data, answers)
    samples = list_samples(subject, path, level, request.edges, request.data, facts)
    if answers is not None:  # PyTorch's own error must be known before samples without a truth are judged
        samples.sort(key=lambda sample: sample not in answers.truths)
    _take_samples(judge, samples, on_event)
    failures = judge.find_failures()
    if not failures and level == "deep":
        from fairway.judge.deep import find_failing_sample

        failing_sample = find_failing_sample(judge, on_event)
        if failing_sample is not None:
            smallest = judge.take(failing_sample)
            failures = [smallest, *(t for t in judge.find_failures() if t is not smallest)]
    is_every_sample_run = len(judge.trials) >= len(samples)
    shrunk = None if not failures else _shrink_failures(judge, failures)
    if is_every_sample_run:  # judge again by what was learned of PyTorch's own error while shrinking
        failures = [t for t in failures if judge.compute_ratio(t) > 1]
        shrunk = shrunk if failures else None
    findings = [*_list_findings(judge, failures, shrunk), *([] if failures else report_unreached(subject, facts))]
    graph = ir.load(path)
    findings += [*compare_weights(graph, weights), *find_randomness(subject, graph, run)]
    second_opinion = "not asked for"
    if level == "deep":
        from fairway.judge.runtimes.second import consult_second_runtime

        second_opinion, second_findings = consult_second_runtime(judge, path, samples)
        findings += second_findings
    rows = None
    if not failures:
        rows, row_findings = compare_rows(judge, run, level)
        findings += row_findings
    return Evidence(
        level=level,
        domain=str(subject.domain),
        tested=tuple(_describe_trial(judge, t, failures) for t in judge.trials),
        outputs=_list_output_errors(judge, failures),
        yardstick=_describe_yardstick(judge),
        factor=ERROR_FACTOR,
        seconds=round(time.monotonic() - started, 3),
        spent={what: round(seconds, 3) for what, seconds in judge.spent.items()},
        findings=tuple(findings),
        smallest=None if shrunk is None else shrunk.point,
        boundaries=() if shrunk is None else tuple(map(str, shrunk.boundaries)),
        wrong_at={} if shrunk is None else shrunk.wrong_at,
        failing=_choose_failing_samples(judge, failures, shrunk),
        sides=_find_sides(judge, failures, shrunk),
        undecided=sum(t.undecided for t in judge.trials),
        sizes=_describe_size_coverage(subject, facts, judge),
        values=describe_values(subject),
        unreached=tuple(map(str, subject.study.unreached)),
        second_runtime=second_opinion,
        canary=None if failures else _make_canary(subject, run, request.output_names),
        rows=rows,
    )


def _make_canary(subject: Subject, run: Runner, output_names: Sequence[str]) -> dict[str, object]:
    if subject.given is not None or not subject.ranges:
        return {"none": "the inputs are made by a function or from examples, which a server does not have"}

    def answers(feeds: Feeds) -> dict[str, Array]:
        outputs = run(list(feeds), [torch.from_numpy(array) for array in feeds.values()])
        return dict(zip(output_names, outputs, strict=True))

    return make_canary([spec.in_file for spec in subject.spec], choose_affordable_point(subject), answers)


def _describe_size_coverage(subject: Subject, facts: FileFacts, judge: Judge) -> SizeCoverage:
    """Return the coverage of sizes by the guards, with the number of points run that break a guard."""
    if facts.guards is None:
        return SizeCoverage(sampled=facts.sampled_because)
    coverage, _ = check_guards(subject.domain, facts.guards)
    run = {trial.sample.point for trial in judge.trials if trial.illegal is None and trial.sample.data is None}
    excluded = count_excluded(facts.guards, [dict(point) for point in run])
    return replace(coverage, excluded_run=excluded, pieces=facts.pieces)


def _take_samples(judge: Judge, samples: Sequence[Sample], on_event: EventSink) -> None:
    """Run the samples. Stop early when the file has clearly failed often enough."""
    certain_failures = 0
    for done, sample in enumerate(samples):
        on_event(ItemsCounted(done, len(samples), "samples", str(sample)))
        trial = judge.take(sample)
        certain_failures += judge.compute_ratio(trial) > HOPELESS_RATIO and not judge.excuse(trial)
        if certain_failures >= ENOUGH_FAILURES:
            return


def _shrink_failures(judge: Judge, failures: list[SampleResult]) -> ShrunkFailure | None:
    ordinary = [t for t in failures if t.sample.data is None]
    if not ordinary or not judge.subject.domain.dims:
        return None
    first = min(ordinary, key=lambda t: compute_volume(t.sample.sizes))

    def is_wrong(point: Point) -> bool:
        return judge.is_wrong_at(replace(first.sample, point=tuple(point.items())))

    return shrink_failure(judge.subject.domain, first.sample.sizes, judge.subject.example, is_wrong)


def _choose_failing_samples(
    judge: Judge, failures: list[SampleResult], shrunk: ShrunkFailure | None
) -> tuple[Sample, ...]:
    """Return a failing sample of the lattice, and the same sample at a smaller shape if that fails too."""
    if not failures:
        return ()
    first = failures[0].sample
    if shrunk is None or first.data is not None:
        return (first,)
    small = replace(first, point=tuple(shrunk.point.items()))
    return (first, small) if small != first and judge.is_wrong_at(small) else (first,)


def _find_sides(
    judge: Judge, failures: list[SampleResult], shrunk: ShrunkFailure | None
) -> tuple[tuple[Sizes, Sizes], ...]:
    """Return the two sides of each boundary, or the right and wrong samples that differ least if there is none."""
    example = dict(judge.subject.example)
    if shrunk is not None and shrunk.boundaries:
        return tuple(({**example, e.dim: e.right}, {**example, e.dim: e.wrong}) for e in shrunk.boundaries)
    wrong = [t.sample.sizes for t in failures if t.sample.data is None]
    right = [
        t.sample.sizes
        for t in judge.trials
        if t.sample.data is None and t.illegal is None and all(t is not bad for bad in failures)
    ]
    pairs = [(a, b) for a in right for b in wrong if a != b]
    return tuple(sorted(pairs, key=lambda pair: _measure_distance(*pair))[:1])


def _measure_distance(a: Point, b: Point) -> tuple[int, int]:
    steps = [abs(a[name] - b[name]) for name in a]
    return sum(map(bool, steps)), sum(steps)


def _list_findings(judge: Judge, failures: list[SampleResult], shrunk: ShrunkFailure | None) -> list[Finding]:
    findings: list[Finding] = []
    if failures:
        findings += _report_wrong(judge, failures, shrunk)
    if judge.no_truth is not None:
        findings.append(Finding(Code.NO_YARDSTICK, judge.no_truth))
    tied = [t for t in judge.trials if t.excused == TIES_EXCUSE]
    if tied:
        findings.append(Finding(Code.TIES, f"at {len(tied)} of {len(judge.trials)} samples, such as {tied[0].sample}"))
    findings += [] if failures else _report_many_excuses(judge)
    findings += _report_meaningless_outputs(judge)
    illegal = [t for t in judge.trials if t.illegal is not None]
    if illegal and len(illegal) == len(judge.trials):
        findings.append(Finding(Code.FORWARD_FAILS, f"{illegal[0].illegal}, at every point tried"))
    elif len(illegal) > len(judge.trials) - len(illegal) < MIN_LEGAL_SAMPLES:
        findings.append(
            Finding(
                Code.EVIDENCE_INCOMPLETE,
                f"PyTorch refuses {len(illegal)} of {len(judge.trials)} samples: {illegal[0].illegal}",
            )
        )
    return findings


def _report_wrong(judge: Judge, failures: list[SampleResult], shrunk: ShrunkFailure | None) -> list[Finding]:
    if shrunk is not None and shrunk.fixed:
        example = judge.subject.example
        dims = ", ".join(f"{name} is fixed at {example[name]}" for name in shrunk.fixed)
        trial = next((t for t in failures if t.difference), failures[0])
        return [
            Finding(Code.DIM_FIXED, f"{dims}; {_describe_difference(judge, trial)}", data={"fixed": list(shrunk.fixed)})
        ]
    if shrunk is not None:
        first = failures[0].sample
        smallest = judge.measure(replace(first, point=tuple(shrunk.point.items())))
        trial = smallest if judge.compute_ratio(smallest) > 1 else failures[0]
    else:
        trial = failures[0]
    message = _describe_difference(judge, trial)
    if shrunk is not None and shrunk.boundaries:
        message += "; " + "; ".join(map(str, shrunk.boundaries))
    code = trial.difference.code if trial.difference else Code.NUMBERS_DIFFER
    return [Finding(code, message, where=_find_node(message), data={"point": trial.sample.sizes})]


def _describe_difference(judge: Judge, trial: SampleResult) -> str:
    if trial.difference is not None:
        return f"{trial.difference.text}, at {trial.sample}"
    name = max(trial.measured, key=lambda n: judge.compute_output_ratio(trial, n))
    measurement = trial.measured[name]
    truth, ours, theirs = measurement.values
    return (
        f"{name}{list(measurement.worst)}: PyTorch {ours:.7g}, file {theirs:.7g}, float64 truth {truth:.7g}; "
        f"{judge.compute_output_ratio(trial, name):.3g} times what is allowed, at {trial.sample}"
    )


def _find_node(message: str) -> Where | None:
    match = re.search(r"running (\w+) node\. Name:'([^']*)'", message)
    return Where(node=f"{match[2]} ({match[1]})") if match else None


def _report_many_excuses(judge: Judge) -> list[Finding]:
    """Return a finding if more than a few samples are right by an excuse only."""
    excused = [t.excused for t in judge.trials if t.excused]
    legal = sum(t.illegal is None for t in judge.trials)
    if len(excused) < MIN_EXCUSED_SAMPLES or len(excused) <= MAX_EXCUSED_SHARE * legal:
        return []
    message = f"{len(excused)} of {legal} samples: {count_reasons(excused)}"
    return [Finding(Code.MANY_EXCUSES, message, data={"excused": len(excused)})]


def _report_meaningless_outputs(judge: Judge) -> list[Finding]:
    """Report outputs that are NaN throughout in PyTorch, or whose error in PyTorch is as large as their values."""
    parts = []
    for name in judge.output_names:
        trials = [t for t in judge.trials if name in t.measured and t.measured[name].elements]
        nans = [t for t in trials if t.measured[name].nans == t.measured[name].elements]
        lost = [t for t in trials if is_lost(t.measured[name], t.kind)]
        if nans:
            parts.append(f"{name} is NaN throughout at {len(nans)} of {len(trials)} samples, such as {nans[0].sample}")
        if lost:
            parts.append(
                f"{name} has values that are off by their own size at {len(lost)} of {len(trials)} samples, such as "
                f"{lost[0].sample}"
            )
    return [Finding(Code.NUMBERS_MEAN_NOTHING, "; ".join(parts))] if parts else []


def _describe_trial(judge: Judge, trial: SampleResult, failures: list[SampleResult]) -> TestedSample:
    note = trial.illegal and f"not legal in PyTorch: {trial.illegal}"
    note = note or (trial.difference.text if trial.difference else "")
    if trial.sample.touch is not None:
        note = str(trial.sample.touch) + (f": {note}" if note else "")
    ratio = judge.compute_ratio(trial)
    right = all(trial is not bad for bad in failures) and trial.illegal is None
    return TestedSample(
        point=trial.sample.sizes,
        seed=trial.sample.seed,
        flavor=trial.sample.flavor,
        right=right,
        ratio=None if ratio == float("inf") or trial.illegal else float(f"{ratio:.4g}"),
        note=note,
        data=trial.sample.data,
        ratios=_list_ratios(judge, trial) if len(judge.output_names) > 1 and trial.illegal is None else (),
        excused=trial.excused if right else "",
    )


def _list_ratios(judge: Judge, trial: SampleResult) -> tuple[float | None, ...]:
    """Return a ratio for each output, to four digits: there may be many outputs, and a record should stay small."""
    ratios = [
        judge.compute_output_ratio(trial, name) if name in trial.measured else None for name in judge.output_names
    ]
    return tuple(None if ratio is None or ratio == float("inf") else float(f"{ratio:.4g}") for ratio in ratios)


def _list_output_errors(judge: Judge, failures: list[SampleResult]) -> tuple[OutputError, ...]:
    """Return the worst ratio and errors of each output. Excused samples are left out, wrong ones are not."""
    rows = []
    for name in judge.output_names:
        measured = [t for t in judge.trials if name in t.measured]
        if not measured:
            compared = any(t.difference is None and t.illegal is None for t in judge.trials)
            rows.append(OutputError(name, "exact" if compared else "?", 0.0 if compared else None, 0.0, 0.0))
            continue
        trials = [t for t in measured if not t.excused] or measured
        normal = [t for t in trials if t.kind == "normal"] or trials
        wrong = [t for t in failures if name in t.measured]
        rows.append(
            OutputError(
                name=name,
                dtype=judge.yardsticks[name, measured[0].kind].dtype,
                ratio=max(judge.compute_output_ratio(t, name) for t in trials),
                file_error=max(float(t.measured[name].theirs.max(initial=0.0)) for t in (*normal, *wrong)),
                own_error=max(float(t.measured[name].own_error.max(initial=0.0)) for t in normal),
            )
        )
    return tuple(rows)


def _describe_yardstick(judge: Judge) -> str:
    if judge.no_truth is not None:
        tolerances = ", ".join(f"{v:g} for {k}" for k, v in STATED_TOLERANCES.items())
        return f"stated relative tolerances ({tolerances}), since float64 does not run: {judge.no_truth}"
    if judge.answers is not None and len(judge.answers.truths) < len(judge.answers.samples):
        truths, samples = len(judge.answers.truths), len(judge.answers.samples)
        return (
            f"error against float64 at most {ERROR_FACTOR:g} times PyTorch's own, learned at {truths} of {samples} "
            "samples; at the others against PyTorch itself"
        )
    has_float64 = any(y.dtype == "float64" for y in judge.yardsticks.values())
    stated = f"; for float64 outputs also {STATED_TOLERANCES['float64']:g} of the value" if has_float64 else ""
    return f"error against float64 at most {ERROR_FACTOR:g} times PyTorch's own{stated}"
