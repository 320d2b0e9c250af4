"""Run the recipe in one environment, with this same Fairway, as a process with a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from fairway.debug.versions.environments import SOURCE_FOLDER, EnvironmentSpec, read_fairway_version
from fairway.diagnostics import Code, Finding
from fairway.diagnostics.render import make_printable
from fairway.record.reader import LARGEST_RECORD_BYTES, parse_printed
from fairway.record.schema import Record

NO_RESULT = "no result"
NO_ENVIRONMENT = "no environment"

_GRACE_SECONDS = 10.0
_MAX_MESSAGE_CHARS = 400


@dataclass(frozen=True)
class MatrixRow:
    """The result of a recipe in one environment."""

    requested: dict[str, str]
    verdict: str
    """One of Fairway's verdicts, or that there was no result or no environment."""
    route: str | None = None
    remedies: tuple[str, ...] = ()
    seconds: float = 0.0
    installed: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    """The first error, if it is not verified."""

    @property
    def is_verified(self) -> bool:
        return self.verdict == "verified"


@dataclass(frozen=True)
class RunSettings:
    """The settings of the run in every environment."""

    level: str = "standard"
    timeout: float = 600.0
    """Seconds for each attempt."""
    limit: float = 1800.0
    """Seconds for the whole run in one environment."""


def run_inside(python: Path, recipe: str, settings: RunSettings, environment: EnvironmentSpec) -> MatrixRow:
    """Run the recipe and read its record back. Whatever happens there becomes a row."""
    with TemporaryDirectory(prefix="fairway-matrix-") as name:
        folder = Path(name)
        # A link to Fairway alone: its parent folder may contain a whole environment, which must not be visible there.
        (folder / "source").mkdir()
        (folder / "source" / "fairway").symlink_to(SOURCE_FOLDER)
        command = [
            str(python),
            "-m",
            "fairway",
            "export",
            recipe,
            "-o",
            str(folder / "model.onnx"),
            "--json",
            "--level",
            settings.level,
            "--timeout",
            str(settings.timeout),
        ]
        started = time.monotonic()
        ending = _run_process(command, folder, settings.limit)
        seconds = round(time.monotonic() - started, 1)
        record = _read_record(folder / "out")
        pins = dict(environment.pins)
        if record is None:
            message = _read_tail(folder / "err")
            finding = Finding(
                Code.ENVIRONMENT_SILENT,
                f"{ending}. {message}".strip() if ending else message or "no record was printed",
            )
            return MatrixRow(pins, NO_RESULT, seconds=seconds, reason=f"{finding.code}: {finding.seen}")
    return _make_row(pins, record, seconds)


def _make_row(pins: dict[str, str], record: Record, seconds: float) -> MatrixRow:
    errors = [finding for finding in record.findings if finding.severity == "error"]
    return MatrixRow(
        requested=pins,
        verdict=record.verdict,
        route=record.route,
        remedies=tuple(remedy.name for remedy in record.remedies),
        seconds=seconds,
        installed={**record.versions, "fairway": read_fairway_version()} if record.versions else {},
        reason="" if record.is_verified or not errors else f"{errors[0].code}: {errors[0].seen}"[:_MAX_MESSAGE_CHARS],
    )


def _run_process(command: list[str], folder: Path, limit: float) -> str:
    """Run a process with its output in files; return how it ended if it was stopped or killed."""
    environment = {
        **{key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONHOME")},
        "PYTHONPATH": str(folder / "source"),
        "PYTHONNOUSERSITE": "1",
        "NO_COLOR": "1",
    }
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
            )
        except OSError as error:
            return f"{command[0]}: {error.strerror}"
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            return f"stopped after {limit:.0f} s"
        finally:
            _end_process(process)
    return f"signal {-code}" if code < 0 else ""


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """Ask the process to end, then kill it.

    Fairway ends its workers and cleans up its folders when asked. Its workers end with it in any case.
    """
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read_record(path: Path) -> Record | None:
    """Return the record that was printed, if any. The recipe is the user's own code and may have printed anything."""
    if path.stat().st_size > LARGEST_RECORD_BYTES:
        return None
    try:
        return parse_printed(path.read_bytes())
    except ValueError:
        return None


def _read_tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4 * _MAX_MESSAGE_CHARS))
        lines = make_printable(file.read().decode(errors="replace")).split("\n")
    return " ".join(line.strip() for line in lines if line.strip())[-_MAX_MESSAGE_CHARS:]
