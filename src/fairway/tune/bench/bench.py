"""`fairway bench`: compare files, engines and settings at several points of the declared dims."""

from __future__ import annotations

import importlib.util
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.judge.file_subject import build_file_subject
from fairway.model.dims import Point, describe_point
from fairway.model.onnx_file import OnnxHeader, check_signature, open_model
from fairway.model.recipe import Overrides, load_subject
from fairway.model.subject import Subject
from fairway.record.files import read_versions
from fairway.record.progress import EventSink, ItemsCounted, StageStarted, ignore_event
from fairway.record.reader import compare_with_record
from fairway.record.schema import Record
from fairway.tune.bench.arm import ArmProcess, ArmProcessFailed, count_cores
from fairway.tune.bench.arm_program import LEVELS, Job
from fairway.tune.bench.bench_result import ArmRow, BenchResult, FileNote, PointTimings, summarize_timings
from fairway.tune.bench.paired_timing import ArmFailed, time_in_rounds
from fairway.tune.bench.points import choose_points, write_points
from fairway.tune.bench.profile import Profile, read_profile
from fairway.workers.attempt import Limits
from fairway.workers.workshop import Janitor

PROFILE_SECONDS = 0.5
"""Seconds of calls that are profiled for each file."""


@dataclass(frozen=True)
class BenchRequest:
    """The arms to compare, and how long."""

    levels: tuple[str, ...] = ("all", "none")
    threads: tuple[int, ...] = ()
    """For every arm; empty for all cores, and for ONNX Runtime also one thread."""
    at: tuple[str, ...] = ()
    seconds: float = 1.0
    """For each arm at each point."""
    limits: Limits = field(default_factory=lambda: Limits(120.0))
    seed: int = 0


@dataclass
class _ArmRunner:
    """An arm with its row, its process, and the points at which it fails."""

    row: ArmRow
    process: ArmProcess
    failed: dict[int, str]


def run_bench(
    files: Sequence[Path],
    recipe: str | None = None,
    overrides: Overrides | None = None,
    request: BenchRequest | None = None,
    on_event: EventSink = ignore_event,
) -> BenchResult:
    """Time the files, and PyTorch with `recipe`, round by round; whatever happens to one arm becomes its row."""
    request, overrides = request or BenchRequest(), overrides or Overrides()
    check_request(request)
    headers, notes, stored = _open_files(files)
    on_event(StageStarted("loading the recipe" if recipe else "reading the records"))
    subject, source = _choose_subject(headers[0], stored[0], recipe, overrides)
    points = choose_points(subject, request.at)
    with tempfile.TemporaryDirectory(prefix="fairway-bench-") as name:
        folder = Path(name)
        write_points(subject, points, folder, request.seed)
        jobs = list(_list_jobs(headers, subject, recipe, overrides, request, folder))
        with _start_arms(jobs, points, request, on_event) as runners:
            at = tuple(_time_point(runners, number, points, request, on_event) for number in range(len(points)))
            rows = tuple(replace(r.row, peak_bytes=r.process.peak_bytes or None) for r in runners)
        profiles = _profile_files(jobs, at, points, request, folder, on_event)
    return BenchResult(notes, rows, at, profiles, source, request.seconds, request.seed, describe_machine())


def check_request(request: BenchRequest) -> None:
    for level in request.levels:
        if level not in LEVELS:
            raise complain(Code.UNKNOWN_OPTION, f"level {level!r}; expected one of {', '.join(LEVELS)}")
    check_timing(request.seconds, request.threads)


def check_timing(seconds: float, threads: Sequence[int]) -> None:
    if any(count < 1 or count > 1024 for count in threads):
        raise complain(Code.UNKNOWN_OPTION, f"threads {', '.join(map(str, threads))}; expected 1 to 1024")
    if not 0 < seconds <= 3600:
        raise complain(Code.UNKNOWN_OPTION, f"seconds {seconds:g}; expected more than 0 and at most 3600")


