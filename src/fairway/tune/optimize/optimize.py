"""`fairway optimize`: every pass is a candidate. It is kept where it was shown to help and to change no answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fairway.convert.export import warm_up
from fairway.convert.ladder.climb import Climb, Settings, judge_file
from fairway.convert.ladder.diagnose import diagnose
from fairway.convert.record_writer import write_record
from fairway.convert.result import Result
from fairway.diagnostics import Finding
from fairway.diagnostics.errors import UserError, complain
from fairway.judge.file_subject import file_subject
from fairway.model import weight_storage as store
from fairway.model.onnx_file import OnnxHeader, check_room, check_signature, open_header
from fairway.model.recipe import Overrides
from fairway.model.subject import Subject
from fairway.record.delivery import check_target, deliver, workshop
from fairway.record.files import hash_file, hash_model
from fairway.record.reader import StoredRecord, compare_with_record
from fairway.tune.bench.arm import Failed, cores
from fairway.tune.bench.paired_timing import ArmFailed
from fairway.tune.bench.points import choose_points, write_points
from fairway.tune.optimize.faster import Race, Speeds
from fairway.tune.optimize.optimize_result import FileSize, Optimised, PassTrial
from fairway.tune.optimize.passes import PASSES, Pass
from fairway.workers.attempt import Workers

Heard = Callable[[Any], None]


@dataclass(frozen=True)
class OptimizeGoal:
    """What counts as help, and how long to look for it."""

    smaller: bool = False
    """A smaller file helps too, as long as it is hardly slower."""
    at: tuple[str, ...] = ()
    seconds: float = 1.0
    threads: int = 0
    """0 for all cores."""
    seed: int = 0
    overwrite: bool = False


@dataclass(frozen=True)
class _Candidate:
    """A file on its way, with what was shown of it."""

    path: Path
    size: FileSize
    stored: store.WeightStorage | None = None
    judged: Climb | None = None


def optimize_file(
    path: Path,
    target: Path,
    subject: Subject | None,
    said: Overrides,
    settings: Settings,
    wanted: OptimizeGoal,
    heard: Heard = lambda event: None,
) -> Optimised:
    """Tries every pass on `path`; writes `target` where some helped. `subject` is the recipe's, if there is one.

    Without a recipe the passes are judged against the file itself: then the result is as right as the file, and its
    verdict says no more than that.
    """
    check_target(target, wanted.overwrite)
    header = open_header(path)
    check_room(header)
    stored, changed = compare_with_record(path)
    if changed is not None and changed.code == "FW119":
        raise UserError(changed)
    known = stored if changed is None else None
    judge_by = subject if subject is not None else file_subject(header, known, said)
    check_signature(header, judge_by)
    points = choose_points(judge_by, wanted.at)
    warm_up()
    with Workers(settings.limits) as workers, workshop(target, workers.janitor) as folder:
        workers.tick = partial(heard, ("tick",))
        if subject is not None:
            _check_input(workers, subject, settings, header, known, folder, heard)
        (folder / "points").mkdir()
        write_points(judge_by, points, folder / "points", wanted.seed)
        threads = wanted.threads or cores()
        race = Race(judge_by, points, folder / "points", wanted.seconds, threads, settings.limits, workers.janitor)
        if failure := race.check(path):
            raise complain("FW408", f"{path.name} {failure}")
        work = _Work(workers, judge_by, settings, wanted, header, folder, race, heard)
        best, tried = work.stack()
        against = "PyTorch, by the recipe" if subject is not None else f"{path.name} itself, over {judge_by.domain}"
        found = Optimised(path, against, tried, _size(path, header))
        if best is None:
            return found
        heard(("stage", "timing the result beside the input once more"))
        together = work.confirm(best)
        if together is None:
            return replace(found, tried=tuple(_unconfirmed(one) for one in tried))
        found = replace(found, after=best.size, together=together)
        record = _record(judge_by, settings, best, known, found, subject is not None)
        assert best.stored is not None
        record = deliver(folder, best.path, target, record, best.stored, wanted.overwrite)
    return replace(found, result=_result(best, target, record, subject is not None))


@dataclass
class _Work:
    """The passes one after the other."""

    workers: Workers
    subject: Subject
    settings: Settings
    wanted: OptimizeGoal
    header: OnnxHeader
    folder: Path
    race: Race
    heard: Heard

    def stack(self) -> tuple[_Candidate | None, tuple[PassTrial, ...]]:
        """What was kept, and the story of each pass."""
        start = _Candidate(self.header.path, _size(self.header.path, self.header))
        best = start
        tried = []
        for number, one in enumerate(PASSES):
            self.heard(("count", number, len(PASSES), "passes", f"trying {one.name}"))
            made, row = self._try(one, number, best)
            tried.append(row)
            if row.kept and made is not None:
                best = made
                self.heard(("best", f"with {', '.join(one.name for one in tried if one.kept)}"))
        return None if best is start else best, tuple(tried)

    def _try(self, one: Pass, number: int, base: _Candidate) -> tuple[_Candidate | None, PassTrial]:
        if one.missing is not None:
            return None, PassTrial(one.name, False, f"{one.missing} is not installed: pip install 'fairway[optimize]'")
        made, problem = self._made(one, number, base)
        if made is None:
            return None, PassTrial(one.name, False, problem)
        try:
            speeds = self.race.run(base.path, made.path, self.wanted.seed + number)
        except (Failed, ArmFailed) as error:
            why = str(error.__cause__ or error)
            return None, PassTrial(one.name, False, f"the file it makes does not run: {why}", size=made.size)
        smaller = self.wanted.smaller and made.size.bytes < base.size.bytes
        if not speeds.help(smaller):
            reason = "slower" if speeds.slower else "not faster" + (", nor smaller" if self.wanted.smaller else "")
            return None, PassTrial(one.name, False, reason, speeds, made.size)
        self.heard(("stage", f"judging what {one.name} made"))
        judged = judge_file(
            self.workers,
            self.subject,
            self.settings,
            str(made.path),
            open_header(made.path),
            (),
            self.folder,
            self.heard,
        )
        if judged.verdict != "verified":
            errors = [f for f in judged.findings if f.severity == "error"] or list(judged.findings)
            said = f"{errors[0].code}, {errors[0].seen}" if errors else judged.verdict
            return None, PassTrial(one.name, False, f"{judged.verdict}: {said}", speeds, made.size)
        reason = "faster" if speeds.faster else f"smaller, and {'hardly' if speeds.slower else 'not'} slower"
        return replace(made, judged=judged), PassTrial(one.name, True, reason, speeds, made.size)

    def _made(self, one: Pass, number: int, base: _Candidate) -> tuple[_Candidate | None, str]:
        """The pass carried out in a process of its own, its file saved as ours are; or why there is none."""
        source = self.folder / f"{number}-in.onnx"
        raw = self.folder / f"{number}-raw.onnx"
        path = self.folder / f"{number}-{one.name}.onnx"
        mode: store.Mode | None = "copy" if self.header.external else None

        def work(tell: Heard) -> store.WeightStorage:
            import onnx_ir as ir

            store.save_candidate(ir.load(base.path), source, mode)
            one.apply(source, raw)
            return store.save_candidate(ir.load(raw), path, mode)

        outcome = self.workers.run(work)
        if outcome.status != "done":
            if outcome.failure is not None and outcome.failure.finding is None:
                lines = outcome.failure.message.strip().splitlines()
                return None, f"raised {outcome.failure.kind}: {lines[0] if lines else ''}"[:300]
            said = diagnose(outcome, ())[0]
            return None, f"{said.title.lower()}: {said.seen}"[:300]
        try:
            header = open_header(path)
        except UserError as error:
            return None, f"its file is refused: {error.finding.seen}"
        if _ends(header) != _ends(self.header):
            return None, "changes the names or types of inputs or outputs"
        return _Candidate(path, _size(path, header), outcome.value), ""

    def confirm(self, best: _Candidate) -> Speeds | None:
        """The result beside the input with other seeds: of several passes tried, one may have been lucky."""
        try:
            speeds = self.race.run(self.header.path, best.path, self.wanted.seed + 1000)
        except (Failed, ArmFailed):
            return None
        smaller = self.wanted.smaller and best.size.bytes < _size(self.header.path, self.header).bytes
        return speeds if speeds.help(smaller) else None


def _ends(header: OnnxHeader) -> list[tuple[str, str]]:
    return [(value.name, value.dtype) for value in (*header.inputs, *header.outputs)]


def _size(path: Path, header: OnnxHeader) -> FileSize:
    beside = sum((path.parent / name).stat().st_size for name in header.external)
    return FileSize(path.stat().st_size + beside, header.nodes)


def _check_input(
    workers: Workers,
    subject: Subject,
    settings: Settings,
    header: OnnxHeader,
    known: StoredRecord | None,
    folder: Path,
    heard: Heard,
) -> None:
    """A file that is not right is not worth optimising, and no pass could be told right from wrong."""
    proven = None if known is None else known.proven
    if proven is not None and proven.verdict == "verified" and proven.subject_sha256 == hash_model(subject.model):
        return
    heard(("stage", "judging the input"))
    judged = judge_file(workers, subject, settings, str(header.path), header, (), folder, heard)
    if judged.verdict != "verified":
        first = next((f for f in judged.findings if f.severity == "error"), None)
        seen = f": {first.code}, {first.seen}" if first is not None else ""
        raise complain("FW416", f"{header.path.name} is {judged.verdict}{seen}")


def _unconfirmed(one: PassTrial) -> PassTrial:
    return replace(one, kept=False, reason=f"{one.reason}, but not again beside the input") if one.kept else one


def _record(
    subject: Subject,
    settings: Settings,
    best: _Candidate,
    known: StoredRecord | None,
    found: Optimised,
    by_recipe: bool,
) -> dict[str, Any]:
    """The evidence on the new file; how the old one was made; what was kept and why."""
    assert best.judged is not None
    record = write_record(subject, settings, best.judged)
    record["opset"] = open_header(best.path).opset
    if known is not None:
        record |= {key: known.whole[key] for key in ("route", "remedies", "blocks") if key in known.whole}
    if not by_recipe:
        record["verdict"] = "unproven"
        record["findings"] = [_against_file(found).as_dict(), *record["findings"]]
        told = known.whole["subject"] if known is not None else {"sha256": hash_file(found.source)}
        record["subject"] = {**record["subject"], **told}
    record["optimised"] = found.as_dict()
    return record


def _against_file(found: Optimised) -> Finding:
    return Finding("FW507", f"it agrees with {found.judged_against}")


def _result(best: _Candidate, target: Path, record: dict[str, Any], by_recipe: bool) -> Result:
    assert best.judged is not None
    rung = best.judged.best
    findings = best.judged.findings
    if not by_recipe:
        findings = (Finding("FW507", record["findings"][0]["seen"]), *findings)
    return Result(
        verdict="verified" if by_recipe else "unproven",
        path=target,
        route=record["route"],
        remedies=tuple(one["name"] for one in record["remedies"]),
        findings=findings,
        evidence=None if rung is None else rung.evidence,
        record=record,
    )
