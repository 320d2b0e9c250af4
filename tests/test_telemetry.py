"""Packages that report home by default do not, where Fairway starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairway.diagnostics.telemetry import DISABLING_VARIABLES

SESSION = """
import numpy, onnx, onnxruntime
from onnx import TensorProto, helper
ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", ends[:1], ends[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": numpy.ones(1, numpy.float32)})
"""


def left_at_home(folder: Path, program: str, **variables: str) -> list[str]:
    """Run a program without our variables or those of a CI, and return the files it left in the home folder."""
    folder.mkdir()
    kept = {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH"}
    variables = {name: value for name, value in os.environ.items() if name in kept} | variables | {"HOME": str(folder)}
    subprocess.run([sys.executable, "-c", program], env=variables, check=True, timeout=120, capture_output=True)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_onnxruntime_keeps_an_id_of_the_machine_unless_told_not_to(tmp_path: Path) -> None:
    """Red when it stops: `fairway.diagnostics.telemetry` need not name it any more then."""
    assert any(name.endswith("deviceid") for name in left_at_home(tmp_path / "home", SESSION))


def test_with_fairway_onnxruntime_keeps_nothing(tmp_path: Path) -> None:
    assert left_at_home(tmp_path / "home", "import fairway\n" + SESSION) == []


def test_who_wants_it_is_obeyed(tmp_path: Path) -> None:
    wanted = left_at_home(tmp_path / "home", "import fairway\n" + SESSION, ORT_DISABLE_TELEMETRY="0")
    assert any(name.endswith("deviceid") for name in wanted)


@pytest.mark.parametrize("package", ["mlflow", "ray"])
def test_the_other_packages_take_our_word(package: str) -> None:
    ask = {
        "mlflow": "from mlflow.telemetry.utils import is_telemetry_disabled as off; assert off()",
        "ray": "from ray._common.usage import usage_lib; assert not usage_lib.usage_stats_enabled()",
    }[package]
    plain = {
        name: value for name, value in os.environ.items() if name not in (*DISABLING_VARIABLES, "CI", "DO_NOT_TRACK")
    }
    subprocess.run([sys.executable, "-c", f"import fairway; {ask}"], env=plain, check=True, timeout=120)
