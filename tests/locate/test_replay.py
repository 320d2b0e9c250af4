"""A file run in slices gives the values that it gives as a whole, and keeps none longer than needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fairway.judge.locate import node_replay as module
from fairway.judge.locate.node_replay import list_reads, replay_nodes

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def model(nodes: list[Any], outputs: list[str], weights: dict[str, np.ndarray] | None = None) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", 4])],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def chain(count: int) -> Any:
    nodes = [helper.make_node("Add", ["x" if i == 0 else f"v{i - 1}", "one"], [f"v{i}"]) for i in range(count)]
    return model(nodes, [f"v{count - 1}"], {"one": np.ones(4, np.float32)})


def test_every_value_is_given_once_in_order() -> None:
    steps = list(replay_nodes(chain(100), ".", {"x": X}))
    assert [next(iter(step.outputs)) for step in steps] == [f"v{i}" for i in range(100)]
    for i, step in enumerate(steps):
        np.testing.assert_array_equal(step.outputs[f"v{i}"], X + i + 1)


def test_no_more_is_held_than_a_slice_and_what_comes_later_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    plain = module._run_slice

    def counting(proto: Any, part: Any, live: Any, weights: Any) -> Any:
        held.append(len(live))
        return plain(proto, part, live, weights)

    monkeypatch.setattr(module, "_run_slice", counting)
    assert len(list(replay_nodes(chain(300), ".", {"x": X}))) == 300
    assert max(held) == 1


def test_fewer_nodes_run_at_once_where_values_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    plain = module._run_slice

    def counting(proto: Any, part: Any, live: Any, weights: Any) -> Any:
        sizes.append(len(part))
        return plain(proto, part, live, weights)

    monkeypatch.setattr(module, "_run_slice", counting)
    list(replay_nodes(chain(200), ".", {"x": X}))
    assert max(sizes) == module.MAX_SLICE_NODES
    sizes.clear()
    monkeypatch.setattr(module, "MAX_SLICE_BYTES", 3 * X.nbytes)
    list(replay_nodes(chain(200), ".", {"x": X}))
    assert max(sizes[1:]) == 3


def test_large_weights_are_handed_in_and_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
    net = model([helper.make_node("MatMul", ["x", "w"], ["y"])], ["y"], {"w": weight})
    (embedded,) = replay_nodes(net, ".", {"x": X})
    monkeypatch.setattr(module, "MAX_EMBEDDED_BYTES", 0)
    (handed,) = replay_nodes(net, ".", {"x": X})
    np.testing.assert_array_equal(embedded.outputs["y"], handed.outputs["y"])


def test_weights_beside_the_file_are_read_from_there(tmp_path: Path) -> None:
    weight = np.arange(16, dtype=np.float32).reshape(4, 4)
    net = model([helper.make_node("MatMul", ["x", "w"], ["y"])], ["y"], {"w": weight})
    onnx.save(net, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    bare = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    (step,) = replay_nodes(bare, str(tmp_path), {"x": X})
    np.testing.assert_allclose(step.outputs["y"], X @ weight, rtol=1e-6)


def test_it_ends_at_the_node_that_is_refused_and_names_it() -> None:
    net = model(
        [
            helper.make_node("Add", ["x", "x"], ["a"]),
            helper.make_node("Reshape", ["a", "shape"], ["b"], name="baked"),
            helper.make_node("Add", ["b", "b"], ["c"]),
        ],
        ["c"],
        {"shape": np.array([5, 4])},
    )
    steps = list(replay_nodes(net, ".", {"x": X}))
    assert [step.node.op_type for step in steps] == ["Add", "Reshape"]
    assert steps[0].refusal == ""
    assert steps[1].refusal
    assert steps[1].node.name == "baked"


def test_what_a_branch_reads_from_outside_is_kept_for_it() -> None:
    branch = helper.make_graph(
        [helper.make_node("Add", ["early", "early"], ["t"])],
        "b",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
    )
    chosen = helper.make_node("If", ["yes"], ["z"], then_branch=branch, else_branch=branch)
    assert list_reads(chosen) == ["yes", "early"]
    between = [helper.make_node("Add", ["x", "x"], [f"n{i}"]) for i in range(60)]
    net = model([helper.make_node("Neg", ["x"], ["early"]), *between, chosen], ["z"], {"yes": np.array(True)})
    *_, last = replay_nodes(net, ".", {"x": X})
    np.testing.assert_array_equal(last.outputs["z"], -2 * X)


def test_sequences_pass_from_slice_to_slice() -> None:
    nodes = [helper.make_node("SequenceConstruct", ["x", "x"], ["seq"])]
    nodes += [helper.make_node("Add", ["x", "x"], [f"n{i}"]) for i in range(60)]
    nodes += [helper.make_node("ConcatFromSequence", ["seq"], ["y"], axis=0)]
    *_, last = replay_nodes(model(nodes, ["y"]), ".", {"x": X})
    assert last.refusal == ""
    np.testing.assert_array_equal(last.outputs["y"], np.concatenate([X, X]))
