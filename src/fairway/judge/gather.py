"""Gathers the evidence on one file. Runs in a process of its own, since a runtime can crash."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir
import torch

from fairway.diagnostics import Finding, Where
from fairway.diagnostics.excuses import count_reasons
from fairway.judge.answers import LEAN_MODEL_BYTES, RecordedAnswers, model_bytes
from fairway.judge.boundary import Shrunk, shrink
from fairway.judge.budget import affordable_point
from fairway.judge.compare import is_lost
from fairway.judge.coverage_report import describe_values, not_reached
from fairway.judge.evidence import Evidence, FileFacts, OutputError, Tested
from fairway.judge.guards import SizeCoverage, check_guards, count_excluded
from fairway.judge.judge import ENOUGH, HOPELESS, Judge, Runner, open_runtime
from fairway.judge.lattice import Level
from fairway.judge.randomness import find_randomness
from fairway.judge.rows import compare_rows
from fairway.judge.sample_result import TIES, SampleResult
from fairway.judge.samples import every_sample
from fairway.judge.weight_comparison import ModelTensors, compare_weights
from fairway.judge.yardstick import FACTOR, STATED
from fairway.model.canary import Array, Feeds, note
from fairway.model.dims import Point
from fairway.model.sample import Sample
from fairway.model.subject import Subject

Tell = Callable[[Any], None]
Sizes = dict[str, int]

EXCUSED_SHARE, EXCUSED_SAMPLES = 0.02, 3
"""A file is unproven if more than this share of its samples is right by an excuse, and no fewer than so many."""

FEW = 8
"""So few samples prove nothing where PyTorch refuses most of them."""


def gather(
    subject: Subject,
    path: str,
    output_names: Sequence[str],
    level: Level,
    edges: Mapping[str, Sequence[int]],
    data: Sequence[list[torch.Tensor]],
    tell: Tell,
    answers: RecordedAnswers | None = None,
    facts: FileFacts | None = None,
) -> Evidence:
    """Parity over the lattice; for a wrong file, the smallest failing shape and its boundary."""
    started = time.monotonic()
    facts = facts or FileFacts()
    weights = ModelTensors(subject.model)
    run = open_runtime(path, lean=model_bytes(subject.model) >= LEAN_MODEL_BYTES, threads=0 if answers else None)
    judge = Judge(subject, run, output_names, data, answers)
    samples = every_sample(subject, path, level, edges, data, facts)
    if answers is not None:  # what PyTorch's own error is must be known before it is asked for
        samples.sort(key=lambda one: one not in answers.truths)
    _take(judge, samples, tell)
    failures = judge.failures()
    if not failures and level == "deep":
        from fairway.judge.deep import explore

        found = explore(judge, tell)
        if found is not None:
            smallest = judge.take(found)
            failures = [smallest, *(t for t in judge.failures() if t is not smallest)]
    every = len(judge.trials) >= len(samples)
    shrunk = None if not failures else _shrink(judge, failures)
    if every:  # judged again by what was learnt of PyTorch's own error on the way to the smallest
        failures = [t for t in failures if judge.ratio(t) > 1]
        shrunk = shrunk if failures else None
    findings = [*_findings(judge, failures, shrunk), *([] if failures else not_reached(subject, facts))]
    graph = ir.load(path)
    findings += [*compare_weights(graph, weights), *find_randomness(subject, graph, run)]
    second = "not asked for"
    if level == "deep":
        from fairway.judge.runtimes.second import consult

        second, more = consult(judge, path, samples)
        findings += more
    rows = None
    if not failures:
        rows, notes = compare_rows(judge, run, level)
        findings += notes
    return Evidence(
        level=level,
        domain=str(subject.domain),
        tested=tuple(_tested(judge, t, failures) for t in judge.trials),
        outputs=_outputs(judge, failures),
        yardstick=_yardstick(judge),
        factor=FACTOR,
        seconds=round(time.monotonic() - started, 3),
        spent={what: round(seconds, 3) for what, seconds in judge.spent.items()},
        findings=tuple(findings),
        smallest=None if shrunk is None else shrunk.point,
        boundaries=() if shrunk is None else tuple(map(str, shrunk.boundaries)),
        wrong_at={} if shrunk is None else shrunk.wrong_at,
        failing=_failing(judge, failures, shrunk),
        sides=_sides(judge, failures, shrunk),
        undecided=sum(t.undecided for t in judge.trials),
        sizes=_size_coverage(subject, facts, judge),
        values=describe_values(subject),
        unreached=tuple(map(str, subject.study.unreached)),
        second_runtime=second,
        canary=None if failures else _canary(subject, run, output_names),
        rows=rows,
    )


def _canary(subject: Subject, run: Runner, output_names: Sequence[str]) -> dict[str, Any]:
    if subject.given is not None or not subject.ranges:
        return {"none": "the inputs are made by a function or from examples, which a server does not have"}

    def answers(feeds: Feeds) -> dict[str, Array]:
        got = run(list(feeds), [torch.from_numpy(array) for array in feeds.values()])
        return dict(zip(output_names, got, strict=True))

    return note([spec.in_file for spec in subject.spec], affordable_point(subject), answers)


def _size_coverage(subject: Subject, facts: FileFacts, judge: Judge) -> SizeCoverage:
    """Return what the guards say about all sizes, and how many of the points that break one were run."""
    if facts.guards is None:
        return SizeCoverage(sampled=facts.sampled_because)
    coverage, _ = check_guards(subject.domain, facts.guards)
    run = {trial.sample.point for trial in judge.trials if trial.illegal is None and trial.sample.data is None}
    excluded = count_excluded(facts.guards, [dict(point) for point in run])
    return replace(coverage, excluded_run=excluded, pieces=facts.pieces)


def _take(judge: Judge, samples: Sequence[Sample], tell: Tell) -> None:
    """Runs the samples, and stops early once the file has failed beyond doubt often enough."""
    certain = 0
    for done, one in enumerate(samples):
        tell(("sample", done, len(samples), str(one)))
        trial = judge.take(one)
        certain += judge.ratio(trial) > HOPELESS and not judge.excuse(trial)
        if certain >= ENOUGH:
            return


def _shrink(judge: Judge, failures: list[SampleResult]) -> Shrunk | None:
    ordinary = [t for t in failures if t.sample.data is None]
    if not ordinary or not judge.subject.domain.dims:
        return None
    first = min(ordinary, key=lambda t: _volume(t.sample.sizes))

    def bad(point: Point) -> bool:
        return judge.bad(replace(first.sample, point=tuple(point.items())))

    return shrink(judge.subject.domain, first.sample.sizes, judge.subject.example, bad)


def _failing(judge: Judge, failures: list[SampleResult], shrunk: Shrunk | None) -> tuple[Sample, ...]:
    """One of the lattice's samples, and where the shape can be smaller, that one."""
    if not failures:
        return ()
    first = failures[0].sample
    if shrunk is None or first.data is not None:
        return (first,)
    small = replace(first, point=tuple(shrunk.point.items()))
    return (first, small) if small != first and judge.bad(small) else (first,)


