"""Output of verify, inspect and explain for hostile files."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from cli.command_line import QUICK, Fairway

EXPORT = ("export", "recipe.py", "-o", "out.onnx", *QUICK)
VERIFY = ("verify", "out.onnx", "recipe.py", "--level", "quick")


def touch(path: Path) -> None:
    model = onnx.load(path)
    model.doc_string = "touched"
    onnx.save(model, path)


@pytest.mark.usefixtures("fixed_weights")
def test_verify_names_a_change_since_the_record_and_still_judges(fairway: Fairway, folder: Path) -> None:
    fairway(*EXPORT)
    clean = fairway(*VERIFY)
    assert "FW11" not in clean.out
    touch(folder / "out.onnx")
    said = fairway(*VERIFY)
    assert said.code == 0
    assert said.out.startswith("verified  out.onnx")
    assert said.out[said.out.index("FW116") :].splitlines()[:2] == [
        "FW116 warning: The record beside the file belongs to another file",
        "  seen      out.onnx is not the file that out.fairway.json is about: its sha256 differs",
    ]
    record = json.loads(fairway(*VERIFY, "--json").out)
    assert [f["code"] for f in record["findings"]] == ["FW116"]


@pytest.fixture
def fixed_weights(folder: Path) -> None:
    """Seed the recipe, which otherwise draws new weights each time it is loaded."""
    text = (folder / "recipe.py").read_text()
    (folder / "recipe.py").write_text(text.replace("super().__init__()", "super().__init__(); torch.manual_seed(0)"))


@pytest.mark.usefixtures("fixed_weights")
def test_a_damaged_record_is_said_and_does_not_stand_in_the_way(fairway: Fairway, folder: Path) -> None:
    fairway(*EXPORT)
    (folder / "out.fairway.json").write_bytes(b"[" * 10**6)
    said = fairway(*VERIFY)
    assert said.code == 0
    assert "FW115 warning: The record beside the file cannot be used" in said.out
    shown = fairway("inspect", "out.onnx")
    assert shown.code == 0
    assert "            FW115: out.fairway.json: it is nested too deeply" in shown.out.splitlines()


def test_inspect_shows_what_the_record_beside_says_where_that_differs(fairway: Fairway, folder: Path) -> None:
    fairway(*EXPORT)
    record = json.loads((folder / "out.fairway.json").read_text())
    (folder / "out.fairway.json").write_text(json.dumps({**record, "verdict": "unproven"}))
    assert "  beside    unproven for batch 1..16; 4 samples, level quick" in fairway("inspect", "out.onnx").out


def bomb(path: Path) -> None:
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [10**9, 10**9])
    node = helper.make_node("ConstantOfShape", ["shape"], ["y"], name="n")
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [value], [out], [shape])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())


def test_a_bomb_never_reaches_the_judge(fairway: Fairway, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb(folder / "out.onnx")
    monkeypatch.setattr("fairway.convert.export.judge_file", lambda *more: pytest.fail("the judge was asked"))
    for words in (VERIFY, ("inspect", "out.onnx")):
        said = fairway(*words)
        assert said.code == 3
        assert said.err.startswith("FW114 error: The file asks for more memory than this machine has\n")
        assert "out.onnx: the ConstantOfShape node n needs 1.0 EB" in said.err


def test_a_name_cannot_play_tricks_on_the_terminal(fairway: Fairway, folder: Path) -> None:
    value = helper.make_tensor_value_info("x\x1b[2J\rverified", TensorProto.FLOAT, ["a\x07"])
    graph = helper.make_graph([], "g", [value], [value])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], producer_name="\x1b]0;owned\x07")
    (folder / "out.onnx").write_bytes(proto.SerializeToString())
    out = fairway("inspect", "out.onnx").out
    assert not set(out) & set("\x1b\r\x07")
    assert "x\N{REPLACEMENT CHARACTER}[2J" in out


LOG = """\
Traceback (most recent call last):
  File "model.py", line 12, in forward
torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode: Could not guard on data-dependent expression
"""


def test_explain_reads_a_log(fairway: Fairway, folder: Path) -> None:
    (folder / "error.log").write_text(LOG)
    said = fairway("explain", "error.log")
    assert said.out.splitlines()[:4] == [
        "FW303 data-dependent",
        "  seen      line 3: torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode: Could not guard on",
        "            data-dependent expression",
        "  means     The model makes a decision on a tensor's value. The value depends on an input, so the exporter",
    ]
    assert said.code == 0
    found = json.loads(fairway("explain", "error.log", "--json").out)
    assert [(one["code"], one["line"]) for one in found] == [("FW303", 3)]


def test_explain_reads_a_pipe(fairway: Fairway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    assert fairway("explain", "-").out.startswith("FW303 ")


def test_explain_is_honest_where_nothing_is_known(fairway: Fairway, folder: Path) -> None:
    (folder / "junk").write_bytes(bytes(range(256)) * 9)
    said = fairway("explain", "junk")
    assert said.out.startswith("no error found: no line looks like an error of Python or of a library\n")
    assert said.code == 1


@pytest.mark.parametrize(("what", "why"), [("nosuch.log", "No such file or directory"), (".", "Is a directory")])
def test_explain_refuses_what_cannot_be_read(fairway: Fairway, what: str, why: str) -> None:
    said = fairway("explain", what)
    assert said.err.splitlines()[:2] == [
        "FW014 error: There is no such finding",
        f"  seen      expected a finding code or a log file, got {what!r}: {why}",
    ]
    assert said.code == 2


def test_explaining_a_log_needs_no_torch(folder: Path) -> None:
    (folder / "error.log").write_text(LOG)
    program = (
        "import sys; sys.modules['torch'] = sys.modules['onnx'] = None; "
        "sys.argv = ['fairway', 'explain', 'error.log']; from fairway.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
