"""`fairway optimize`: every pass is a candidate, kept only if it is shown to help and to change no output."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fairway.convert.export import preload_modules
from fairway.convert.ladder.diagnose import diagnose
from fairway.convert.ladder.judge_file import judge_file
from fairway.convert.ladder.session import ExportSession
from fairway.convert.record_writer import build_record
from fairway.convert.result import Result
from fairway.convert.types import Climb, Settings
from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import UserError, complain
from fairway.judge.file_subject import build_file_subject
from fairway.model import weight_storage as store
from fairway.model.onnx_file import OnnxHeader, check_signature, open_header, open_model
from fairway.model.recipe import Overrides
from fairway.model.subject import Subject
from fairway.record.delivery import check_target, deliver, make_workshop
from fairway.record.files import hash_file, hash_model
from fairway.record.progress import BestChanged, EventSink, ItemsCounted, StageStarted, StillWorking, ignore_event
from fairway.record.reader import compare_with_record
from fairway.record.schema import Record
from fairway.record.schema_tuning import OptimizedRecord
from fairway.record.writer import describe_finding, to_plain
from fairway.tune.bench.arm import ArmProcessFailed, count_cores
from fairway.tune.bench.paired_timing import ArmFailed
from fairway.tune.bench.points import choose_points, write_points
from fairway.tune.optimize.faster import Race, Speeds
from fairway.tune.optimize.optimize_result import FileSize, OptimizeResult, PassTrial
from fairway.tune.optimize.passes import PASSES, Pass
from fairway.workers.attempt import Workers


@dataclass(frozen=True)
class OptimizeGoal:
    """The goal of the optimization, and how to measure."""

    smaller: bool = False
    """A smaller file is also worth it if it is at most slightly slower."""
    at: tuple[str, ...] = ()
    seconds: float = 1.0
    threads: int = 0
    """0 for all cores."""
    seed: int = 0
    overwrite: bool = False
    overrides: Overrides = field(default_factory=Overrides)
    """Inputs and dims of the file, if it has no recipe."""


@dataclass(frozen=True)
class _Candidate:
    """A file and its measured size and quality."""

    path: Path
    size: FileSize
    stored: store.WeightStorage | None = None
    judged: Climb | None = None


def optimize_file(
    path: Path,
    target: Path,
    subject: Subject | None,
    settings: Settings,
    goal: OptimizeGoal,
    on_event: EventSink = ignore_event,
) -> OptimizeResult:
    """Try every pass on `path` and write `target` if some helped. `subject` is the recipe's, if there is one.

    Without a recipe the passes are judged against the file itself. The result is then as right as the file, and its
    verdict claims no more.
    """
    check_target(target, goal.overwrite)
    header = open_model(path)
    stored, changed = compare_with_record(path)
    if changed is not None and changed.code == Code.LINKED_CHECKPOINT_CHANGED:
        raise UserError(changed)
    known = stored if changed is None else None
    reference = subject if subject is not None else build_file_subject(header, known, goal.overrides)
    check_signature(header, reference)
    points = choose_points(reference, goal.at)
    preload_modules()
    with Workers(settings.limits) as workers, make_workshop(target, workers.janitor) as folder:
        workers.tick = partial(on_event, StillWorking())
        (folder / "points").mkdir()
        write_points(reference, points, folder / "points", goal.seed)
        threads = goal.threads or count_cores()
        race = Race(reference, points, folder / "points", goal.seconds, threads, settings.limits, workers.janitor)
        runner = _PassRunner(workers, reference, settings, goal, header, folder, race, on_event)
        if subject is not None:
            runner.check_input(known)
        if failure := race.find_failure(path):
            raise complain(Code.RUNTIME_FAILS, f"{path.name} {failure}")
        best, tried = runner.run_all()
        against = "PyTorch, by the recipe" if subject is not None else f"{path.name} itself, over {reference.domain}"
        result = OptimizeResult(path, against, tried, _measure_size(path, header))
        if best is None:
            return result
        on_event(StageStarted("timing the result against the input again"))
        together = runner.confirm(best)
        if together is None:
            return replace(result, tried=tuple(map(_mark_unconfirmed, tried)))
        result = replace(result, after=best.size, together=together)
        record = _make_record(reference, settings, best, known, result, subject is not None)
        assert best.stored is not None
        record = deliver(folder, best.path, target, record, best.stored, goal.overwrite)
    return replace(result, result=_make_result(best, target, record, subject is not None))


@dataclass
class _PassRunner:
    """Applies the passes one after the other."""

    workers: Workers
    subject: Subject
    settings: Settings
    goal: OptimizeGoal
    header: OnnxHeader
    folder: Path
    race: Race
    on_event: EventSink

    @property
    def _session(self) -> ExportSession:
        return ExportSession(self.workers, self.subject, self.settings, self.folder, on_event=self.on_event)

    def check_input(self, known: Record | None) -> None:
        """Fail if the file is not right: it is not worth optimizing, and the passes could not be judged against it."""
        if known is not None and known.is_verified and known.subject.sha256 == hash_model(self.subject.model):
            return
        self.on_event(StageStarted("judging the input"))
        judged = judge_file(self._session, self.header.path, self.header)
        if judged.verdict != "verified":
            first = next((f for f in judged.findings if f.severity == "error"), None)
            seen = f": {first.code}, {first.seen}" if first is not None else ""
            raise complain(Code.INPUT_NOT_VERIFIED, f"{self.header.path.name} is {judged.verdict}{seen}")

    def run_all(self) -> tuple[_Candidate | None, tuple[PassTrial, ...]]:
        """Return the file with all helpful passes, if any helped, and the result of each pass."""
        start = _Candidate(self.header.path, _measure_size(self.header.path, self.header))
        best = start
        tried = []
        for number, pass_ in enumerate(PASSES):
            self.on_event(ItemsCounted(number, len(PASSES), "passes", f"trying {pass_.name}"))
            candidate, trial = self._try_pass(pass_, number, best)
            tried.append(trial)
            if trial.kept and candidate is not None:
                best = candidate
                self.on_event(BestChanged(f"with {', '.join(row.name for row in tried if row.kept)}"))
        return None if best is start else best, tuple(tried)

    def _try_pass(self, pass_: Pass, number: int, base: _Candidate) -> tuple[_Candidate | None, PassTrial]:
        if pass_.missing_package is not None:
            return None, PassTrial(
                pass_.name, False, f"{pass_.missing_package} is not installed: pip install 'fairway-onnx[optimize]'"
            )
        candidate, problem = self._apply_pass(pass_, number, base)
        if candidate is None:
            return None, PassTrial(pass_.name, False, problem)
        try:
            speeds = self.race.compare(base.path, candidate.path, self.goal.seed + number)
        except (ArmProcessFailed, ArmFailed) as error:
            reason = str(error.__cause__ or error)
            return None, PassTrial(pass_.name, False, f"the file it makes does not run: {reason}", size=candidate.size)
        smaller = self.goal.smaller and candidate.size.bytes < base.size.bytes
        if not speeds.is_worthwhile(smaller):
            reason = "slower" if speeds.is_slower else "not faster" + (", nor smaller" if self.goal.smaller else "")
            return None, PassTrial(pass_.name, False, reason, speeds, candidate.size)
        self.on_event(StageStarted(f"judging what {pass_.name} made"))
        judged = judge_file(
            self._session,
            candidate.path,
            open_header(candidate.path),
        )
        if judged.verdict != "verified":
            errors = [f for f in judged.findings if f.severity == "error"] or list(judged.findings)
            problem = f"{errors[0].code}, {errors[0].seen}" if errors else judged.verdict
            return None, PassTrial(pass_.name, False, f"{judged.verdict}: {problem}", speeds, candidate.size)
        reason = "faster" if speeds.is_faster else f"smaller, and {'hardly' if speeds.is_slower else 'not'} slower"
        return replace(candidate, judged=judged), PassTrial(pass_.name, True, reason, speeds, candidate.size)

    def _apply_pass(self, pass_: Pass, number: int, base: _Candidate) -> tuple[_Candidate | None, str]:
        """Apply the pass in a separate process and save its file as Fairway does; or return why that failed."""
        source = self.folder / f"{number}-in.onnx"
        raw = self.folder / f"{number}-raw.onnx"
        path = self.folder / f"{number}-{pass_.name}.onnx"
        mode: store.WeightMode | None = "copy" if self.header.external else None

        def work(tell: EventSink) -> store.WeightStorage:
            import onnx_ir as ir

            store.save_candidate(ir.load(base.path), source, mode)
            pass_.apply(source, raw)
            return store.save_candidate(ir.load(raw), path, mode)

        outcome = self.workers.run(work)
        if outcome.status != "done":
            if outcome.failure is not None and outcome.failure.finding is None:
                lines = outcome.failure.message.strip().splitlines()
                return None, f"raised {outcome.failure.kind}: {lines[0] if lines else ''}"[:300]
            finding = diagnose(outcome, ())[0]
            return None, f"{finding.title.lower()}: {finding.seen}"[:300]
        try:
            header = open_header(path)
        except UserError as error:
            return None, f"its file is refused: {error.finding.seen}"
        if _list_signature(header) != _list_signature(self.header):
            return None, "changes the names or types of inputs or outputs"
        return _Candidate(path, _measure_size(path, header), outcome.value), ""

    def confirm(self, best: _Candidate) -> Speeds | None:
        """Time the result against the input with other seeds: of several passes, one may have been lucky."""
        try:
            speeds = self.race.compare(self.header.path, best.path, self.goal.seed + 1000)
        except (ArmProcessFailed, ArmFailed):
            return None
        smaller = self.goal.smaller and best.size.bytes < _measure_size(self.header.path, self.header).bytes
        return speeds if speeds.is_worthwhile(smaller) else None


def _list_signature(header: OnnxHeader) -> list[tuple[str, str]]:
    return [(value.name, value.dtype) for value in (*header.inputs, *header.outputs)]


def _measure_size(path: Path, header: OnnxHeader) -> FileSize:
    external_bytes = sum((path.parent / name).stat().st_size for name in header.external)
    return FileSize(path.stat().st_size + external_bytes, header.nodes)


def _mark_unconfirmed(trial: PassTrial) -> PassTrial:
    if not trial.kept:
        return trial
    return replace(trial, kept=False, reason=f"{trial.reason}, but not when timed against the input again")


def _make_record(
    subject: Subject,
    settings: Settings,
    best: _Candidate,
    known: Record | None,
    result: OptimizeResult,
    by_recipe: bool,
) -> Record:
    """Return the evidence on the new file, how the old file was made, and which passes were kept and why."""
    assert best.judged is not None
    record = build_record(subject, settings, best.judged)
    changes: dict[str, object] = {
        "opset": open_header(best.path).opset,
        "optimized": OptimizedRecord.model_validate_json(to_plain(result.as_dict())),
    }
    if known is not None:
        changes |= {"route": known.route, "remedies": known.remedies, "blocks": known.blocks}
    if not by_recipe:
        own_subject = record.subject.model_copy(update={"sha256": hash_file(result.source)})
        changes |= {
            "verdict": "unproven",
            "findings": (describe_finding(_make_against_file_finding(result)), *record.findings),
            "subject": own_subject if known is None else known.subject,
        }
    return record.model_copy(update=changes)


def _make_against_file_finding(result: OptimizeResult) -> Finding:
    return Finding(Code.JUDGED_AGAINST_A_FILE, f"it agrees with {result.judged_against}")


def _make_result(best: _Candidate, target: Path, record: Record, by_recipe: bool) -> Result:
    assert best.judged is not None
    rung = best.judged.best
    findings = best.judged.findings
    if not by_recipe:
        findings = (Finding(Code.JUDGED_AGAINST_A_FILE, record.findings[0].seen), *findings)
    return Result(
        verdict="verified" if by_recipe else "unproven",
        path=target,
        route=record.route,
        remedies=tuple(remedy.name for remedy in record.remedies),
        findings=findings,
        evidence=None if rung is None else rung.evidence,
        record=record,
    )
