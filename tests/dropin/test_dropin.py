"""Scripts that call torch.onnx.export run unchanged; their files are checked, and a wrong one gets a repaired one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RIGHT = """
import sys
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x).relu()

model = Net().eval()
batch = torch.export.Dim("batch", min=1, max=9)
program = torch.onnx.export(
    model, (torch.randn(4, 3),), "right.onnx", dynamic_shapes={"x": {0: batch}}, input_names=["data"], verbose=False
)
print(type(program).__name__, sys.argv[1:])
"""

WRONG = """
import torch

class Loop(torch.nn.Module):
    def forward(self, x):
        total = torch.zeros_like(x[:, 0])
        for i in range(x.shape[1]):
            total = total * 0.5 + x[:, i]
        return total

torch.onnx.export(
    Loop(), torch.randn(2, 5), "wrong.onnx", dynamo=False, input_names=["x"], output_names=["y"],
    dynamic_axes={"x": {0: "batch", 1: "time"}, "y": {0: "batch"}},
)
print("the script goes on")
"""

SAVED = """
import torch

program = torch.onnx.export(torch.nn.Linear(3, 2).eval(), (torch.randn(4, 3),), verbose=False)
program.save("saved.onnx")
"""

REFUSED = """
import torch

class Branch(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = x + 1
        return x

try:
    torch.onnx.export(Branch(), (torch.randn(2, 3),), "refused.onnx", verbose=False)
except Exception as error:
    print(type(error).__name__)
    raise SystemExit(7)
"""


def run(folder: Path, text: str, *words: str) -> tuple[int, str, str]:
    """Run a script in the folder, and return its exit code and both outputs."""
    (folder / "export.py").write_text(text)
    environment = {**os.environ, "FAIRWAY_LEVEL": "quick", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    return done.returncode, done.stdout, "".join(line for line in done.stderr.splitlines(True) if "fairway: " in line)


SCRIPT = ("-m", "fairway", "script", "--level", "quick", "export.py")


def test_a_right_file_is_left_byte_for_byte(tmp_path: Path) -> None:
    plain = run(tmp_path, RIGHT, "export.py", "--size", "3")
    before = (tmp_path / "right.onnx").read_bytes()
    checked = run(tmp_path, RIGHT, *SCRIPT, "--size", "3")
    assert plain[:2] == checked[:2] == (0, "ONNXProgram ['--size', '3']\n")
    assert checked[2] == "fairway: right.onnx is verified for batch 1..9\n"
    assert (tmp_path / "right.onnx").read_bytes() == before
    record = json.loads((tmp_path / "right.fairway.json").read_text())
    assert (record["verdict"], record["subject"]["inputs"]) == ("verified", ["data: float32[batch, 3]"])
    assert not (tmp_path / "right.fairway.onnx").exists()


def test_a_wrong_file_gets_a_repaired_one_and_exit_code_1(tmp_path: Path) -> None:
    code, out, said = run(tmp_path, WRONG, *SCRIPT)
    assert (code, out) == (1, "the script goes on\n")
    lines = said.splitlines()
    assert lines[0] == "fairway: wrong.onnx is wrong for batch 1..64, time 1..64"
    assert lines[1].startswith("fairway:   FW206 A Python loop is unrolled to the example's length: ")
    assert lines[-1] == "fairway: wrong.fairway.onnx is a repaired file, verified"
    record = json.loads((tmp_path / "wrong.fairway.fairway.json").read_text())
    assert (record["verdict"], record["file"]["name"]) == ("verified", "wrong.fairway.onnx")


def test_one_import_checks_a_script_too(tmp_path: Path) -> None:
    code, out, said = run(tmp_path, "import fairway.dropin\n" + WRONG, "export.py")
    assert (code, out) == (1, "the script goes on\n")
    assert said.splitlines()[0] == "fairway: wrong.onnx is wrong for batch 1..64, time 1..64"


def test_a_program_is_checked_when_it_is_saved(tmp_path: Path) -> None:
    code, _, said = run(tmp_path, SAVED, *SCRIPT)
    assert (code, said) == (0, "fairway: saved.onnx is verified for one fixed shape\n")


def test_an_error_of_torch_stays_and_a_file_is_offered(tmp_path: Path) -> None:
    plain = run(tmp_path, REFUSED, "export.py")
    assert plain[0] == 7
    code, out, said = run(tmp_path, REFUSED, *SCRIPT)
    assert (code, out) == plain[:2]
    assert said.splitlines() == [
        "fairway: torch.onnx.export failed; the error follows",
        "fairway: refused.fairway.onnx is a repaired file, verified",
    ]


def test_what_cannot_be_checked_is_said_and_changes_nothing(tmp_path: Path) -> None:
    text = SAVED.replace('"saved.onnx"', '"saved.bin"')
    code, _, said = run(tmp_path, text, *SCRIPT)
    assert code == 0
    assert said.splitlines() == [
        "fairway: saved.bin was not checked: FW110 The file is not a readable ONNX model: saved.bin does not end in "
        ".onnx; runtimes choose the format by the ending",
        "fairway:   do: Name it something.onnx.",
    ]


def test_a_missing_script_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fairway", "script", "nosuch.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "there is no script 'nosuch.py'" in done.stderr


@pytest.mark.parametrize("code", [None, 3])
def test_the_scripts_own_exit_code_is_kept(code: int | None, tmp_path: Path) -> None:
    assert run(tmp_path, f"raise SystemExit({code})", *SCRIPT)[0] == (code or 0)
