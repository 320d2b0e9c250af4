"""The Python functions behind the commands, each on a small model."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

import fairway
import fairway.api

LINE = "input: float32[batch, 4]"
BOUNDS = {"batch": (1, 8)}
RECIPE = """
import torch

import fairway


def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()


net = fairway.Recipe(build, ["input: float32[batch, 4]"], bounds={"batch": (1, 8)})
"""


def build() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a verified file and its recipe."""
    folder = tmp_path_factory.mktemp("api")
    (folder / "recipe.py").write_text(RECIPE)
    result = fairway.export(build(), [LINE], folder / "net.onnx", bounds=BOUNDS, level="quick")
    assert result.verified
    return folder


def test_dir_lists_the_public_names() -> None:
    code = "import fairway, sys; print('torch' in sys.modules, *dir(fairway))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert shown[0] == "False"
    assert set(fairway.__all__) <= set(shown)


@pytest.mark.parametrize("name", fairway.api.__all__)
def test_a_function_has_an_example_and_typed_parameters(name: str) -> None:
    function = getattr(fairway, name)
    assert f"fairway.{name}(" in (function.__doc__ or "")
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Parameter.empty
    assert all(parameter.annotation is not parameter.empty for parameter in signature.parameters.values())


def test_verify_and_locate_judge_a_file(folder: Path) -> None:
    assert fairway.verify(folder / "net.onnx", build(), [LINE], bounds=BOUNDS, level="quick").verified
    model = onnx.load(folder / "net.onnx")
    bias = next(tensor for tensor in model.graph.initializer if tuple(tensor.dims) == (8,))
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + 1, bias.name))
    onnx.save(model, folder / "wrong.onnx")
    result = fairway.locate(
        folder / "wrong.onnx", build(), [LINE], against=folder / "net.onnx", bounds=BOUNDS, level="quick"
    )
    assert result.verdict == "wrong"


def test_reduce_returns_none_if_nothing_fails(tmp_path: Path) -> None:
    assert fairway.reduce(build(), [LINE], tmp_path / "reduced", bounds=BOUNDS, budget=60.0) is None


def test_bench_times_a_file(folder: Path) -> None:
    result = fairway.bench([folder / "net.onnx"], at=["batch=2"], levels=["all"], threads=[1], seconds=0.05)
    assert result.points


@pytest.mark.slow
def test_quantize_and_sensitivity_take_a_recipe(folder: Path) -> None:
    recipe = f"{folder / 'recipe.py'}:net"
    ranking = fairway.sensitivity(folder / "net.onnx", recipe=recipe, samples=4)
    result = fairway.quantize(
        folder / "net.onnx",
        folder / "small.onnx",
        recipe=recipe,
        scheme="int8-dynamic",
        samples=4,
        max_drop=0.5,
        keep=ranking.do_not_quantize,
    )
    assert result.tried


@pytest.mark.slow
def test_optimize_judges_against_the_recipe(folder: Path) -> None:
    recipe = f"{folder / 'recipe.py'}:net"
    result = fairway.optimize(
        folder / "net.onnx", recipe=recipe, at=["batch=2"], seconds=0.05, threads=1, level="quick"
    )
    assert result.tried


def test_run_writes_the_outputs_of_a_recording(folder: Path) -> None:
    np.save(folder / "data.npy", np.ones((5, 4), np.float32))
    done = fairway.run(folder / "net.onnx", folder / "data.npy", folder / "outputs")
    assert len(done.recordings) == 1


def test_publish_and_pull_move_a_verified_file(folder: Path) -> None:
    published = fairway.publish(folder / "net.onnx", str(folder / "shop"))
    assert "net.onnx" in published.files
    fairway.pull(str(folder / "shop"), folder / "pulled")
    assert any((folder / "pulled").rglob("net.onnx"))
