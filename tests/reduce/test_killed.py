"""`kill -9` in the middle of a reduction: the best so far is there, and the same command continues from it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from fairway.debug.reduce.best_so_far import read_best_so_far
from fairway.debug.reduce.recorded_model import choose_distinct_sizes, record_model
from fairway.debug.reduce.trial_export import FailureSignature
from fairway.model.recipe import Overrides, load_subject

ROOT = Path(__file__).resolve().parents[2]

RECIPE = """\
import torch
import fairway


class Net(torch.nn.Module):
    def forward(self, x):
        x = x.tanh().sin()
        x = x + ((x * 9).long() // 4).float()  # dynamo=False rounds towards zero: pytorch/pytorch#78442
        return x.cos().abs().softmax(-1)


net = fairway.Recipe(Net, ["x: float32[batch, 8]"], bounds={"batch": (1, 4)})
"""


def test_kill_9_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text(RECIPE)
    folder = tmp_path / "small"
    command = [sys.executable, "-m", "fairway", "reduce", "recipe.py", "-o", str(folder)]
    command += ["--exporter", "trace", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    first = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    while not (folder / "repro.py").exists() and first.poll() is None:
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL, "it had ended before"
    assert "class Repro" in (folder / "repro.py").read_text(), "the best so far"
    full = record_model(choose_distinct_sizes(load_subject(str(tmp_path / "recipe.py"), Overrides()))).program
    kept = read_best_so_far(folder, full, "trace", FailureSignature("compare", "FW401", "numbers"))
    assert kept is not None, "another process knows it again"
    assert len(kept.calls) < len(full.calls)

    again = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert again.returncode == 1, again.stderr
    result = json.loads(again.stdout)
    assert (result["failure"], result["calls"], result["reproduced"]) == ("FW401 at compare: numbers", 1, True)
    assert sorted(path.name for path in folder.iterdir()) == ["report.md", "repro.py"]
