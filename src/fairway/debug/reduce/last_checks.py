"""The steps after cutting: run the script alone and rule out other causes, in time reserved for both."""

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
from fairway.debug.reduce.trial_export import EXPORTERS, TrialOutcome, TrialRunner, is_same_failure

PYTHON_START_SECONDS = 10.0
"""Until a new Python process has imported torch and onnxruntime, on a busy machine."""


class TimeBudget:
    """Divides the time between cutting and the steps after it."""

    def __init__(self, budget: float, limit: float) -> None:
        self.started = time.monotonic()
        self.limit = limit
        self.last_trial_seconds = 0.0
        """Seconds of the last successful trial; later ones take about as long."""
        self._budget = budget

    @property
    def seconds_left(self) -> float:
        return self.started + self._budget - time.monotonic()

    @property
    def generous_limit(self) -> float:
        """The limit for a trial of the whole model, long enough not to take a slow model for an endless one."""
        return max(self.limit, min(3 * self.limit, self.seconds_left / 2))

    def is_used_up(self) -> bool:
        """Return whether cutting must stop.

        Still to come are a trial with random numbers, the script in a new Python that must import torch, and two trials
        for the report.
        """
        closing = min(self._budget / 3, PYTHON_START_SECONDS + 5 * self.last_trial_seconds)
        return self.seconds_left < closing


def passes_check(program: Program, exporter: str, check: str) -> bool:
    """Return whether the user's command accepts the program's script."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "repro.py"
        path.write_text(write_script(program, exporter, "a candidate"))
        done = subprocess.run([*shlex.split(check), str(path)], cwd=folder, capture_output=True)
        return done.returncode == 0


def fails_alone(script: str, failure: TrialOutcome, check: str | None, clock: TimeBudget) -> bool:
    """Run the script in a separate Python, outside the user's folder; return whether it fails in the same way."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "repro.py"
        path.write_text(script)
        if check is not None:
            return subprocess.run([*shlex.split(check), str(path)], cwd=folder, capture_output=True).returncode == 0
        try:
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            # A script that is stopped early proves nothing.
            seconds = max(clock.seconds_left, clock.limit + PYTHON_START_SECONDS)
            done = subprocess.run(
                [sys.executable, str(path)],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=seconds,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            return failure.signature is not None and failure.signature.stage == "time"
        return is_same_failure(done.returncode, done.stderr, failure)


def rule_out(program: Program, runner: TrialRunner, seen: TrialOutcome, clock: TimeBudget) -> dict[str, str]:
    """Try other causes of the failure while there is time, and describe each result."""
    results = {"PyTorch itself": "runs the same module at the same inputs"}
    other = next(name for name in EXPORTERS if name != runner.exporter)
    trials = {
        f"the other exporter (dynamo={other == 'dynamo'})": (other, program),
        "all sizes fixed": (runner.exporter, program.with_fixed_sizes()),
    }
    for cause, (exporter, candidate) in trials.items():
        seconds = min(clock.limit, clock.seconds_left)
        outcome = TrialOutcome(None, "not tried: the time was up")
        if seconds > 0:
            outcome = TrialRunner(exporter, seconds)(candidate)
        results[cause] = _describe_outcome(outcome, seen)
    return results


def _describe_outcome(outcome: TrialOutcome, seen: TrialOutcome) -> str:
    if outcome.signature is None:
        return "right" if outcome.message == "right" else outcome.message
    same = "fails in the same way" if outcome.signature == seen.signature else "fails in another way"
    return f"{same}: {' '.join(outcome.message.split())[:160]}"
