"""On a real terminal there is colour unless NO_COLOR forbids it. Also: usage errors and bugs as JSON."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from .command_line import QUICK, Fairway

ROOT = Path(__file__).resolve().parents[2]


def on_a_terminal(folder: Path, *words: str, no_color: bool) -> tuple[str, int]:
    """What the command says to a terminal, and how it ends."""
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color"} | ({"NO_COLOR": "1"} if no_color else {})
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from fairway.cli import main; main()", *words]
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
def test_a_verdict_has_its_colour_unless_that_is_forbidden(folder: Path, no_color: bool) -> None:
    said, code = on_a_terminal(folder, "export", "recipe.py", "-o", "out.onnx", *QUICK, no_color=no_color)
    assert code == 0
    assert ("\x1b[1;32mverified\x1b[0m" in said) is not no_color
    assert "verified" in said
    assert ("\x1b[1;" in said or "\x1b[3" in said) is not no_color, "the line of progress may be wiped, not coloured"


@pytest.mark.parametrize("words", [("exprot",), ("export",), ("-h",), ("explain", "FW001"), ("explain", "--list")])
def test_nothing_else_is_coloured_where_that_is_forbidden(folder: Path, words: tuple[str, ...]) -> None:
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
        (("reduce", "recipe.py", "--json", "--timeout", "soon"), "Invalid value for '--timeout': "),
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

    monkeypatch.setattr("fairway.reduce.reduce.reduce_subject", broken)
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
    monkeypatch.setattr("fairway.reduce.reduce.reduce_subject", lambda *args: None)
    said = fairway("reduce", "recipe.py", "--json")
    assert json.loads(said.out)["failure"] is None
    assert said.code == 0
