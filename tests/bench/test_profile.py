"""A profile by operator and module, from made-up events, so that every number is known."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from fairway.tune.bench.profile import NO_MODULE, OWN_FORWARD, map_nodes_to_modules, read_profile

SCOPES = "pkg.torch.onnx.name_scopes"


def node(kind: str, takes: str, gives: str, name: str, scopes: str = "") -> onnx.NodeProto:
    made = helper.make_node(kind, [takes], [gives], name=name)
    if scopes:
        made.metadata_props.add(key=SCOPES, value=scopes)
    return made


def save(path: Path, *nodes: onnx.NodeProto) -> Path:
    value = helper.make_tensor_value_info
    last = nodes[-1].output[0]
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, ["n"])], [value(last, TensorProto.FLOAT, ["n"])]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    original = save(
        tmp_path / "net.onnx",
        node("Relu", "x", "a", "one", "['', 'model', 'model.first', 'relu']"),
        node("Tanh", "a", "b", "two", "['', 'model', 'model.second', 'tanh']"),
        node("Exp", "b", "c", "three", "['', 'model', 'exp']"),
        node("Abs", "c", "d", "four"),
    )
    ran = save(
        tmp_path / "ran.onnx",
        node("Fused", "x", "b", "made up"),
        node("Cast", "b", "t", "in between"),
        node("Exp", "t", "c2", "three/Fusion"),
        node("Abs", "c2", "d", "four"),
    )
    return original, ran


def test_fused_nodes_are_traced_to_modules_by_outputs_names_or_users(
    files: tuple[Path, Path],
) -> None:
    original, ran = files
    assert map_nodes_to_modules(ran, original) == {
        "made up": "second",
        "in between": OWN_FORWARD,
        "three/Fusion": OWN_FORWARD,
        "four": NO_MODULE,
    }


def event(name: str, kind: str, start: int, lasts: int) -> dict[str, object]:
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": start, "dur": lasts, "args": {"op_name": kind}}


def test_times_exclude_warm_up_loop_bodies_and_one_slow_call(files: tuple[Path, Path], tmp_path: Path) -> None:
    original, ran = files
    events = [{"cat": "Session", "name": "model_run", "ts": 0, "dur": 5}]
    for number, slow in enumerate((50, 1, 1, 9)):
        start = 10_000 * number
        events.append(event("made up", "Fused", start, 100 * slow))
        events.append(event("three/Fusion", "Loop", start + 5000, 60))
        events.append(event("four", "Abs", start + 5010, 40))
    (tmp_path / "events.json").write_text(json.dumps(events))
    result = read_profile(tmp_path / "events.json", ran, original, {"n": 3}, calls=3, plain=0.001)
    assert [(cost.operator, cost.module, round(cost.seconds * 1e6), cost.runs) for cost in result.costs] == [
        ("Fused", "second", 100, 1),
        ("Abs", NO_MODULE, 40, 1),
        ("Loop", OWN_FORWARD, 20, 1),
    ]
    assert result.seconds == pytest.approx(160e-6)
    assert result.by_operator() == pytest.approx({"Fused": 100e-6, "Abs": 40e-6, "Loop": 20e-6})


def test_a_node_in_a_loops_body_has_the_loops_module(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Relu", "s", "out", "inner", "['relu']")],
        "body",
        [value("s", TensorProto.FLOAT, [])],
        [value("out", TensorProto.FLOAT, [])],
    )
    scan = helper.make_node("Scan", ["x"], ["y"], name="scan", body=body, num_scan_inputs=1)
    scan.metadata_props.add(key=SCOPES, value="['', 'model', 'model.cell', 'scan']")
    path = save(tmp_path / "scan.onnx", scan)
    assert map_nodes_to_modules(path, path) == {"scan": "cell", "inner": "cell"}
