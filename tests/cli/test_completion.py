"""Completion of words for shells. The scripts for bash, zsh, fish and PowerShell are typer's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .command_line import Fairway

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("export-", ["export-generation"]),
        ("export r.py --route ex", ["export-dynamic", "export-auto", "export-named"]),
        ("export r.py --lev", ["--level"]),
        ("quantize m.onnx --scheme int8", ["int8-dynamic", "int8-static"]),
        ("explain FW20", [f"FW20{n}" for n in range(1, 10)]),
        ("run m.onnx d.npy --stitch ", ["blend", "mean", "last"]),
        ("watch a", ["add"]),
    ],
)
def test_a_shell_is_offered_commands_options_and_values(folder: Path, line: str, offered: list[str]) -> None:
    words = f"fairway {line}"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "_FAIRWAY_COMPLETE": "complete_bash",
    }
    program = "import sys; sys.argv = ['fairway']; from fairway.cli import main; main()"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) >= set(offered)
    assert all(word.startswith(words.rsplit(" ", 1)[1]) for word in done.stdout.split())


def test_the_script_for_a_shell_is_printed(fairway: Fairway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: "bash")
    result = fairway("--show-completion")
    assert result.code == 0
    assert "_FAIRWAY_COMPLETE=complete_bash" in result.out
