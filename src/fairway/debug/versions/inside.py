"""The recipe in one environment, by this same Fairway, as a process with a time limit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairway.debug.versions.environments import SOURCE, EnvironmentSpec, fairways_version
from fairway.diagnostics import Finding
from fairway.diagnostics.render import printable

VERDICTS = ("verified", "wrong", "unproven", "failed")
NOTHING = "no result"
NOWHERE = "no environment"

LARGEST = 64 * 2**20
"""Bytes of a record; what says more is no record."""

_GRACE_SECONDS = 10.0
_WORDS = 400


@dataclass(frozen=True)
class Row:
    """How a recipe came out in one environment."""

    wanted: dict[str, str]
    verdict: str
    """One of Fairway's verdicts, or that there was no result or no environment."""
    route: str | None = None
    remedies: tuple[str, ...] = ()
    seconds: float = 0.0
    installed: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    """The first error, where it is not verified."""

    @property
    def verified(self) -> bool:
        return self.verdict == "verified"


@dataclass(frozen=True)
class RunSettings:
    """How the recipe is run everywhere."""

    level: str = "standard"
    timeout: float = 600.0
    """Seconds of each attempt."""
    limit: float = 1800.0
    """Seconds of the whole run in one environment."""


def run_inside(python: Path, recipe: str, how: RunSettings, wanted: EnvironmentSpec) -> Row:
    """Runs the recipe and reads its record back. Whatever happens there is a row."""
    with TemporaryDirectory(prefix="fairway-matrix-") as name:
        folder = Path(name)
        # A link of its own: the folder that holds Fairway may hold a whole environment, which must not be seen there.
        (folder / "source").mkdir()
        (folder / "source" / "fairway").symlink_to(SOURCE)
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
            how.level,
            "--timeout",
            str(how.timeout),
        ]
        started = time.monotonic()
        ending = _run(command, folder, how.limit)
        seconds = round(time.monotonic() - started, 1)
        record = _record(folder / "out")
        pins = dict(wanted.pins)
        if record is None:
            said = _tail(folder / "err")
            finding = Finding("FW607", f"{ending}. {said}".strip() if ending else said or "no record was printed")
            return Row(pins, NOTHING, seconds=seconds, reason=f"{finding.code}: {finding.seen}")
    return _row(pins, record, seconds)


def _row(pins: dict[str, str], record: dict[str, Any], seconds: float) -> Row:
    errors = [f for f in record.get("findings", ()) if f.get("severity") == "error"]
    verified = record["verdict"] == "verified"
    told = record.get("versions", {})
    return Row(
        wanted=pins,
        verdict=record["verdict"],
        route=record.get("route"),
        remedies=tuple(remedy["name"] for remedy in record.get("remedies", ())),
        seconds=seconds,
        installed={**told, "fairway": fairways_version()} if told else {},
        reason="" if verified or not errors else f"{errors[0]['code']}: {errors[0]['seen']}"[:_WORDS],
    )


def _run(command: list[str], folder: Path, limit: float) -> str:
    """Runs a process with its output in files; answers how it ended where it did not end by itself."""
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
            _end(process)
    return f"signal {-code}" if code < 0 else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Politely first: Fairway ends its workers and sweeps its folders. Its workers die with it in any case."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _record(path: Path) -> dict[str, Any] | None:
    """What was printed, if it is a record. The recipe is the user's own code and may have printed anything."""
    if path.stat().st_size > LARGEST:
        return None
    try:
        record = json.loads(path.read_bytes())
    except ValueError:
        return None
    return record if isinstance(record, dict) and record.get("verdict") in VERDICTS else None


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4 * _WORDS))
        lines = printable(file.read().decode(errors="replace")).split("\n")
    return " ".join(line.strip() for line in lines if line.strip())[-_WORDS:]
