"""The node that was changed is named, with the module and the line, in files of both exporters."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from torch import Tensor, nn

import fairway
from fairway.debug.find_wrong_node import _guess_routes
from fairway.diagnostics import Where
from fairway.judge.judge import make_sample_inputs
from fairway.judge.locate import file_runs
from fairway.judge.locate.locate import Location, choose_location, locate_error
from fairway.model.ort_session import open_session
from fairway.model.sample import Sample, make_sample
from fairway.model.subject import Subject, build_subject


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        wide = nn.functional.gelu(self.up(x))
        return self.norm(x + self.down(wide))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block(), Block()])
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        scores = self.head(x)
        return torch.softmax(scores, dim=-1)


def line_of(text: str) -> int:
    lines, start = inspect.getsourcelines(inspect.getmodule(Net))  # type: ignore[arg-type]
    return next(i for i, line in enumerate(lines, start or 1) if text in line and "line_of" not in line)


@pytest.fixture(scope="module")
def subject() -> Subject:
    torch.manual_seed(1)
    return build_subject(Net().eval(), ["x: float32[batch, time, 8]"], bounds={"batch": (1, 4), "time": (1, 9)})


@pytest.fixture(scope="module", params=["dynamo", "TorchScript"])
def right(request: pytest.FixtureRequest, subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("right") / "right.onnx"
    x = torch.zeros(2, 3, 8)
    if request.param == "dynamo":
        batch, time = torch.export.Dim("batch", max=4), torch.export.Dim("time", max=9)
        torch.onnx.export(
            subject.model,
            (x,),
            path,
            dynamo=True,
            input_names=["x"],
            dynamic_shapes=({0: batch, 1: time},),
            external_data=False,
            verbose=False,
        )
    else:
        torch.onnx.export(
            subject.model, (x,), path, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "batch", 1: "time"}}
        )
    return path


HERE = make_sample({"batch": 2, "time": 3}, 5)


def look(subject: Subject, path: Path, at: Sample = HERE, against: tuple[str, ...] = ()) -> Location:
    return locate_error(subject, str(path), at, make_sample_inputs(subject, at, []), against)


def spoil(right: Path, tmp_path: Path, change: Callable[[Any], str]) -> tuple[Path, str]:
    """A wrong file, and the name of the value that is wrong first."""
    proto = onnx.load(right)
    name = change(proto.graph)
    path = tmp_path / "wrong.onnx"
    onnx.save(proto, path)
    return path, name


def nth(graph: Any, operator: str, number: int) -> Any:
    return [node for node in graph.node if node.op_type == operator][number]


def perturb(graph: Any) -> str:
    """A weight of the last layer but one: blocks.2.down."""
    node = [n for n in graph.node if n.op_type in ("MatMul", "Gemm")][5]
    weight = next(t for t in graph.initializer if t.name in node.input)
    array = numpy_helper.to_array(weight).copy()
    array[0, 0] += 0.05
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    return str(node.output[0])


def turn(graph: Any) -> str:
    node = nth(graph, "Softmax", 0)
    node.attribute[0].i = 1
    return str(node.output[0])


def narrow(graph: Any) -> str:
    node = nth(graph, "LayerNormalization", 1)
    place = list(graph.node).index(node)
    there = onnx.helper.make_node("Cast", [node.input[0]], ["narrow"], to=onnx.TensorProto.FLOAT16, name="planted")
    back = onnx.helper.make_node("Cast", ["narrow"], ["wide_again"], to=onnx.TensorProto.FLOAT)
    node.input[0] = "wide_again"
    for extra in (back, there):
        graph.node.insert(place, extra)
    return "narrow"


@pytest.mark.parametrize(
    ("change", "line", "module"),
    [
        (perturb, "return self.norm(x + self.down(wide))", "blocks.2.down (Linear)"),
        (turn, "return torch.softmax(scores, dim=-1)", "(the model itself) (Net)"),
        (narrow, "return self.norm(x + self.down(wide))", "blocks.1.norm (LayerNorm)"),
    ],
)
def test_the_changed_node_is_named_with_its_module_and_line(
    subject: Subject, right: Path, tmp_path: Path, change: Callable[[Any], str], line: str, module: str
) -> None:
    path, name = spoil(right, tmp_path, change)
    got = look(subject, path)
    assert (got.kind, got.value) == ("computes", name)
    assert got.where is not None
    assert got.where.file == __file__
    assert got.where.line == line_of(line)
    assert got.where.module == module


def test_values_that_only_pass_the_error_on_are_counted_not_named(
    subject: Subject, right: Path, tmp_path: Path
) -> None:
    early, _ = spoil(right, tmp_path, narrow)
    first = look(subject, early)
    late, _ = spoil(right, tmp_path, perturb)
    assert first.passed_on > look(subject, late).passed_on > 0
    assert first.also == ()


def test_a_right_file_is_right_node_by_node(subject: Subject, right: Path) -> None:
    found = look(subject, right)
    assert (found.kind, found.make_finding()) == ("nowhere", None)


def test_a_node_that_the_runtime_refuses_is_named_with_its_words(subject: Subject, right: Path, tmp_path: Path) -> None:
    def bake(graph: Any) -> str:
        node = nth(graph, "Softmax", 0)
        graph.initializer.append(numpy_helper.from_array(np.array([2, 3, 5]), "baked"))
        place = list(graph.node).index(node)
        graph.node.insert(place, onnx.helper.make_node("Reshape", [node.input[0], "baked"], ["stiff"], name="planted"))
        node.input[0] = "stiff"
        return "stiff"

    path, name = spoil(right, tmp_path, bake)
    got = look(subject, path, make_sample({"batch": 1, "time": 4}, 5))
    assert (got.kind, got.value) == ("refuses", name)
    finding = got.make_finding()
    assert finding is not None
    assert "requested shape" in finding.seen
    assert look(subject, path).kind == "nowhere", "at the sizes that were baked it is right"


def test_it_is_found_after_the_runtime_has_optimized_the_file(subject: Subject, right: Path, tmp_path: Path) -> None:
    path, _ = spoil(right, tmp_path, perturb)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    got = look(subject, tmp_path / "fused.onnx")
    assert got.where is not None
    assert got.where.module == "blocks.2.down (Linear)"


def test_a_right_file_settles_the_steps_that_pytorch_does_not_take(
    subject: Subject, right: Path, tmp_path: Path
) -> None:
    """The sum of a chain that multiplies by three and by a third is PyTorch's value; the steps between are not."""

    def detour(graph: Any, third: float) -> None:
        node = nth(graph, "Softmax", 0)
        place = list(graph.node).index(node)
        steps = (("one", 3.0, node.input[0]), ("two", third, "one"))
        for i, (name, factor, source) in enumerate(steps):
            graph.initializer.append(numpy_helper.from_array(np.float32(factor), f"by_{name}"))
            graph.node.insert(place + i, onnx.helper.make_node("Mul", [source, f"by_{name}"], [name]))
        node.input[0] = "two"

    good, bad = tmp_path / "good.onnx", tmp_path / "bad.onnx"
    for path, third in ((good, 1 / 3), (bad, 0.34)):
        proto = onnx.load(right)
        detour(proto.graph, third)
        onnx.save(proto, path)
    assert look(subject, bad).value in ("one", "two")
    assert look(subject, bad, against=(str(good),)).value == "two"


