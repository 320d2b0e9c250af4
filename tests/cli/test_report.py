"""`fairway report` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .command_line import QUICK, Fairway


def test_a_file_is_exported_and_its_page_written_and_shown(
    fairway: Fairway, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fairway("export", "recipe.py", "-o", "m.onnx", *QUICK).code == 0
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: shown.append(url) or True)
    said = fairway("report", "m.onnx", "-o", "report.html", "--open")
    assert said.code == 0, said.err
    assert said.out.startswith("report.html  ")
    assert shown == [(folder / "report.html").as_uri()]
    page = (folder / "report.html").read_text()
    assert '"verdict":"verified"' in page
    (folder / "judged.json").write_text(fairway("verify", "m.onnx", "recipe.py", "--level", "quick", "--json").out)
    assert fairway("report", "judged.json", "-o", "judged.html").code == 0
    assert '"graph":{"opset"' in (folder / "judged.html").read_text()
    again = fairway("report", "m.onnx", "-o", "report.html")
    assert (again.code, again.err.split()[0]) == (2, "FW008")
    assert fairway("report", "m.onnx", "-o", "report.html", "--overwrite").code == 0


def test_what_cannot_be_drawn_has_its_code_and_leaves_nothing(fairway: Fairway, folder: Path) -> None:
    (folder / "bench.json").write_text(json.dumps({"arms": 1}))
    for words, code, name in (
        (("absent.onnx",), 3, "FW110"),
        (("bench.json",), 3, "FW115"),
        (("recipe.py",), 3, "FW110"),
    ):
        said = fairway("report", *words, "-o", "report.html")
        assert (said.code, said.err.split()[0]) == (code, name), said.err
    assert fairway("report", "absent.onnx", "-o", "no/report.html").err.split()[0] == "FW009"
    assert sorted(one.name for one in folder.iterdir()) == ["bench.json", "recipe.py"]


def test_a_page_is_drawn_without_torch(fairway: Fairway, folder: Path) -> None:
    assert fairway("export", "recipe.py", "-o", "m.onnx", *QUICK).code == 0
    program = (
        "import sys; sys.modules['torch'] = sys.modules['onnxruntime'] = None; "
        "sys.argv = ['fairway', 'report', 'm.onnx', '-o', 'r.html']; from fairway.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
