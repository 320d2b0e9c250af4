"""The climb: rung after rung until a file is verified. This module reads as the story of the product."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from fairway.convert.blocks.equal_calls import called_alike
from fairway.convert.blocks.repeats import Repeat, find_repeats, longer, shorten
from fairway.convert.ladder.assumptions import NAMED, assumed_sizes
from fairway.convert.ladder.cache_warmup import warm_up
from fairway.convert.ladder.capture import Captured, capture, case_for
from fairway.convert.ladder.diagnose import accuse, blame, diagnose
from fairway.convert.ladder.judge_worker import judged_apart, settle_for_capture
from fairway.convert.ladder.plan import PlannedRung, next_step
from fairway.convert.ladder.preflight import Preflight, computed, faked, glance, look
from fairway.convert.ladder.prescribe import Prescription, check_patches, matches_for, patched, prescribe
from fairway.convert.ladder.route import Route
from fairway.convert.ladder.twice import Captures, Request, compare_captures
from fairway.convert.pieces.capture_pieces import Pieces
from fairway.convert.rewrite.find import Lines, Suspect, suspects
from fairway.convert.rewrite.live_sites import live_lines
from fairway.diagnostics import Finding, exit_status
from fairway.diagnostics.errors import UserError
from fairway.judge.answers import is_large
from fairway.judge.coverage_report import UNPROVEN_CODES
from fairway.judge.evidence import Differential, Evidence
from fairway.judge.graph_constants import holds_branches
from fairway.judge.lattice import Level
from fairway.judge.samples import examples
from fairway.model.dims import Point
from fairway.model.onnx_file import OnnxHeader, dims_fixed, fixed_outputs
from fairway.model.subject import Subject
from fairway.model.weight_storage import Mode
from fairway.workers.attempt import Limits, Outcome, Workers
from fairway.workers.staging import outside

Verdict = Literal["verified", "wrong", "unproven", "failed"]
Heard = Callable[[Any], None]


_BETTER: tuple[Verdict, ...] = ("failed", "wrong", "unproven", "verified")


@dataclass(frozen=True)
class Settings:
    """How hard to try, how closely to look, and within which limits."""

    level: Level = "standard"
    routes: tuple[str, ...] = ()
    """Empty for the whole ladder."""
    opset: int | None = None
    remedies: bool = True
    limits: Limits = field(default_factory=Limits)
    weights: Mode | None = None
    """None for what fits the size of the model."""


@dataclass(frozen=True)
class Rung:
    """One route walked: what it gave, what it took."""

    step: PlannedRung
    route: Route
    verdict: Verdict
    seconds: float
    peak_bytes: int
    findings: tuple[Finding, ...]
    remedies: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    captured: Captured | None = None
    evidence: Evidence | None = None
    export_seconds: float = 0.0
    tried: tuple[str, ...] = ()
    """Names of the remedies prescribed, also where the capture failed."""

    @property
    def walked(self) -> bool:
        """Whether anything was captured; a step is left at once if no remedy can do what it needs."""
        return bool(self.findings or self.seconds)


@dataclass(frozen=True)
class Climb:
    """Every rung, and the best of them."""

    preflight: Preflight
    rungs: tuple[Rung, ...]
    findings: tuple[Finding, ...]

    @property
    def best(self) -> Rung | None:
        return best_rung(self.rungs)

    @property
    def verdict(self) -> Verdict:
        return self.best.verdict if self.best else "failed"


def climb(
    workers: Workers,
    subject: Subject,
    settings: Settings,
    folder: Path,
    data: Sequence[list[torch.Tensor]],
    heard: Heard,
) -> Climb:
    """Looks at the model, then walks one route after another; a rung's findings choose the next.

    Of equal blocks in a row two are looked at and captured, or three; all of them where that turns out not to work.
    """
    heard(("stage", "looking at the model"))
    runs = find_repeats(subject.model)
    seen = workers.run(lambda tell: _first_look(subject, settings, runs))
    if runs and (seen.status != "done" or seen.value[1].hopeless):
        seen = workers.run(lambda tell: _first_look(subject, settings, ()))
    _raise_usage(seen)
    if seen.status != "done":
        return Climb(Preflight((), (), ()), (), tuple(diagnose(seen, ())))
    repeats, preflight, suspected = seen.value
    if preflight.hopeless:
        return Climb(preflight, (), _sum_up(preflight, ()))
    rungs: list[Rung] = []
    while (step := next_step(rungs, settings, suspected, repeats)) is not None:
        heard(("rung", step))
        rung = _walk(workers, subject, settings, step, preflight, suspected, rungs, folder, data, heard)
        if step.repeats and _blocks_to_blame(rung):
            repeats = longer(repeats) if any(f.code == "FW328" for f in rung.findings) else ()
            seen = workers.run(lambda tell: _look(subject, settings, ())) if not repeats else seen
            preflight, suspected = seen.value[-2:] if seen.status == "done" else (preflight, suspected)
        rungs.append(rung)
        if rung.walked:
            heard(("outcome", rung))
        for finding in rung.findings:
            if exit_status(finding.code) == 2:
                raise UserError(finding)  # such as a full disk: no other rung will fare better
        if rung.verdict == "verified" or (settings.level == "none" and rung.verdict == "unproven"):
            break
    rungs = [rung for rung in rungs if rung.walked]
    return Climb(preflight, tuple(rungs), _sum_up(preflight, rungs))


def _raise_usage(outcome: Outcome) -> None:
    """What the user asked for in vain is an error here, also where it was noticed in another process."""
    finding = outcome.failure.finding if outcome.failure else None
    if finding is not None and exit_status(finding.code) in (2, 3):
        raise UserError(finding)


def _blocks_to_blame(rung: Rung) -> bool:
    """Whether the whole model may fare better than its first blocks did: all but a failure on the way to a file."""
    judged = rung.evidence is not None and rung.verdict != "verified"
    return judged or any(f.code in ("FW328", "FW407") for f in rung.findings)


def _first_look(
    subject: Subject, settings: Settings, runs: tuple[Repeat, ...]
) -> tuple[tuple[Repeat, ...], Preflight, tuple[Suspect, ...]]:
    """Which runs of equal blocks are called alike, too."""
    warm_up(subject)
    repeats = called_alike(subject.model, runs, partial(faked, subject, subject.example)) if runs else ()
    return repeats, *_look(subject, settings, repeats)


def _look(subject: Subject, settings: Settings, repeats: tuple[Repeat, ...]) -> tuple[Preflight, tuple[Suspect, ...]]:
    shorten(subject.model, repeats)
    preflight = (glance if settings.level == "none" else look)(subject, settings.remedies)
    if subject.patches and not preflight.hopeless:
        preflight = replace(preflight, findings=(*preflight.findings, *check_patches(subject)))
    args, kwargs = subject.call(subject.make(subject.example, 1, "normal"))
    given = inspect.signature(subject.model.forward).bind(*args, **kwargs).arguments
    with patched(subject.model, subject.patches):
        if preflight.hopeless:
            return preflight, suspects(subject.model, given)
        study = None if settings.level == "none" else subject.study
        return preflight, suspects(subject.model, given, live_lines(subject.model, given, _runs(subject), study))


def _runs(subject: Subject) -> Iterator[Callable[[], Any]]:
    """How steps are counted: a large model's in fake tensors, which read none of its weights, where it goes so."""
    # A loop over blocks may take its second step far from the examples, and its first above the smallest sizes.
    points = (*examples(subject, {}), *({d.name: d.sizes[end] for d in subject.domain.dims} for end in (0, -1)))
    if len({tuple(sorted(point.items())) for point in points}) == 1:
        return
    run = computed
    if is_large(subject.model):
        with suppress(Exception):
            faked(subject, subject.example)
            run = faked
    yield from (partial(run, subject, point) for point in points)


