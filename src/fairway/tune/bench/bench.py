"""`fairway bench`: files, engines and settings beside each other, at several points of the declared dims."""

from __future__ import annotations

import importlib.util
import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairway.diagnostics.errors import UserError, complain
from fairway.judge.file_subject import file_subject
from fairway.model.dims import Point, show
from fairway.model.onnx_file import OnnxHeader, check_room, check_signature, open_header
from fairway.model.recipe import Overrides, load_subject
from fairway.model.subject import Subject
from fairway.record.files import versions
from fairway.record.reader import StoredRecord, compare_with_record
from fairway.tune.bench.arm import Apart, Failed, cores
from fairway.tune.bench.arm_program import LEVELS
from fairway.tune.bench.bench_result import ArmRow, AtPoint, Bench, FileNote, speeds_of
from fairway.tune.bench.paired_timing import ArmFailed, paired
from fairway.tune.bench.points import choose_points, write_points
from fairway.tune.bench.profile import Profile, read_profile
from fairway.workers.attempt import Limits
from fairway.workers.staging import Janitor

Heard = Callable[[Any], None]

PROFILED = 0.5
"""Seconds of calls that are profiled of each file."""


@dataclass(frozen=True)
class BenchRequest:
    """What to compare, and how long."""

    levels: tuple[str, ...] = ("all", "none")
    threads: tuple[int, ...] = ()
    """For every arm; empty for all cores, and for ONNX Runtime one thread besides."""
    at: tuple[str, ...] = ()
    seconds: float = 1.0
    """Of each arm at each point."""
    limits: Limits = field(default_factory=lambda: Limits(120.0))
    seed: int = 0


@dataclass
class _Runner:
    """An arm on its way: its row, its process, the points at which it fails."""

    row: ArmRow
    process: Apart
    failed: dict[int, str]


def bench(
    files: Sequence[Path],
    recipe: str | None = None,
    said: Overrides | None = None,
    wanted: BenchRequest | None = None,
    heard: Heard = lambda event: None,
) -> Bench:
    """Times the files, and PyTorch with `recipe`, round by round; whatever happens to one arm is its row."""
    wanted, said = wanted or BenchRequest(), said or Overrides()
    check_wanted(wanted)
    headers, notes, stored = _look_at(files)
    heard(("stage", "loading the recipe" if recipe else "reading the records"))
    subject, source = _subject(headers[0], stored[0], recipe, said)
    points = choose_points(subject, wanted.at)
    with tempfile.TemporaryDirectory(prefix="fairway-bench-") as name:
        folder = Path(name)
        write_points(subject, points, folder, wanted.seed)
        jobs = list(_jobs(headers, subject, recipe, said, wanted, folder))
        with _started(jobs, points, wanted, heard) as runners:
            at = tuple(_at(runners, number, points, wanted, heard) for number in range(len(points)))
            rows = tuple(replace(r.row, peak_bytes=r.process.peak_bytes or None) for r in runners)
        profiles = _profiles(jobs, at, points, wanted, folder, heard)
    return Bench(notes, rows, at, profiles, source, wanted.seconds, wanted.seed, machine())


def check_wanted(wanted: BenchRequest) -> None:
    for level in wanted.levels:
        if level not in LEVELS:
            raise complain("FW006", f"level {level!r}; the levels are {', '.join(LEVELS)}")
    check_timing(wanted.seconds, wanted.threads)


def check_timing(seconds: float, threads: Sequence[int]) -> None:
    if any(count < 1 or count > 1024 for count in threads):
        raise complain("FW006", f"threads {', '.join(map(str, threads))}; a number of threads is 1 to 1024")
    if not 0 < seconds <= 3600:
        raise complain("FW006", f"seconds {seconds:g}; an arm is timed for more than 0 and at most 3600")