def test_verify_says_where_the_error_begins_at_the_smallest_failing_shape(
    subject: Subject, right: Path, tmp_path: Path
) -> None:
    path, name = spoil(right, tmp_path, turn)
    bounds = {"batch": (1, 4), "time": (1, 9)}
    result = fairway.verify(path, subject.model, ["x: float32[batch, time, 8]"], bounds=bounds)
    (found,) = [finding for finding in result.findings if finding.code == "FW414"]
    assert found.data["value"] == name
    assert found.where is not None
    assert found.where.line == line_of("return torch.softmax(scores, dim=-1)")
    smallest = result.record.evidence.smallest
    assert f"seen at batch={smallest['batch']}, time={smallest['time']}" in found.seen
    assert smallest == {"batch": 1, "time": 1}


def traced(model: nn.Module, inputs: tuple[Tensor, ...], names: list[str], path: Path) -> Path:
    """As people export: by tracing, every dim declared dynamic."""
    axes = {name: {0: "batch", 1: "time"} for name in names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, inputs, path, dynamo=False, input_names=names, dynamic_axes=axes)
    return path


class Chooser(nn.Module):
    """One of several layers for each sample; two of them have the same norm."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6)) for _ in range(4)])
        for number in (1, 3):
            nn.init.normal_(self.layers[number][1].weight, generator=torch.Generator().manual_seed(1))  # type: ignore[index]

    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        rows = [self.layers[int(which[i, 0].item())](x[i]) for i in range(x.shape[0])]
        return torch.stack(rows)


def test_weights_that_stand_under_several_names_are_no_ones_result(tmp_path: Path) -> None:
    torch.manual_seed(0)
    spec = ["x: float32[batch, time, 6]", "which: int64[batch, time] < 4"]
    subject = build_subject(Chooser().eval(), spec, bounds={"batch": (1, 4), "time": (1, 5)})
    inputs = (torch.zeros(2, 3, 6), torch.tensor([[3, 3, 3], [1, 1, 1]]))
    path = traced(subject.model, inputs, ["x", "which"], tmp_path / "chosen.onnx")
    assert any(node.op_type == "Identity" for node in onnx.load(path).graph.node)
    at = make_sample({"batch": 2, "time": 3})
    feeds = [torch.randn(2, 3, 6), torch.tensor([[0, 0, 0], [2, 2, 2]])]
    found = locate_error(subject, str(path), at, feeds)
    assert found.operator in ("MatMul", "Gemm")
    assert found.where is not None
    assert found.where.line == line_of("rows = [self.layers")
    assert found.where.module is not None
    assert found.where.module.startswith("layers.")


class Padded(nn.Module):
    """PyTorch runs it by the fast path, on nested tensors."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        seen = self.encoder(x, src_key_padding_mask=padding)
        return seen.masked_fill(padding.unsqueeze(-1), 0.0)