def _walk(
    workers: Workers,
    subject: Subject,
    settings: Settings,
    step: PlannedRung,
    preflight: Preflight,
    suspected: Sequence[Suspect],
    rungs: Sequence[Rung],
    folder: Path,
    data: Sequence[list[torch.Tensor]],
    heard: Heard,
) -> Rung:
    """One rung: prescribe, capture (twice beside each other), judge, compare the two captures."""
    route, repeats = step.route, step.repeats
    earlier = [f for rung in rungs for f in rung.findings]
    live = frozenset((s.where.file or "", s.where.line or 0) for s in suspected)
    prescription, refused = _prescribed(workers, subject, settings, step, earlier, preflight, live)
    tried = tuple(name for name, _ in prescription.chosen)
    if step.needs and not any(name in step.needs for name in tried):
        return Rung(step, route, "failed", 0.0, 0, (), (), refused, tried=tried)
    points = examples(subject, dict(step.wrong_at))

    def place(name: str) -> Path:
        file = f"{len(rungs)}-{name}"
        return outside(folder, file) if settings.weights == "link" else folder / file

    def export(point: Point, seed: int, path: Path) -> Callable[[Any], Captured]:
        def work(tell: Any) -> Captured:
            settle_for_capture(subject, preflight)
            cut = shorten(subject.model, repeats)
            with patched(subject.model, subject.patches):
                case, tensors = case_for(subject, route, earlier, point, seed)
                case.output_names, case.live = preflight.output_names, live
                matches = matches_for(subject, case, prescription)
                return capture(subject, case, matches, tensors, preflight.output_names, path, cut, settings.weights)

        return work

    wrong = tuple(map(dict, step.wrong_points))
    ask = Request(workers, subject, export, place, preflight.output_names, settings.remedies, heard, wrong)
    twice = settings.level not in ("none", "quick")
    captures = Pieces(ask) if route.pieces else Captures(ask, points, twice)
    got = captures.first()
    if got.status != "done":
        captures.drop()
        findings = tuple(diagnose(got, suspected))
        return Rung(step, route, "failed", got.seconds, got.peak_bytes, findings, (), refused, tried=tried)
    captured: Captured = got.value
    if settings.level == "none":
        done = route.with_remedies(*(name for name, _ in captured.remedies))
        findings = (Finding("FW506", "level none"), *(Finding("FW210", name) for name in captured.clash))
        verdict: Verdict = "wrong" if captured.clash else "unproven"
        return Rung(
            step,
            done,
            verdict,
            got.seconds,
            got.peak_bytes,
            findings,
            captured.remedies,
            refused,
            captured,
            None,
            got.seconds,
            tried,
        )
    judged = judged_apart(workers, subject, captured, settings.level, settings.remedies, data, folder, heard)
    seconds, peak = got.seconds + judged.seconds, max(got.peak_bytes, judged.peak_bytes)
    verdict, evidence, findings = _weigh(judged, captured, suspected)
    if twice and verdict == "verified":
        assert evidence is not None
        other = captures.second()
        leg, more = compare_captures(workers, subject, settings.remedies, captured, other, captures.points)
        evidence = replace(evidence, differential=leg)
        findings = (*findings, *more)
        verdict = "unproven" if any(f.severity == "error" or f.code == "FW504" for f in more) else verdict
    elif twice:
        captures.drop()
        if evidence is not None:
            evidence = replace(
                evidence, differential=Differential(False, note=f"not needed, the file is {verdict} already")
            )
    done = route.with_remedies(*(name for name, _ in captured.remedies))
    return Rung(
        step, done, verdict, seconds, peak, findings, captured.remedies, refused, captured, evidence, got.seconds, tried
    )