def _look_at(files: Sequence[Path]) -> tuple[list[OnnxHeader], tuple[FileNote, ...], list[StoredRecord | None]]:
    headers, notes, records = [], [], []
    for path in files:
        header = open_header(path)
        check_room(header)
        stored, finding = compare_with_record(path)
        size = path.stat().st_size + sum((path.parent / name).stat().st_size for name in header.external)
        if stored is None:
            verdict = "no record"
            about = finding.seen if finding else "no record: nothing shows that it computes what it should"
        elif finding is not None:
            verdict, about = "changed", f"{finding.seen}; what was verified is another file"
        else:
            verdict, about = stored.proven.verdict, str(stored.proven)
        headers.append(header)
        notes.append(FileNote(str(path), size, verdict, about))
        records.append(stored)
    return headers, tuple(notes), records


def _subject(
    header: OnnxHeader, stored: StoredRecord | None, recipe: str | None, said: Overrides
) -> tuple[Subject, str]:
    if recipe is not None:
        return load_subject(recipe, said), "the recipe"
    return file_subject(header, stored, said), "the file alone" if stored is None else "the record"


def _jobs(
    headers: Sequence[OnnxHeader],
    subject: Subject,
    recipe: str | None,
    said: Overrides,
    wanted: BenchRequest,
    folder: Path,
) -> Iterator[tuple[ArmRow, dict[str, Any]]]:
    """Every arm with what its process is told. PyTorch comes first, so that it is what ratios are to."""
    every = wanted.threads or (cores(),)
    common = {"names": list(subject.input_names), "dtypes": [s.dtype for s in subject.spec], "points": str(folder)}
    if recipe is not None:
        overrides = {
            "inputs": list(said.inputs),
            "bounds": dict(said.bounds),
            "multiples": dict(said.multiples),
            "checkpoint": None if said.checkpoint is None else str(said.checkpoint),
            "trust": said.trust,
        }
        for engine, shown in (("eager", "PyTorch eager"), ("compile", "torch.compile")):
            for count in every:
                row = ArmRow(f"{shown}, {_threads(count)}", engine, count)
                yield row, {**common, "engine": engine, "threads": count, "recipe": recipe, "overrides": overrides}
    names = _short_names([header.path for header in headers])
    for header, name in zip(headers, names, strict=True):
        differs = _signature(header, subject)
        for level in wanted.levels:
            for count in wanted.threads or tuple(dict.fromkeys((cores(), 1))):
                shown = f"{name}, ONNX Runtime {level}, {_threads(count)}"
                row = ArmRow(shown, "ort", count, name, level, failure=differs)
                job = {"engine": "ort", "threads": count, "path": str(header.path.absolute()), "level": level}
                yield row, {**common, **job}
        for count in every if importlib.util.find_spec("openvino") else ():
            row = ArmRow(f"{name}, OpenVINO, {_threads(count)}", "openvino", count, name, failure=differs)
            yield row, {**common, "engine": "openvino", "threads": count, "path": str(header.path.absolute())}


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def _signature(header: OnnxHeader, subject: Subject) -> str | None:
    try:
        check_signature(header, subject)
    except UserError as error:
        return error.finding.seen
    return None


def _short_names(paths: Sequence[Path]) -> list[str]:
    """File names, with as many folders as it takes to tell them apart."""
    parts = [path.absolute().parts for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-depth:]) for one in parts]
        if len(set(names)) == len(set(parts)):
            break
    return names


@contextmanager
def _started(
    jobs: Sequence[tuple[ArmRow, dict[str, Any]]], points: Sequence[Point], wanted: BenchRequest, heard: Heard
) -> Iterator[list[_Runner]]:
    """The arms' processes, each opened and run once at the first point while no other is at work."""
    janitor = Janitor()
    runners: list[_Runner] = []
    try:
        for row, job in jobs:
            heard(("stage", f"opening {row.name}"))
            process = Apart(row.name, job, wanted.limits, janitor)
            runners.append(_opened(row, process, points))
        yield runners
    finally:
        for runner in runners:
            runner.process.close()
        janitor.dismiss()


