"""What comes after cutting: the script on its own, what the failure is not, and the time that these take."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fairway.debug.reduce.program import Program
from fairway.debug.reduce.reproducer import write_script
from fairway.debug.reduce.trial_export import EXPORTERS, Seen, TrialRunner, failed_script

LOADING = 10.0
"""Seconds until a fresh Python has torch and onnxruntime, on a busy machine."""


class Clock:
    """How long there is for cutting, so that what comes after it ends in time too."""

    def __init__(self, budget: float, limit: float) -> None:
        self.started = time.monotonic()
        self.limit = limit
        self.last = 0.0
        """Seconds that the last trial took which was a step forward; those to come take about as long."""
        self._budget = budget

    @property
    def left(self) -> float:
        return self.started + self._budget - time.monotonic()

    @property
    def generous(self) -> float:
        """A limit for a trial of everything: cut off too early, it would be taken for one that does not end."""
        return max(self.limit, min(3 * self.limit, self.left / 2))

    def enough(self) -> bool:
        """To come are: all numbers drawn, the script in a Python that has to load torch first, two for the report."""
        closing = min(self._budget / 3, LOADING + 5 * self.last)
        return self.left < closing


def checks(program: Program, exporter: str, check: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "repro.py"
        path.write_text(write_script(program, exporter, "a candidate"))
        done = subprocess.run([*shlex.split(check), str(path)], cwd=folder, capture_output=True)
        return done.returncode == 0


def runs_alone(script: str, seen: Seen, check: str | None, clock: Clock) -> bool:
    """The script in a Python of its own, outside the user's folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "repro.py"
        path.write_text(script)
        if check is not None:
            return subprocess.run([*shlex.split(check), str(path)], cwd=folder, capture_output=True).returncode == 0
        try:
            clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            seconds = max(clock.left, clock.limit + LOADING)  # else what was cut down would stay unproven
            done = subprocess.run(
                [sys.executable, str(path)], cwd=folder, capture_output=True, text=True, timeout=seconds, env=clean
            )
        except subprocess.TimeoutExpired:
            return seen.signature is not None and seen.signature.stage == "time"
        return failed_script(done.returncode, done.stderr, seen)


def rule_out(program: Program, bench: TrialRunner, seen: Seen, clock: Clock) -> dict[str, str]:
    """What the failure is not, each tried while there is time."""
    found = {"PyTorch itself": "runs the same module at the same inputs"}
    other = next(name for name in EXPORTERS if name != bench.exporter)
    trials = {
        f"the other exporter (dynamo={other == 'dynamo'})": (other, program),
        "all sizes fixed": (bench.exporter, program.closed()),
    }
    for what, (exporter, part) in trials.items():
        seconds = min(clock.limit, clock.left)
        seen_there = TrialRunner(exporter, seconds)(part) if seconds > 0 else Seen(None, "not tried: the time was up")
        found[what] = _outcome(seen_there, seen)
    return found


def _outcome(said: Seen, seen: Seen) -> str:
    if said.signature is None:
        return "right" if said.said == "right" else said.said
    same = "fails in the same way" if said.signature == seen.signature else "fails otherwise"
    return f"{same}: {' '.join(said.said.split())[:160]}"
