"""`fairway run`, as it is called: its table, its refusals, the extra it names."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairway.cli import main
from fairway.record.files import get_record_path, hash_file

from .models import moving_sum

RECIPE = """\
import torch
import fairway


class Sum(torch.nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return (x[:, :-2] + x[:, 1:-1] + x[:, 2:]) * self.scale


right = fairway.Recipe(Sum, ["x: float32[batch, time, 2]"], bounds={"batch": (1, 8), "time": (3, 50)})
wrong = fairway.Recipe(lambda: Sum(2.0), ["x: float32[batch, time, 2]"], bounds={"batch": (1, 8), "time": (3, 50)})
"""


@pytest.fixture
def fairway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)
    moving_sum(tmp_path)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((40, 2), dtype=np.float32))
    (tmp_path / "recipe.py").write_text(RECIPE)

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fairway", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call


def test_the_cut_and_the_outputs_are_told(fairway: Any) -> None:
    code, out, err = fairway("run", "sum.onnx", "x.npy", "-o", "out", "--window", "10", "--overlap", "4")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "ran  out"
    assert lines[1].startswith("  x.npy  40 samples, 6 windows of 10, step 6, ")
    assert lines[2] == "    y  [38, 2]"


def test_the_difference_to_pytorch_is_a_table_by_window(fairway: Any) -> None:
    _, out, _ = fairway("run", "sum.onnx", "x.npy", "-o", "out", "--window", "10", "--recipe", "recipe.py:right")
    *_, title, blank, head, rule, row = out.splitlines()
    assert (title, blank, head, rule) == (
        "largest difference to PyTorch",
        "",
        "| recording | window | y |",
        "|---|---|---|",
    )
    assert row.startswith("| x.npy | 10 | ")
    assert float(row.split("|")[3]) < 1e-5
    done = json.loads(fairway("run", "sum.onnx", "x.npy", "-o", "b", "--recipe", "recipe.py:wrong", "--json")[1])
    assert done["recordings"][0]["difference"]["y"] > 0.5


def test_a_window_beyond_what_was_verified_needs_the_word(fairway: Any, tmp_path: Path) -> None:
    model = tmp_path / "sum.onnx"
    record = {
        "format": 2,
        "verdict": "verified",
        "route": "trace",
        "remedies": [],
        "evidence": None,
        "versions": {},
        "subject": {"sha256": "ab" * 32, "domain": {"time": {"low": 3, "high": 12, "multiple": 1}}},
        "file": {"name": model.name, "sha256": hash_file(model)},
    }
    get_record_path(model).write_text(json.dumps(record))
    code, _, err = fairway("run", "sum.onnx", "x.npy", "-o", "out", "--window", "13")
    assert code == 1
    assert "a window has 13 samples; the file is verified for time 3..12" in err
    assert fairway("run", "sum.onnx", "x.npy", "-o", "out", "--window", "12")[0] == 0
    assert fairway("run", "sum.onnx", "x.npy", "-o", "more", "--window", "13", "--unverified")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--tail", "wag"),
        ("--stitch", "sew"),
        ("--window", "0"),
        ("--overlap", "3"),
        ("--carry", "h0"),
        ("--window", "9", "--overlap", "3", "--step", "2"),
        ("--carry", "a=b"),
        ("--over", "space"),
    ],
)
def test_options_that_make_no_sense_are_refused(fairway: Any, words: tuple[str, ...]) -> None:
    code, _, err = fairway("run", "sum.onnx", "x.npy", "-o", "out", *words)
    assert code == 2
    assert err.startswith("FW006 error:")


@pytest.mark.parametrize(("name", "package"), [("x.parquet", "pyarrow"), ("x.zarr", "zarr")])
def test_without_the_extra_its_name_is_told(
    fairway: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr("fairway.diagnostics.extras.find_spec", lambda asked: None if asked == package else real(asked))
    (tmp_path / name).touch()
    code, _, err = fairway("run", "sum.onnx", name, "-o", "out")
    assert code == 2
    assert f"{name} needs {package}" in err
    assert "pip install 'fairway-onnx[run]'" in err