def test_a_baked_length_has_the_line_that_computes_with_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    spec = ["x: float32[batch, time, 8]", "padding: bool[batch, time] = padding-right"]
    subject = build_subject(Padded().eval(), spec, bounds={"batch": (1, 4), "time": (2, 9)})
    inputs = (torch.zeros(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool))
    path = traced(subject.model, inputs, ["x", "padding"], tmp_path / "baked.onnx")
    found = look(subject, path, make_sample({"batch": 2, "time": 7}))
    assert found.operator == "Concat"
    assert found.where is not None
    assert found.where.line == line_of("seen = self.encoder(x")
    assert found.where.module == "encoder.layers.0.self_attn (MultiheadAttention)"
    assert torch.backends.mha.get_fastpath_enabled()


class Masked(nn.Module):
    """Attention twice. The first place is padding, without attention to or from any place."""

    def __init__(self, lowest: float) -> None:
        super().__init__()
        mask = torch.zeros(4, 4)
        mask[0], mask[:, 0] = lowest, lowest
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            scores = x @ x.transpose(1, 2) + self.mask
            x = x + torch.softmax(scores, -1) @ x
        return x


@pytest.mark.parametrize("lowest", [torch.finfo(torch.float32).min, -1e9])
def test_an_error_that_a_mask_hides_is_still_one(lowest: float, tmp_path: Path) -> None:
    subject = build_subject(Masked(lowest).eval(), ["x: float32[batch, 4, 3]"], bounds={"batch": (1, 3)})
    right = tmp_path / "right.onnx"
    torch.onnx.export(
        subject.model, (torch.zeros(2, 4, 3),), right, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "batch"}}
    )

    def in_the_padding(graph: Any) -> str:
        """The first softmax, wrong in the row that is padding: the second one's scores do not show it."""
        node = nth(graph, "Softmax", 0)
        off = np.zeros((4, 4), np.float32)
        off[0] = 0.3
        graph.initializer.append(numpy_helper.from_array(off, "off"))
        for other in graph.node:
            other.input[:] = ["planted" if name == node.output[0] else name for name in other.input]
        place = list(graph.node).index(node) + 1
        graph.node.insert(place, onnx.helper.make_node("Add", [node.output[0], "off"], ["planted"], name="planted"))
        return "planted"

    path, name = spoil(right, tmp_path, in_the_padding)
    assert look(subject, path, make_sample({"batch": 2})).value == name


