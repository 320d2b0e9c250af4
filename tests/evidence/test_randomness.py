"""A file that draws random numbers is refused if the model does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import fairway
from fairway.judge.randomness import find_random_nodes

SPEC, BOUNDS = ["x: float32[batch, 4]"], {"batch": (1, 6)}
X = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Noise(torch.nn.Module):
    """Noise without effect, as models for speech have it when they run."""

    scale = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + torch.randn_like(x) * self.scale


def _numbers(name: str, value: object, dtype: type = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(value, dtype), name)


def _build(nodes: list[onnx.NodeProto], *constants: onnx.TensorProto, **more: object) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [X], [Y], initializer=[_numbers("two", 2), *constants])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, **more)


def _noise() -> list[onnx.NodeProto]:
    return [
        helper.make_node("Mul", ["x", "two"], ["doubled"]),
        helper.make_node("RandomNormalLike", ["x"], ["noise"], name="draw", scale=1.0),
        helper.make_node("Mul", ["noise", "scale"], ["small"]),
        helper.make_node("Add", ["doubled", "small"], ["y"]),
    ]


def _dropout(training: bool, ratio: float = 0.5) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["doubled"]),
        helper.make_node("Dropout", ["doubled", "ratio", "training"], ["y"], name="drop"),
    ]
    return _build(nodes, _numbers("ratio", ratio), _numbers("training", training, np.bool_))


def _in_function() -> onnx.ModelProto:
    inside = [
        helper.make_node("RandomUniformLike", ["a"], ["noise"], name="inner"),
        helper.make_node("Add", ["a", "noise"], ["b"]),
    ]
    function = helper.make_function("local", "Jitter", ["a"], ["b"], inside, [helper.make_opsetid("", 18)])
    return _build([helper.make_node("Jitter", ["x"], ["y"], domain="local")], functions=[function])


def _in_branch() -> onnx.ModelProto:
    drawn = helper.make_tensor_value_info("drawn", TensorProto.FLOAT, None)
    left = helper.make_graph([helper.make_node("Bernoulli", ["x"], ["drawn"], name="toss")], "left", [], [drawn])
    kept = helper.make_tensor_value_info("kept", TensorProto.FLOAT, None)
    right = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["kept"])], "right", [], [kept])
    node = helper.make_node("If", ["condition"], ["y"], then_branch=left, else_branch=right)
    return _build([node], _numbers("condition", False, np.bool_))


def _dead() -> onnx.ModelProto:
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["unused"]), helper.make_node("Mul", ["x", "two"], ["y"])]
    return _build(nodes)


@pytest.mark.parametrize(
    ("file", "names"),
    [
        (_build(_noise(), _numbers("scale", 1)), ["draw"]),
        (_dropout(True), ["drop"]),
        (_dropout(False), []),
        (_dropout(True, ratio=0), []),
        (_in_branch(), ["toss"]),
        (_dead(), []),
    ],
    ids=["noise", "dropout", "dropout_off", "dropout_of_nothing", "branch", "unused"],
)
def test_nodes_that_draw_and_reach_an_output_are_found(file: onnx.ModelProto, names: list[str]) -> None:
    assert [node.name for node in find_random_nodes(ir.from_proto(file))] == names


def test_a_node_inside_a_function_is_found() -> None:
    (node,) = find_random_nodes(ir.from_proto(_in_function()))
    assert node.op_type == "RandomUniformLike"


def _verify(folder: Path, file: onnx.ModelProto, model: torch.nn.Module) -> fairway.Result:
    onnx.save(file, folder / "file.onnx")
    return fairway.verify(folder / "file.onnx", model.eval(), SPEC, bounds=BOUNDS, level="quick")


def test_noise_too_small_to_see_in_numbers_is_refused(tmp_path: Path) -> None:
    """One in 2**24 of the value is within what rounding explains."""
    file = _build(_noise(), _numbers("scale", 1e-8))
    result = _verify(tmp_path, file, Doubled())
    (finding,) = [f for f in result.findings if f.code == "FW419"]
    assert (result.verdict, finding.severity) == ("wrong", "error")
    assert finding.seen.startswith("node draw (RandomNormalLike) draws random numbers; ")


def test_a_branch_that_draws_is_refused_though_no_sample_takes_it(tmp_path: Path) -> None:
    result = _verify(tmp_path, _in_branch(), Doubled())
    (finding,) = [f for f in result.findings if f.code == "FW419"]
    assert result.verdict == "wrong"
    assert finding.seen == "node toss (Bernoulli) draws random numbers; no change between runs was seen"


def test_noise_times_zero_on_both_sides_is_a_warning(tmp_path: Path) -> None:
    result = _verify(tmp_path, _build(_noise(), _numbers("scale", 0)), Noise())
    (finding,) = [f for f in result.findings if f.code == "FW419"]
    assert (result.verdict, finding.severity) == ("verified", "warning")


def test_a_right_file_has_no_finding(tmp_path: Path) -> None:
    assert [f.code for f in _verify(tmp_path, _dropout(False), Doubled()).findings] == []


class RandomWhenQuiet(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.abs().max() < 1e-5, torch.randn_like(x), x * 2)


def test_a_model_random_at_some_inputs_is_unproven_with_its_line(tmp_path: Path) -> None:
    result = fairway.export(RandomWhenQuiet(), ["x: float32[batch, 4]"], tmp_path / "q.onnx", bounds={"batch": (1, 3)})
    assert result.verdict == "unproven"
    (finding,) = [one for one in result.findings if one.code == "FW203"]
    assert finding.where is not None
    assert "randn_like" in (finding.where.source or "")
