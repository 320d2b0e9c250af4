"""On a real terminal: color unless NO_COLOR forbids it, progress, narrow windows. Also: errors and bugs as JSON."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from fairway.diagnostics import columns
from fairway.diagnostics.render import format_markdown_table

from .command_line import QUICK, Fairway

ROOT = Path(__file__).resolve().parents[2]


SLOW = """\
import time

import torch
import fairway


time.sleep(2)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 4)

    def forward(self, x):
        time.sleep(0.03)
        return torch.relu(self.fc(x)), self.fc(x).sum()


net = fairway.Recipe(Net, ["x: float32[batch, 3]"], bounds={"batch": (1, 16)}, output_names=["activations", "total"])
"""


def on_a_terminal(folder: Path, *words: str, no_color: bool = False, columns: int = 80) -> tuple[str, int]:
    """Run a command on a terminal and return its output and exit code."""
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color"} | ({"NO_COLOR": "1"} if no_color else {})
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "fairway", *words]
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        while select.select([ours], [], [], 120)[0]:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux says so that the other side was closed
                break
            if not part:
                break
            said += part
    os.close(ours)
    return said.decode(), process.returncode


@pytest.mark.parametrize("no_color", [False, True])
def test_a_verdict_has_its_color_unless_that_is_forbidden(folder: Path, no_color: bool) -> None:
    said, code = on_a_terminal(folder, "export", "recipe.py", "-o", "out.onnx", *QUICK, no_color=no_color)
    assert code == 0
    assert ("\x1b[1;32mverified\x1b[0m" in said) is not no_color
    assert "verified" in said
    assert ("\x1b[1;" in said or "\x1b[3" in said) is not no_color, "the line of progress may be wiped, not colored"


def test_a_narrow_terminal_shows_progress_and_a_result_that_fit_into_it(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW)
    words = ("export", "slow.py", "-o", "slow.onnx", "--route", "trace")
    said, code = on_a_terminal(folder, *words, no_color=True, columns=40)
    assert code == 0
    loading, *told, result = said.split("\r\x1b[2K")
    assert loading == "loading torch and the model"
    assert all(len(line) < 40 for line in told)
    assert re.search(r"^ +\d+ s  trace  \d+/\d+ samples  \d+ s left$", "\n".join(told), re.MULTILINE)
    lines = result.splitlines()
    assert lines[0].startswith("verified  slow.onnx")
    assert [line for line in lines if len(line) > 40] == []
    at = lines.index("            activations")
    assert [line.split()[:2] for line in lines[at + 1 : at + 4]] == [
        ["of", "allowed"],
        ["file's", "error"],
        ["PyTorch's", "own"],
    ]
    assert re.search(r"ladder +trace: verified, [\d.]+ s,", result)


def test_a_pipe_gets_no_progress_and_a_fixed_width(fairway: Fairway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("fairway.cli.show._QUIET_SECONDS", 0.0)
    said = fairway("export", "recipe.py", "-o", "out.onnx", *QUICK)
    assert (said.code, said.err) == (0, "")
    assert "output  of allowed  file's error  PyTorch's own" in said.out
    assert "\x1b" not in said.out


@pytest.mark.parametrize("words", [("exprot",), ("export",), ("-h",), ("explain", "FW001"), ("explain", "--list")])
def test_nothing_is_colored_if_that_is_forbidden(folder: Path, words: tuple[str, ...]) -> None:
    said, code = on_a_terminal(folder, *words, no_color=True)
    assert said.strip()
    assert "\x1b" not in said
    assert code in (0, 2)


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (("export", "recipe.py", "--json"), "Missing option '--output' / '-o'."),
        (("reduce", "--json"), "Missing argument 'RECIPE'."),
        (("exprot", "--json"), "No such command 'exprot'."),
        (("reduce", "recipe.py", "--json", "--lvl", "quick"), "No such option: --lvl"),
        (("sensitivity", "m.onnx", "--json", "--jobs", "many"), "Invalid value for '--jobs': "),
    ],
)
def test_with_json_a_usage_error_is_json_too(fairway: Fairway, words: tuple[str, ...], seen: str) -> None:
    said = fairway(*words)
    answer = json.loads(said.out)
    assert answer["verdict"] == "failed"
    (finding,) = answer["findings"]
    assert finding["code"] == "FW025"
    assert finding["seen"].startswith(seen)
    assert said.err == ""
    assert said.code == 2


@pytest.mark.parametrize("as_json", [False, True])
def test_a_bug_in_reduce_ends_with_4(fairway: Fairway, monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("a promise of ours")

    monkeypatch.setattr("fairway.debug.reduce.reduce.reduce_subject", broken)
    said = fairway("reduce", "recipe.py", *(["--json"] if as_json else []))
    assert said.code == 4
    if as_json:
        (finding,) = json.loads(said.out)["findings"]
        assert finding["code"] == "FW901"
        assert "RuntimeError: a promise of ours" in finding["seen"]
    else:
        assert said.err.startswith("FW901 error: Fairway has a bug")
        assert said.out == ""


def test_nothing_to_reduce_is_json_too(fairway: Fairway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairway.debug.reduce.reduce.reduce_subject", lambda *args: None)
    said = fairway("reduce", "recipe.py", "--json")
    assert json.loads(said.out)["failure"] is None
    assert said.code == 0


@pytest.mark.parametrize("wide", [None, 120, 40])
def test_a_markdown_table_is_stacked_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, wide: int | None) -> None:
    monkeypatch.setattr(columns, "get_terminal_columns", lambda: wide)
    lines = format_markdown_table(
        [["torch", "verdict", "why"], ["2.9.1", "wrong", "a | b, " * 6], ["2.13.0", "verified", ""]]
    )
    if wide == 40:
        assert lines[:2] == ["2.9.1", "  verdict wrong"]
        assert lines[3:] == ["2.13.0", "  verdict verified"]
    else:
        assert lines[:2] == ["| torch | verdict | why |", "|---|---|---|"]
        assert lines[2].count("\\|") == 6
        assert len(lines) == 4
