"""Run a file on recordings, each in a separate folder, in this process or in several, with the same output."""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass
from pathlib import Path

from fairway.deploy.run.parity import EagerComparison
from fairway.deploy.run.recordings import find_recordings
from fairway.deploy.run.walk import SCRAPS_FOLDER, FinishedRecording, Walk
from fairway.deploy.run.window_engine import Engine
from fairway.deploy.run.windows import WindowSettings
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.onnx_file import open_header, open_model
from fairway.record.files import hash_file, read_versions
from fairway.record.progress import EventSink, StageStarted, ignore_event
from fairway.record.reader import compare_with_record
from fairway.workers.fanout import IN_PROCESS, Parallelism, fan_out

ABOUT_FILE, DONE_FILE = "run.json", ".done.json"


@dataclass(frozen=True)
class FinishedRun:
    """A finished run: the folder of its outputs, and its recordings."""

    folder: Path
    recordings: tuple[FinishedRecording, ...]


@dataclass(frozen=True)
class RecordingTask:
    """One recording to run, perhaps on another machine, where the paths must be the same."""

    model: Path
    digest: str
    recording: Path
    folder: Path
    how: WindowSettings
    recipe: str | None
    unverified: bool


def run(
    model: str | Path,
    data: str | Path,
    out: str | Path,
    how: WindowSettings | None = None,
    recipe: str | None = None,
    unverified: bool = False,
    on_event: EventSink = ignore_event,
    spreading: Parallelism = IN_PROCESS,
) -> FinishedRun:
    """Run a file on recordings of any length. The folder `out` appears when all are finished.

    Until then its contents are in `out.part`, and the same call continues from there. Windows outside the verified
    domain are refused unless `unverified` is true.
    """
    model, data, out, how = Path(model).absolute(), Path(data).absolute(), Path(out), how or WindowSettings()
    if out.exists():
        raise complain(Code.FILE_EXISTS, str(out), todo=("Name a folder that does not exist yet: -o FOLDER.",))
    open_model(model)
    recordings = find_recordings(data)
    part = out.with_name(out.name + ".part")
    digest = hash_file(model)
    _load_engine(model, digest, _format_settings(how))  # fails at once if the options do not fit the file
    _prepare_folder(part, digest, recordings, how)
    several = data.is_dir() and data.suffix != ".zarr"
    folders = [(part / path.stem if several else part).absolute() for path in recordings]
    tasks = [
        RecordingTask(model, digest, path, folder, how, recipe, unverified)
        for path, folder in zip(recordings, folders, strict=True)
        if not (folder / DONE_FILE).exists()
    ]
    work = functools.partial(_run_recording, on_event=on_event) if spreading.is_in_process else _run_recording
    for done, name in enumerate(fan_out(work, tasks, spreading), len(folders) - len(tasks) + 1):
        on_event(StageStarted(f"{name}: {done} of {len(folders)} recordings"))
    walked = tuple(_read_done(folder / DONE_FILE) for folder in folders)
    for path in part.rglob(DONE_FILE):
        path.unlink()
    part.rename(out)
    return FinishedRun(out, walked)


def _run_recording(task: RecordingTask, on_event: EventSink = ignore_event) -> str:
    """Run one recording and store the result in its folder."""
    task.folder.mkdir(exist_ok=True)
    engine = _load_engine(task.model, task.digest, _format_settings(task.how))
    eager = None if task.recipe is None else EagerComparison(task.recipe)
    verified = None if task.unverified else _read_verified_lengths(task.model, engine.over)
    walked = Walk(engine, task.how, task.recording, task.folder, eager, on_event).go(verified)
    (task.folder / DONE_FILE).write_text(json.dumps(dataclasses.asdict(walked)))
    return task.recording.name


@functools.lru_cache(maxsize=1)
def _load_engine(model: Path, digest: str, settings: str) -> Engine:
    """Load the file, once in each process. `digest` tells files apart."""
    return Engine(model, open_header(model), WindowSettings(**json.loads(settings)))


def _format_settings(how: WindowSettings) -> str:
    return json.dumps(dataclasses.asdict(how), default=dict)


def _prepare_folder(part: Path, digest: str, recordings: list[Path], how: WindowSettings) -> None:
    """Make the folder of the run or continue in the existing one. That of another run is refused."""
    files = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in recordings]
    description = {"model": digest, "recordings": files, "how": dataclasses.asdict(how)}
    text = json.dumps({**description, "versions": read_versions()}, indent=1, default=dict) + "\n"
    try:
        part.mkdir(exist_ok=True)
        existing = (part / ABOUT_FILE).read_text() if (part / ABOUT_FILE).exists() else None
        if existing == text:
            return
        outputs = [p for p in part.rglob("*") if p.suffix in (".npy", ".npz") and SCRAPS_FOLDER not in p.parts]
        if existing is None or not outputs:
            (part / ABOUT_FILE).write_text(text)
        else:
            raise complain(
                Code.PART_OF_ANOTHER_RUN, f"{part} is from a run of another file, of other data or with other options"
            )
    except OSError as error:
        raise complain(Code.CANNOT_WRITE, f"{part}: {error.strerror or error}") from error


def _read_done(path: Path) -> FinishedRecording:
    """Read the result of a recording that was finished before the run was stopped."""
    content = json.loads(path.read_text())
    return FinishedRecording(
        **{**content, "outputs": {name: tuple(shape) for name, shape in content["outputs"].items()}}
    )


def _read_verified_lengths(model: Path, dim: str) -> tuple[int, int] | None:
    """Return the shortest and the longest verified window, or None if the record names none."""
    stored, finding = compare_with_record(model)
    bounds = stored.subject.domain.get(dim) if stored is not None and finding is None else None
    return None if bounds is None else (bounds.low, bounds.high)