def _opened(row: ArmRow, process: Apart, points: Sequence[Point]) -> _Runner:
    runner = _Runner(row, process, {})
    try:
        if row.failure is not None:
            raise Failed(row.failure)
        opened, before = process.open()
        runner.row = replace(row, open_seconds=opened, before_bytes=before)
    except Failed as error:
        runner.row = replace(row, failure=str(error))
        runner.failed = dict.fromkeys(range(len(points)), str(error))
        return runner
    _first(runner, 0, points)
    return runner


def _first(runner: _Runner, number: int, points: Sequence[Point]) -> None:
    """The first call at a point, alone: engines compile and allocate in it."""
    try:
        (seconds,) = runner.process.time(number, 1, 1)
        if number == 0:
            runner.row = replace(runner.row, first_seconds=seconds)
    except Failed as error:
        _fail(runner, number, points, str(error))


def _fail(runner: _Runner, number: int, points: Sequence[Point], why: str) -> None:
    """A process that is gone fails at every point from here on; one that only raised may do better at the next."""
    seen = f"at {show(points[number])}: {why}"
    if runner.process.gone:
        runner.failed.update(dict.fromkeys(range(number, len(points)), seen))
    runner.failed[number] = why
    runner.row = replace(runner.row, failure=runner.row.failure or seen)


def _at(
    runners: Sequence[_Runner], number: int, points: Sequence[Point], wanted: BenchRequest, heard: Heard
) -> AtPoint:
    """All arms at one point. Where one fails on the way, the others are timed again without it."""
    for runner in runners:
        if number and number not in runner.failed:
            _first(runner, number, points)
    while able := [r for r in runners if number not in r.failed]:
        heard(("count", number, len(points), "points", f"timing {len(able)} arms at {show(points[number])}"))
        try:
            timings = paired([r.process.arm(number) for r in able], seconds=wanted.seconds, seed=wanted.seed)
        except ArmFailed as error:
            lost = next(r for r in able if r.row.name == error.name)
            _fail(lost, number, points, str(error.__cause__))
            continue
        base = able[0].row.name
        return AtPoint(points[number], base, speeds_of(timings, base), _failures(runners, number))
    return AtPoint(points[number], "", (), _failures(runners, number))


def _failures(runners: Sequence[_Runner], number: int) -> dict[str, str]:
    return {r.row.name: r.failed[number] for r in runners if number in r.failed}


def _profiles(
    jobs: Sequence[tuple[ArmRow, dict[str, Any]]],
    at: Sequence[AtPoint],
    points: Sequence[Point],
    wanted: BenchRequest,
    folder: Path,
    heard: Heard,
) -> tuple[Profile, ...]:
    """Each file's operators at the last point, which is the largest unless told, with its first level and threads.

    There the profiler's own time matters least.
    """
    found = []
    number = len(points) - 1
    p50 = {speed.arm: speed.p50 for speed in at[number].speeds}
    seen: set[str | None] = set()
    janitor = Janitor()
    for row, job in jobs:
        if row.engine != "ort" or row.file in seen or row.name not in p50:
            continue
        seen.add(row.file)
        heard(("stage", f"profiling {row.file}"))
        calls = int(min(500, max(3, PROFILED / p50[row.name])))
        process = Apart(row.name, job, wanted.limits, janitor)
        try:
            prefix = folder / f"profile-{len(seen)}"
            events = process.profile(number, calls + max(1, calls // 5), str(prefix))
            ran, path = prefix.with_suffix(".onnx"), Path(job["path"])
            found.append(read_profile(events, ran, path, points[number], calls, p50[row.name]))
        except (Failed, OSError, ValueError) as error:
            why = f"could not be profiled: {error}"
            found.append(Profile(str(row.file), dict(points[number]), 0.0, (), note=why))
        finally:
            process.close()
    janitor.dismiss()
    return tuple(found)


def machine() -> dict[str, Any]:
    """Under which conditions: numbers of another machine, or of a busy one, are other numbers."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {"cpu": name, "cores": cores(), "load": round(os.getloadavg()[0], 2), "versions": versions()}
