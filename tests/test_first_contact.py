"""The first things that a newcomer sees: names in the shell, a short repr, one line on another platform."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from torch import nn

import fairway


def test_a_result_is_short_in_a_shell(tmp_path: Path) -> None:
    path = tmp_path / "out.onnx"
    result = fairway.export(nn.Linear(3, 2).eval(), ["input: float32[batch, 3]"], path, level="none")
    assert repr(result) == f"<Result unproven {path}: FW506; print it for the evidence>"


def test_names_are_offered_before_they_are_loaded() -> None:
    assert set(fairway.__all__) <= set(dir(fairway))
    assert {"export", "observe", "UserError"} <= set(fairway.__all__)


def test_another_platform_is_named_in_one_line() -> None:
    program = "import sys; sys.platform = 'darwin'; import fairway"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    message = "ImportError: fairway runs on Linux only; this is darwin. Use a container or WSL."
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, message)