def _open_files(files: Sequence[Path]) -> tuple[list[OnnxHeader], tuple[FileNote, ...], list[Record | None]]:
    headers, notes, records = [], [], []
    for path in files:
        header = open_model(path)
        stored, finding = compare_with_record(path)
        size = path.stat().st_size + sum((path.parent / name).stat().st_size for name in header.external)
        if stored is None:
            verdict = "no record"
            about = finding.seen if finding else "no record: nothing shows that it is right"
        elif finding is not None:
            verdict, about = "changed", f"{finding.seen}; the record is about another file"
        else:
            verdict, about = stored.verdict, str(stored.short)
        headers.append(header)
        notes.append(FileNote(str(path), size, verdict, about))
        records.append(stored)
    return headers, tuple(notes), records


def _choose_subject(
    header: OnnxHeader, stored: Record | None, recipe: str | None, overrides: Overrides
) -> tuple[Subject, str]:
    if recipe is not None:
        return load_subject(recipe, overrides), "the recipe"
    return build_file_subject(header, stored, overrides), "the file alone" if stored is None else "the record"


def _list_jobs(
    headers: Sequence[OnnxHeader],
    subject: Subject,
    recipe: str | None,
    overrides: Overrides,
    request: BenchRequest,
    folder: Path,
) -> Iterator[tuple[ArmRow, Job]]:
    """Yield every arm with the job for its process. PyTorch comes first, since ratios are relative to the first arm."""
    every = request.threads or (count_cores(),)
    common = {"names": list(subject.input_names), "dtypes": [s.dtype for s in subject.spec], "points": str(folder)}
    if recipe is not None:
        options = {
            "inputs": list(overrides.inputs),
            "bounds": dict(overrides.bounds),
            "multiples": dict(overrides.multiples),
            "checkpoint": None if overrides.checkpoint is None else str(overrides.checkpoint),
            "trust": overrides.trust,
            "checkpoint_key": overrides.checkpoint_key,
        }
        for engine, title in (("eager", "PyTorch eager"), ("compile", "torch.compile")):
            for count in every:
                row = ArmRow(f"{title}, {_format_threads(count)}", engine, count)
                yield row, {**common, "engine": engine, "threads": count, "recipe": recipe, "overrides": options}
    names = _shorten_names([header.path for header in headers])
    for header, name in zip(headers, names, strict=True):
        differs = _find_mismatch(header, subject)
        for level in request.levels:
            for count in request.threads or tuple(dict.fromkeys((count_cores(), 1))):
                shown = f"{name}, ONNX Runtime {level}, {_format_threads(count)}"
                row = ArmRow(shown, "ort", count, name, level, failure=differs)
                job = {"engine": "ort", "threads": count, "path": str(header.path.absolute()), "level": level}
                yield row, {**common, **job}
        for count in every if importlib.util.find_spec("openvino") else ():
            row = ArmRow(f"{name}, OpenVINO, {_format_threads(count)}", "openvino", count, name, failure=differs)
            yield row, {**common, "engine": "openvino", "threads": count, "path": str(header.path.absolute())}


def _format_threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def _find_mismatch(header: OnnxHeader, subject: Subject) -> str | None:
    try:
        check_signature(header, subject)
    except UserError as error:
        return error.finding.seen
    return None


def _shorten_names(paths: Sequence[Path]) -> list[str]:
    """Return file names, with as many folders as needed to tell them apart."""
    parts = [path.absolute().parts for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(path_parts[-depth:]) for path_parts in parts]
        if len(set(names)) == len(set(parts)):
            break
    return names


@contextmanager
def _start_arms(
    jobs: Sequence[tuple[ArmRow, Job]], points: Sequence[Point], request: BenchRequest, on_event: EventSink
) -> Iterator[list[_ArmRunner]]:
    """Yield the arms' processes, each opened and called once at the first point while no other one works."""
    janitor = Janitor()
    runners: list[_ArmRunner] = []
    try:
        for row, job in jobs:
            on_event(StageStarted(f"opening {row.name}"))
            process = ArmProcess(row.name, job, request.limits, janitor)
            runners.append(_open_arm(row, process, points))
        yield runners
    finally:
        for runner in runners:
            runner.process.close()
        janitor.dismiss()