def _sides(judge: Judge, failures: list[SampleResult], shrunk: Shrunk | None) -> tuple[tuple[Sizes, Sizes], ...]:
    """The two sides of each boundary; where the example fails too, the two samples that differ least in size."""
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
    return tuple(sorted(pairs, key=lambda pair: _apart(*pair))[:1])


def _apart(a: Point, b: Point) -> tuple[int, int]:
    steps = [abs(a[name] - b[name]) for name in a]
    return sum(map(bool, steps)), sum(steps)


def _volume(point: Point) -> int:
    product = 1
    for size in point.values():
        product *= max(size, 1)
    return product


def _findings(judge: Judge, failures: list[SampleResult], shrunk: Shrunk | None) -> list[Finding]:
    found: list[Finding] = []
    if failures:
        found += _wrong(judge, failures, shrunk)
    if judge.no_truth is not None:
        found.append(Finding("FW410", judge.no_truth))
    tied = [t for t in judge.trials if t.excused == TIES]
    if tied:
        found.append(Finding("FW413", f"at {len(tied)} of {len(judge.trials)} samples, such as {tied[0].sample}"))
    found += [] if failures else _many_excuses(judge)
    found += _meaningless(judge)
    illegal = [t for t in judge.trials if t.illegal is not None]
    if illegal and len(illegal) == len(judge.trials):
        found.append(Finding("FW201", f"{illegal[0].illegal}, at every point tried"))
    elif len(illegal) > len(judge.trials) - len(illegal) < FEW:
        found.append(
            Finding("FW504", f"PyTorch refuses {len(illegal)} of {len(judge.trials)} samples: {illegal[0].illegal}")
        )
    return found


