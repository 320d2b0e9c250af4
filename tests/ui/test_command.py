"""`fairway ui` as a process: it prints where it is, sees a real export climb, and ends at Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAIRWAY = [sys.executable, "-m", "fairway"]
RECIPE = """\
import time

import torch
import fairway


class Net(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.01)
        return torch.relu(x) + 1


net = fairway.Recipe(Net, ["x: float32[batch, 3]"], bounds={"batch": (1, 16)})
"""


def start(*words: str, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        [*FAIRWAY, *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a suite in the background ignores Ctrl-C
    )


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    server = start("ui", ".", folder=tmp_path)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=20)
    finally:
        server.kill()
    assert (server.returncode, out) == (0, "")
    assert "Traceback" not in err


def test_an_export_is_seen_while_it_climbs_and_its_record_afterwards(address: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text(RECIPE)
    export = start("export", "recipe.py", "-o", "net.onnx", "--route", "trace", folder=tmp_path)
    seen = []
    while export.poll() is None:
        seen += json.loads(urlopen(f"{address}shelf").read())["running"]
        time.sleep(0.05)
    assert export.returncode == 0
    assert {one["target"] for one in seen} == {"net.onnx"}
    assert {one["model"] for one in seen} == {"net"}
    assert all(one["alive"] for one in seen)
    assert "trace" in {one["route"] for one in seen}
    assert max(one["count"]["done"] for one in seen if one["count"]) > 0, "samples are counted"
    after = json.loads(urlopen(f"{address}shelf").read())
    assert after["running"] == []
    assert [(row["place"], row["verdict"], row["file"]) for row in after["records"]] == [
        ("net.onnx", "verified", "as recorded")
    ]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    refused = start("ui", "nowhere", folder=tmp_path)
    _, err = refused.communicate(timeout=20)
    assert refused.returncode == 2
    assert "FW006" in err
    assert "FOLDER: expected a folder, got nowhere" in err