def _prescribed(
    workers: Workers,
    subject: Subject,
    settings: Settings,
    step: PlannedRung,
    earlier: Sequence[Finding],
    preflight: Preflight,
    live: Lines,
) -> tuple[Prescription, tuple[tuple[str, str], ...]]:
    if not settings.remedies:
        return Prescription(), ()

    def work(tell: Any) -> Prescription:
        settle_for_capture(subject, preflight)
        shorten(subject.model, step.repeats)
        with patched(subject.model, subject.patches):
            return prescribe(subject, step, earlier, preflight.output_names, live)

    outcome = workers.run(work)
    if outcome.status != "done":
        why = outcome.failure.message if outcome.failure else outcome.status
        return Prescription(), (("all remedies", f"looking for them failed: {why}"),)
    prescription: Prescription = outcome.value
    return prescription, tuple((n, f"{why}{f' ({where})' if where else ''}") for n, why, where in prescription.refused)


def _weigh(
    judged: Outcome, captured: Captured, suspected: Sequence[Suspect]
) -> tuple[Verdict, Evidence | None, tuple[Finding, ...]]:
    """From evidence to verdict. A file that a runtime refuses, or that kills it, is wrong."""
    if judged.status == "done":
        evidence: Evidence = judged.value
        clash = tuple(Finding("FW210", name) for name in captured.clash)
        if not evidence.wrong:
            open_ended = any(f.code in UNPROVEN_CODES for f in evidence.findings)
            believed: Verdict = "unproven" if open_ended else "verified"
            return "wrong" if clash else believed, evidence, (*evidence.findings, *clash)
        causes = blame(captured.warned, suspected) or accuse(suspected, bool(evidence.boundaries))
        if evidence.boundaries:
            line = "; ".join(evidence.boundaries)
            causes = [replace(f, seen=f"{f.seen}; the file is {line}") for f in causes]
        found = assumed_sizes(captured, evidence, (*causes, *evidence.findings))
        return "wrong", evidence, (*found, *clash)
    findings = diagnose(judged, suspected)
    return "wrong" if findings[0].code.startswith("FW4") else "unproven", None, tuple(findings)