def test_the_smallest_sample_that_names_the_same_line_is_told() -> None:
    def at(where: str, value: str, line: int) -> Location:
        return Location("computes", where, value=value, where=Where(file="net.py", line=line, module="a (A)"))

    roomy, small, other = at("time=200", "c36", 7), at("time=24", "c0", 7), at("time=3", "c1", 8)
    assert choose_location([roomy, small]) is small
    assert choose_location([roomy, small, other]) is small
    assert choose_location([roomy, other]) is roomy
    assert choose_location([roomy, replace(small, value="c36", where=None)]).at == "time=24"  # type: ignore[union-attr]
    assert choose_location([]) is None


@pytest.mark.parametrize("maker", ["dynamo", "TorchScript"])
def test_the_exporter_that_made_a_file_is_known_by_its_names(maker: str, tmp_path: Path) -> None:
    net, x, path = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval(), torch.zeros(2, 3), tmp_path / "net.onnx"
    torch.onnx.export(net, (x,), path, dynamo=maker == "dynamo", verbose=False)
    assert _guess_routes(path) == [{"dynamo": "export-dynamic", "TorchScript": "trace"}[maker]]
    proto = onnx.load(path)
    for number, node in enumerate(proto.graph.node):
        node.name = f"n{number}"
    onnx.save(proto, path)
    assert _guess_routes(path) == ["export-dynamic", "trace"]


def test_inputs_that_do_not_fit_the_file_blame_no_node(subject: Subject, right: Path, tmp_path: Path) -> None:
    proto = onnx.load(right)
    proto.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    path = tmp_path / "other.onnx"
    onnx.save(proto, path)
    found = look(subject, path)
    assert (found.kind, found.make_finding()) == ("inputs", None)


def test_declared_sizes_do_not_blame_the_optimizer(subject: Subject, right: Path, tmp_path: Path) -> None:
    proto = onnx.load(right)
    for dim in proto.graph.input[0].type.tensor_type.shape.dim[:2]:
        dim.dim_value = 7
    path = tmp_path / "fixed.onnx"
    onnx.save(proto, path)
    found = look(subject, path)
    assert (found.kind, found.make_finding()) == ("nowhere", None)


def test_the_optimizer_is_blamed_after_the_file_is_right_without_it(
    subject: Subject, right: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_broken(path: Any, settings: Any = None) -> Any:
        if settings.optimization_level != "ORT_DISABLE_ALL":
            raise RuntimeError("fused wrongly")
        return open_session(path, settings)

    monkeypatch.setattr(file_runs, "open_session", open_broken)
    found = look(subject, right)
    finding = found.make_finding()
    assert found.kind == "optimizer"
    assert finding is not None
    assert finding.code == "FW415"


class Narrow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 64), nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.tanh(self.up(x)))


def test_the_changed_node_is_named_in_bfloat16(tmp_path: Path) -> None:
    torch.manual_seed(2)
    model = Narrow().eval().bfloat16()
    subject = build_subject(model, ["x: bfloat16[batch, 8]"], bounds={"batch": (1, 4)})
    path = tmp_path / "narrow.onnx"
    assert fairway.export(model, ["x: bfloat16[batch, 8]"], path, bounds={"batch": (1, 4)}, level="quick").verified
    proto = onnx.load(path)
    tanh = nth(proto.graph, "Tanh", 0)
    tanh.op_type = "Sigmoid"
    onnx.save(proto, path)
    found = look(subject, path, make_sample({"batch": 3}))
    assert (found.kind, found.value) == ("computes", tanh.output[0])
