"""The file's own whole numbers say which sizes are worth a sample."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import torch

from fairway.judge.gather import JudgeRequest, gather_evidence
from fairway.judge.graph_constants import MAX_CONSTANTS, find_sizes, find_thresholds
from fairway.model.dims import Dim, Domain
from fairway.model.subject import build_subject

DOMAIN = Domain((Dim("batch", 1, 8), Dim("time", 1, 500)))


def _file(folder: Path, *constants: int, op: str = "Equal") -> str:
    """x + 1 where x's second size is one of the constants."""
    x = ir.Value(name="x", shape=ir.Shape(["batch", "time"]), type=ir.TensorType(ir.DataType.FLOAT))
    graph = ir.Graph([x], [], nodes=[], opset_imports={"": 20}, name="g")

    def fixed(array: np.ndarray) -> ir.Value:
        tensor = ir.tensor(array)
        value = ir.Value(name=f"c{len(graph.initializers)}", type=ir.TensorType(tensor.dtype), const_value=tensor)
        value.shape = ir.Shape(tensor.shape)
        graph.register_initializer(value)
        return value

    def add(op: str, *inputs: ir.Value, **attributes: int) -> ir.Value:
        node = ir.node(op, list(inputs), attributes)
        node.outputs[0].name = f"v{len(graph)}"
        graph.append(node)
        return node.outputs[0]

    y = x
    for constant in constants:
        size = add("Gather", add("Shape", x), fixed(np.array(1)))
        y = add("Add", y, add("Cast", add(op, size, fixed(np.array(constant))), to=1))
    y.name, y.shape, y.type = "y", x.shape, x.type
    graph.outputs.append(y)
    path = folder / "file.onnx"
    ir.save(ir.Model(graph, ir_version=10), path)
    return str(path)


def test_constants_within_the_bounds_are_sizes_worth_a_sample(tmp_path: Path) -> None:
    assert find_sizes(_file(tmp_path, 137, 9999), DOMAIN)[0] == {"batch": [1], "time": [137, 1]}


def test_constants_of_comparisons_come_first_and_their_number_is_limited(tmp_path: Path) -> None:
    spoken = find_sizes(_file(tmp_path, *range(200, 220)), DOMAIN)[0]["time"]
    assert spoken == list(range(200, 200 + MAX_CONSTANTS))


def test_standard_finds_a_file_that_is_wrong_at_one_size(tmp_path: Path) -> None:
    subject = build_subject(
        torch.nn.Identity(),
        ["input: float32[batch, time]"],
        input_names=["x"],
        bounds={"batch": (1, 8), "time": (1, 500)},
    )
    wrong = gather_evidence(subject, JudgeRequest(_file(tmp_path, 137), ["y"], "standard"), lambda event: None)
    assert wrong.wrong
    assert {t.point["time"] for t in wrong.tested if not t.right} == {137}
    assert not gather_evidence(subject, JudgeRequest(_file(tmp_path, 137), ["y"], "quick"), lambda event: None).wrong
    assert not gather_evidence(
        subject, JudgeRequest(_file(tmp_path, 9999), ["y"], "standard"), lambda event: None
    ).wrong


class Above(torch.nn.Module):
    def forward(self, x):
        return x > 0.5


def test_standard_finds_a_threshold_that_is_off_by_a_thousandth(tmp_path: Path) -> None:
    subject = build_subject(Above(), ["x: float32[n] in -1..1"], bounds={"n": (1, 40)})
    for threshold, wrong in ((0.5, False), (0.5005, True), (0.4995, True)):
        path = tmp_path / f"{threshold}.onnx"
        text = f"""<ir_version: 10, opset_import: ["" : 20]>
            g (float[n] x) => (bool[n] y) <float c = {{{threshold}}}> {{ y = Greater(x, c) }}"""
        ir.save(ir.from_onnx_text(text), path)
        assert find_thresholds(str(path), has_integers=False) == [float(np.float32(threshold))]
        evidence = gather_evidence(subject, JudgeRequest(str(path), ["y"], "standard"), lambda event: None)
        assert evidence.wrong == wrong
        if not wrong:  # a wrong file is given up on after a few samples
            assert any(t.note.startswith("values near ") for t in evidence.tested)


def test_float_sizes_and_products_of_sizes_are_found(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[batch, time] x) => (bool y)
    <float long = {33.0}> {
      n = Size(x)
      size = Cast <to = 1> (n)
      y = Equal(size, long)
    }"""
    ir.save(ir.from_onnx_text(text), tmp_path / "g.onnx")
    domain = Domain((Dim("batch", 1, 4), Dim("time", 1, 60)))
    sizes, products = find_sizes(str(tmp_path / "g.onnx"), domain)
    assert sizes["time"] == [33]
    assert products == [{"batch": 3, "time": 11}]