def _open_arm(row: ArmRow, process: ArmProcess, points: Sequence[Point]) -> _ArmRunner:
    runner = _ArmRunner(row, process, {})
    try:
        if row.failure is not None:
            raise ArmProcessFailed(row.failure)
        opened, before = process.open()
        runner.row = replace(row, open_seconds=opened, before_bytes=before)
    except ArmProcessFailed as error:
        runner.row = replace(row, failure=str(error))
        runner.failed = dict.fromkeys(range(len(points)), str(error))
        return runner
    _time_first_call(runner, 0, points)
    return runner


def _time_first_call(runner: _ArmRunner, number: int, points: Sequence[Point]) -> None:
    """Time the first call at a point alone: engines compile and allocate in it."""
    try:
        (seconds,) = runner.process.time(number, 1, 1)
        if number == 0:
            runner.row = replace(runner.row, first_seconds=seconds)
    except ArmProcessFailed as error:
        _mark_failed(runner, number, points, str(error))


def _mark_failed(runner: _ArmRunner, number: int, points: Sequence[Point], reason: str) -> None:
    """Record a failure. An arm whose process ended fails at all later points; others may do better there."""
    message = f"at {describe_point(points[number])}: {reason}"
    if runner.process.is_gone:
        runner.failed.update(dict.fromkeys(range(number, len(points)), message))
    runner.failed[number] = reason
    runner.row = replace(runner.row, failure=runner.row.failure or message)


def _time_point(
    runners: Sequence[_ArmRunner], number: int, points: Sequence[Point], request: BenchRequest, on_event: EventSink
) -> PointTimings:
    """Time all arms at one point. If one fails on the way, the others are timed again without it."""
    for runner in runners:
        if number and number not in runner.failed:
            _time_first_call(runner, number, points)
    while working := [r for r in runners if number not in r.failed]:
        on_event(
            ItemsCounted(
                number, len(points), "points", f"timing {len(working)} arms at {describe_point(points[number])}"
            )
        )
        try:
            timings = time_in_rounds(
                [r.process.make_arm(number) for r in working], seconds=request.seconds, seed=request.seed
            )
        except ArmFailed as error:
            failed = next(r for r in working if r.row.name == error.name)
            _mark_failed(failed, number, points, str(error.__cause__))
            continue
        base = working[0].row.name
        return PointTimings(points[number], base, summarize_timings(timings, base), _collect_failures(runners, number))
    return PointTimings(points[number], "", (), _collect_failures(runners, number))


def _collect_failures(runners: Sequence[_ArmRunner], number: int) -> dict[str, str]:
    return {r.row.name: r.failed[number] for r in runners if number in r.failed}


def _profile_files(
    jobs: Sequence[tuple[ArmRow, Job]],
    at: Sequence[PointTimings],
    points: Sequence[Point],
    request: BenchRequest,
    folder: Path,
    on_event: EventSink,
) -> tuple[Profile, ...]:
    """Profile each file's operators at the last point, with its first level and threads.

    The last point is the largest by default, where the profiler's own overhead matters least.
    """
    profiles = []
    number = len(points) - 1
    p50 = {speed.arm: speed.p50 for speed in at[number].speeds}
    seen: set[str | None] = set()
    janitor = Janitor()
    for row, job in jobs:
        if row.engine != "ort" or row.file in seen or row.name not in p50:
            continue
        seen.add(row.file)
        on_event(StageStarted(f"profiling {row.file}"))
        calls = int(min(500, max(3, PROFILE_SECONDS / p50[row.name])))
        process = ArmProcess(row.name, job, request.limits, janitor)
        try:
            prefix = folder / f"profile-{len(seen)}"
            events = process.profile(number, calls + max(1, calls // 5), str(prefix))
            optimized, path = prefix.with_suffix(".onnx"), Path(job["path"])
            profiles.append(read_profile(events, optimized, path, points[number], calls, p50[row.name]))
        except (ArmProcessFailed, OSError, ValueError) as error:
            note = f"could not be profiled: {error}"
            profiles.append(Profile(str(row.file), dict(points[number]), 0.0, (), note=note))
        finally:
            process.close()
    janitor.dismiss()
    return tuple(profiles)


def describe_machine() -> dict[str, object]:
    """Return the conditions of the measurement: processor, load and versions."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {"cpu": name, "cores": count_cores(), "load": round(os.getloadavg()[0], 2), "versions": read_versions()}
