"""A whole run: every recording in a folder of its own, one after another or spread out, in the same bytes."""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass
from pathlib import Path

from fairway.deploy.run.parity import Eager
from fairway.deploy.run.recordings import find_recordings
from fairway.deploy.run.walk import SCRAPS, FinishedRecording, Progress, Walk, quiet
from fairway.deploy.run.window_engine import Engine
from fairway.deploy.run.windows import WindowSettings
from fairway.diagnostics.errors import complain
from fairway.model.onnx_file import check_room, open_header
from fairway.record.files import hash_file, versions
from fairway.record.reader import compare_with_record
from fairway.workers.fanout import HERE, Spreading, fan_out

ABOUT, DONE = "run.json", ".done.json"


@dataclass(frozen=True)
class Ran:
    """A whole run, in the folder of its outputs."""

    folder: Path
    recordings: tuple[FinishedRecording, ...]


@dataclass(frozen=True)
class RecordingTask:
    """One recording, wherever it is run: the paths must be the same there."""

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
    progress: Progress = quiet,
    spreading: Spreading = HERE,
) -> Ran:
    """Runs a file over recordings of any length; the folder `out` appears when all is done.

    Until then its contents lie in `out.part`, from which the same call goes on. Windows that the record does not speak
    of are refused unless `unverified` is said.
    """
    model, data, out, how = Path(model).absolute(), Path(data).absolute(), Path(out), how or WindowSettings()
    if out.exists():
        raise complain("FW008", str(out), todo=("Name a folder that does not exist yet: -o FOLDER.",))
    check_room(open_header(model))
    recordings = find_recordings(data)
    part = out.with_name(out.name + ".part")
    digest = hash_file(model)
    _load(model, digest, _told(how))  # what cannot be loaded, or asks for what the file has not, is said at once
    _begin(part, digest, recordings, how)
    several = data.is_dir() and data.suffix != ".zarr"
    folders = [(part / path.stem if several else part).absolute() for path in recordings]
    tasks = [
        RecordingTask(model, digest, path, folder, how, recipe, unverified)
        for path, folder in zip(recordings, folders, strict=True)
        if not (folder / DONE).exists()
    ]
    work = functools.partial(_walk, progress=progress) if spreading.alone else _walk
    for done, name in enumerate(fan_out(work, tasks, spreading), len(folders) - len(tasks) + 1):
        progress(("stage", f"{name}: {done} of {len(folders)} recordings"))
    walked = tuple(_read_done(folder / DONE) for folder in folders)
    for path in part.rglob(DONE):
        path.unlink()
    part.rename(out)
    return Ran(out, walked)


def _walk(task: RecordingTask, progress: Progress = quiet) -> str:
    """Runs one recording and leaves a note of it in its folder."""
    task.folder.mkdir(exist_ok=True)
    engine = _load(task.model, task.digest, _told(task.how))
    eager = None if task.recipe is None else Eager(task.recipe)
    verified = None if task.unverified else _bounds(task.model, engine.over)
    walked = Walk(engine, task.how, task.recording, task.folder, eager, progress).go(verified)
    (task.folder / DONE).write_text(json.dumps(dataclasses.asdict(walked)))
    return task.recording.name


@functools.lru_cache(maxsize=1)
def _load(model: Path, digest: str, told: str) -> Engine:
    """The file is loaded once in each process, not once for each recording; `digest` is there to tell files apart."""
    return Engine(model, open_header(model), WindowSettings(**json.loads(told)))


def _told(how: WindowSettings) -> str:
    return json.dumps(dataclasses.asdict(how), default=dict)


def _begin(part: Path, digest: str, recordings: list[Path], how: WindowSettings) -> None:
    """A new folder, or the one that the same run left; another run's is refused."""
    files = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in recordings]
    about = {"model": digest, "recordings": files, "how": dataclasses.asdict(how)}
    text = json.dumps({**about, "versions": versions()}, indent=1, default=dict) + "\n"
    try:
        part.mkdir(exist_ok=True)
        about_there = (part / ABOUT).read_text() if (part / ABOUT).exists() else None
        if about_there == text:
            return
        worth = [p for p in part.rglob("*") if p.suffix in (".npy", ".npz") and SCRAPS not in p.parts]
        if about_there is None or not worth:
            (part / ABOUT).write_text(text)
        else:
            raise complain("FW809", f"{part} was left by a run of another file, of other data or with other options")
    except OSError as error:
        raise complain("FW009", f"{part}: {error.strerror or error}") from error


def _read_done(path: Path) -> FinishedRecording:
    """A recording that was finished before the run was stopped."""
    told = json.loads(path.read_text())
    return FinishedRecording(**{**told, "outputs": {name: tuple(shape) for name, shape in told["outputs"].items()}})


def _bounds(model: Path, dim: str) -> tuple[int, int] | None:
    """Between which lengths the record says the file is verified; None where it says nothing."""
    stored, finding = compare_with_record(model)
    found = stored.proven.domain.get(dim) if stored is not None and finding is None else None
    return None if found is None else (found["low"], found["high"])