def _sum_up(preflight: Preflight, rungs: Sequence[Rung]) -> tuple[Finding, ...]:
    """The findings that matter for the result: the best rung's, and the user's own lines that any rung named.

    What the other rungs stumbled over stands in the record, rung by rung.
    """
    best = best_rung(rungs)
    found = list(preflight.findings) + list(best.findings if best else ())
    if best is not None and best.verdict in ("failed", "wrong"):
        found += [f for rung in rungs for f in rung.findings if f.code in NAMED]
    unique: dict[tuple[str, str], Finding] = {}
    for finding in found:
        place = f"{finding.where.file}:{finding.where.line}" if finding.where and finding.where.file else finding.seen
        unique.setdefault((finding.code, place), finding)
    return tuple(sorted(unique.values(), key=rank))


def best_rung(rungs: Sequence[Rung]) -> Rung | None:
    """The best verdict; among equals one with evidence, then the one that names the user's line."""

    def merit(rung: Rung) -> tuple[int, bool, bool]:
        named = any(f.code in NAMED for f in rung.findings)
        return _BETTER.index(rung.verdict), rung.evidence is not None, named

    return max(rungs, key=merit, default=None)


def rank(finding: Finding) -> tuple[int, int]:
    """The user's own line first, then what the evidence says, then what exporters say."""
    order = {"FW2": 0, "FW4": 1, "FW3": 2, "FW5": 3}
    named = finding.code in NAMED
    severity = {"error": 0, "warning": 1, "note": 2}[finding.severity]
    return severity, -1 if named else order.get(finding.code[:3], 4)


def judge_file(
    workers: Workers,
    subject: Subject,
    settings: Settings,
    path: str,
    header: OnnxHeader,
    data: Sequence[list[torch.Tensor]],
    folder: Path,
    heard: Heard,
) -> Climb:
    """The judge alone, on a file that somebody made: one rung without a capture."""
    seen = workers.run(lambda tell: look(subject, settings.remedies))
    _raise_usage(seen)
    if seen.status != "done":
        return Climb(Preflight((), (), ()), (), tuple(diagnose(seen, ())))
    preflight: Preflight = seen.value
    if preflight.hopeless:
        return Climb(preflight, (), _sum_up(preflight, ()))
    step = PlannedRung(Route("file"))
    captured = Captured(
        path,
        header.opset,
        tuple(v.name for v in header.outputs),
        sampled_because="the file is judged as it is, without its capture",
        one_sided=not holds_branches(path),
    )
    fixed = dims_fixed(header, subject)
    if fixed:
        findings: tuple[Finding, ...] = tuple(Finding("FW402", one) for one in fixed)
        return Climb(preflight, (Rung(step, step.route, "wrong", 0.0, 0, findings, captured=captured),), findings)
    judged = judged_apart(workers, subject, captured, settings.level, settings.remedies, data, folder, heard)
    verdict, evidence, findings = _weigh(judged, captured, ())
    findings = (*findings, *fixed_outputs(header, preflight.output_axes))
    if evidence is not None:
        note = "not possible: the file is judged as it is, without the route that made it"
        evidence = replace(evidence, differential=Differential(done=False, note=note))
    rung = Rung(
        step, step.route, verdict, judged.seconds, judged.peak_bytes, findings, captured=captured, evidence=evidence
    )
    return Climb(preflight, (rung,), _sum_up(preflight, (rung,)))