def _wrong(judge: Judge, failures: list[SampleResult], shrunk: Shrunk | None) -> list[Finding]:
    if shrunk is not None and shrunk.fixed:
        example = judge.subject.example
        dims = ", ".join(f"{name} is fixed at {example[name]}" for name in shrunk.fixed)
        trial = next((t for t in failures if t.difference), failures[0])
        return [Finding("FW402", f"{dims}; {_say(judge, trial)}", data={"fixed": list(shrunk.fixed)})]
    if shrunk is not None:
        first = failures[0].sample
        smallest = judge.measure(replace(first, point=tuple(shrunk.point.items())))
        trial = smallest if judge.ratio(smallest) > 1 else failures[0]
    else:
        trial = failures[0]
    said = _say(judge, trial)
    if shrunk is not None and shrunk.boundaries:
        said += "; " + "; ".join(map(str, shrunk.boundaries))
    code = trial.difference.code if trial.difference else "FW401"
    return [Finding(code, said, where=_node(said), data={"point": trial.sample.sizes})]


def _say(judge: Judge, trial: SampleResult) -> str:
    if trial.difference is not None:
        return f"{trial.difference.text}, at {trial.sample}"
    name = max(trial.measured, key=lambda n: judge.ratio_of(trial, n))
    got = trial.measured[name]
    truth, ours, theirs = got.values
    return (
        f"{name}{list(got.worst)}: PyTorch {ours:.7g}, file {theirs:.7g}, float64 truth {truth:.7g}; "
        f"{judge.ratio_of(trial, name):.3g} times what is allowed, at {trial.sample}"
    )


def _node(said: str) -> Where | None:
    import re

    found = re.search(r"running (\w+) node\. Name:'([^']*)'", said)
    return Where(node=f"{found[2]} ({found[1]})") if found else None


def _many_excuses(judge: Judge) -> list[Finding]:
    """More than a few excused samples leave the file unproven."""
    excused = [t.excused for t in judge.trials if t.excused]
    legal = sum(t.illegal is None for t in judge.trials)
    if len(excused) < EXCUSED_SAMPLES or len(excused) <= EXCUSED_SHARE * legal:
        return []
    seen = f"{len(excused)} of {legal} samples: {count_reasons(excused)}"
    return [Finding("FW422", seen, data={"excused": len(excused)})]


def _meaningless(judge: Judge) -> list[Finding]:
    """Outputs that are NaN throughout in PyTorch, or off from float64 by their own size."""
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
    return [Finding("FW423", "; ".join(parts))] if parts else []


def _tested(judge: Judge, trial: SampleResult, failures: list[SampleResult]) -> Tested:
    note = trial.illegal and f"not legal in PyTorch: {trial.illegal}"
    note = note or (trial.difference.text if trial.difference else "")
    if trial.sample.touch is not None:
        note = str(trial.sample.touch) + (f": {note}" if note else "")
    ratio = judge.ratio(trial)
    right = all(trial is not bad for bad in failures) and trial.illegal is None
    return Tested(
        point=trial.sample.sizes,
        seed=trial.sample.seed,
        flavour=trial.sample.flavour,
        right=right,
        ratio=None if ratio == float("inf") or trial.illegal else float(f"{ratio:.4g}"),
        note=note,
        data=trial.sample.data,
        ratios=_ratios(judge, trial) if len(judge.output_names) > 1 and trial.illegal is None else (),
        excused=trial.excused if right else "",
    )


def _ratios(judge: Judge, trial: SampleResult) -> tuple[float | None, ...]:
    """One for each output, to four digits: there may be many outputs, and a record stays small."""
    found = [judge.ratio_of(trial, name) if name in trial.measured else None for name in judge.output_names]
    return tuple(None if one is None or one == float("inf") else float(f"{one:.4g}") for one in found)


def _outputs(judge: Judge, failures: list[SampleResult]) -> tuple[OutputError, ...]:
    """The worst ratio and errors of each output. Excused samples are left out, wrong ones are not."""
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
                ratio=max(judge.ratio_of(t, name) for t in trials),
                file_error=max(float(t.measured[name].theirs.max(initial=0.0)) for t in (*normal, *wrong)),
                own_error=max(float(t.measured[name].own.max(initial=0.0)) for t in normal),
            )
        )
    return tuple(rows)


def _yardstick(judge: Judge) -> str:
    if judge.no_truth is not None:
        tolerances = ", ".join(f"{v:g} for {k}" for k, v in STATED.items())
        return f"stated relative tolerances ({tolerances}), since float64 does not run: {judge.no_truth}"
    if judge.answers is not None and len(judge.answers.truths) < len(judge.answers.samples):
        return (
            f"error against float64 at most {FACTOR:g} times PyTorch's own, learnt at {len(judge.answers.truths)} of "
            f"{len(judge.answers.samples)} samples; at the others against PyTorch itself"
        )
    besides = any(y.dtype == "float64" for y in judge.yardsticks.values())
    stated = f"; for float64 outputs {STATED['float64']:g} of the value besides" if besides else ""
    return f"error against float64 at most {FACTOR:g} times PyTorch's own{stated}"
