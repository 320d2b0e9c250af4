"""A short run of every target of benchmarks/fuzz, from a fixed seed: only findings come out, and in time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "benchmarks/fuzz/run.py"
EXECUTIONS = 3000


@pytest.mark.slow
def test_nothing_but_findings_comes_out_of_any_target() -> None:
    command = [sys.executable, str(RUN), "--check", str(EXECUTIONS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert len([line for line in done.stdout.splitlines() if " executions, " in line]) == 7
