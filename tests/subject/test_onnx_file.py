"""A file from anywhere is looked at before a runtime touches it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from fairway.diagnostics.errors import UserError
from fairway.model.onnx_file import check_signature, find_fixed_dims, open_header, open_model
from fairway.model.subject import Subject, build_subject


def value(name: str, shape: Sequence[Any] | None, dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(inputs: Sequence[Any], nodes: Sequence[Any] = (), weights: Sequence[Any] = (), functions: Any = ()) -> Any:
    graph = helper.make_graph(list(nodes), "g", list(inputs), [value("y", ["n", None])], list(weights))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), producer_name="by hand")


def save(folder: Path, proto: Any) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def outside(name: str, location: str = "../secret", **entries: str) -> Any:
    """Return a tensor whose values are in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=text)
    return tensor


def complaint(path: Path) -> tuple[str, str]:
    with pytest.raises(UserError) as caught:
        open_header(path)
    return caught.value.finding.code, caught.value.finding.seen


def test_the_header_says_what_the_file_says_of_itself(tmp_path: Path) -> None:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3, 4], [0.0] * 12)
    shown = value("w", [3, 4])  # old files list their weights as inputs too
    proto = model([value("x", ["n", 3]), value("i", [None], TensorProto.INT64), shown, value("s", None)], (), [weight])
    proto.metadata_props.add(key="author", value="me")
    header = open_header(save(tmp_path, proto))
    assert (header.opset, header.opsets, header.producer) == (18, {"": 18, "own": 1}, "by hand")
    assert [str(v) for v in header.inputs] == ["x: float32[n, 3]", "i: int64[?]", "s: float32[…]"]
    assert [str(v) for v in header.outputs] == ["y: float32[n, ?]"]
    assert (header.weights, header.weight_bytes, header.external) == (1, 48, ())
    assert header.metadata == {"author": "me"}


def test_external_data_beside_the_file_is_listed_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 40)
    weights = [outside("a", "w.bin"), outside("b", "w.bin", offset="16", length="16")]
    assert open_header(save(tmp_path, model([], (), weights))).external == ("w.bin",)


def test_external_data_in_a_folder_below_is_fine(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/w.bin").write_bytes(b"\0" * 16)
    assert open_header(save(tmp_path, model([], (), [outside("a", "data/w.bin")]))).external == ("data/w.bin",)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../secret", "", "link"])
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    path = save(tmp_path, model([], (), [outside("a", location)]))
    assert complaint(path) == ("FW112", f"m.onnx: a refers to {location!r}")


def hidden(tensor: Any, where: str) -> Any:
    """A model with the tensor in a place other than the graph's initializers."""
    constant = helper.make_node("Constant", [], ["c"], value=tensor)
    inner = helper.make_graph([constant], "inner", [], [value("c", [4])])
    if where == "node":
        return model([], [constant])
    if where == "subgraph":
        return model([], [helper.make_node("If", ["x"], ["c"], then_branch=inner, else_branch=inner)])
    if where == "subgraph's weights":
        empty = helper.make_graph([], "inner", [], [value("w", [4])], [tensor])
        return model([], [helper.make_node("If", ["x"], ["c"], then_branch=empty, else_branch=empty)])
    if where == "function":
        opsets = [helper.make_opsetid("", 18)]
        return model([], functions=[helper.make_function("own", "F", [], ["c"], [constant], opsets)])
    proto = model([])
    sparse = proto.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(tensor)
    return proto


@pytest.mark.parametrize("where", ["node", "subgraph", "subgraph's weights", "function", "sparse"])
def test_external_data_is_found_wherever_it_hides(tmp_path: Path, where: str) -> None:
    assert complaint(save(tmp_path, hidden(outside("a"), where))) == ("FW112", "m.onnx: a refers to '../secret'")


@pytest.mark.parametrize(
    ("entries", "code", "seen"),
    [
        ({"offset": "8"}, "FW111", "w.bin has 16 bytes, m.onnx needs 24"),
        ({"length": "99"}, "FW111", "w.bin has 16 bytes, m.onnx needs 99"),
        ({"offset": "-8"}, "FW110", "m.onnx: a has an offset or length below 0"),
        ({"length": "-8"}, "FW110", "m.onnx: a has an offset or length below 0"),
        ({"offset": "x"}, "FW110", "m.onnx: a has an offset or length that is not a number"),
    ],
)
def test_external_data_that_cannot_be_there_is_refused(
    tmp_path: Path, entries: dict[str, str], code: str, seen: str
) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 16)
    assert complaint(save(tmp_path, model([], (), [outside("a", "w.bin", **entries)]))) == (code, seen)


def test_missing_external_data_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, model([], (), [outside("a", "w.bin")]))
    assert complaint(path) == ("FW111", "m.onnx needs w.bin, which does not exist or is not a regular file")


def test_what_is_no_onnx_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    assert complaint(path) == ("FW110", f"{path} does not exist")
    assert complaint(tmp_path) == ("FW110", f"{tmp_path} is a folder")
    path.write_bytes(b"")
    assert complaint(path) == ("FW110", f"{path} (0 bytes) contains no graph with outputs")
    path.write_text("hello world\n")
    code, seen = complaint(path)
    assert (code, seen.split(": ")[0]) == ("FW110", f"{path} (12 bytes) is truncated or not an ONNX model")


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_truncated_file_is_refused(tmp_path: Path, part: float) -> None:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3, 40], [0.5] * 120)
    path = save(tmp_path, model([value("x", ["n", 3])], (), [weight]))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    assert complaint(path)[0] == "FW110"


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.fixture
def subject() -> Subject:
    return build_subject(Net(), "x: float32[batch, time, 3]")


@pytest.mark.parametrize(
    ("inputs", "seen"),
    [
        ([value("z", ["b", "t", 3])], "the file takes z; declared are x"),
        ([], "the file takes nothing; declared are x"),
        ([value("x", ["b", "t", 3]), value("z", [])], "the file takes x, z; declared are x"),
        ([value("x", ["b", 3])], "the file has x: float32[b, 3]; declared is x: float32[batch, time, 3]"),
        (
            [value("x", ["b", "t", 3], TensorProto.DOUBLE)],
            "the file has x: float64[b, t, 3]; declared is x: float32[batch, time, 3]",
        ),
    ],
)
def test_other_inputs_than_declared_are_refused(tmp_path: Path, subject: Subject, inputs: Any, seen: str) -> None:
    header = open_header(save(tmp_path, model(inputs)))
    with pytest.raises(UserError) as caught:
        check_signature(header, subject)
    assert (caught.value.finding.code, caught.value.finding.seen) == ("FW411", seen)


def test_a_model_is_opened_only_with_the_subjects_inputs(tmp_path: Path, subject: Subject) -> None:
    path = save(tmp_path, model([value("z", ["b"])]))
    assert open_model(path).inputs[0].name == "z"
    with pytest.raises(UserError) as caught:
        open_model(path, subject)
    assert caught.value.finding.code == "FW411"


def test_an_input_that_the_exporter_renamed_for_an_outputs_sake_is_named(tmp_path: Path, subject: Subject) -> None:
    named = model([value("x.1", ["b", "t", 3])])
    named.graph.output[0].name = "x"
    with pytest.raises(UserError) as caught:
        check_signature(open_header(save(tmp_path, named)), subject)
    assert caught.value.finding.seen == (
        "the file takes x.1; declared are x. An output is named x too, so the exporter renamed the input to x.1"
    )


def test_declared_inputs_and_those_of_unknown_rank_are_accepted(tmp_path: Path, subject: Subject) -> None:
    for shape in (["b", "t", 3], [None, None, None], None):
        check_signature(open_header(save(tmp_path, model([value("x", shape)]))), subject)


def test_axes_that_the_file_fixes_are_named(tmp_path: Path, subject: Subject) -> None:
    header = open_header(save(tmp_path, model([value("x", ["b", 10, 3])])))
    assert find_fixed_dims(header, subject) == ["x axis 1 (time) is fixed at 10"]
    assert find_fixed_dims(open_header(save(tmp_path, model([value("x", None)]))), subject) == []


def test_reading_a_header_leaves_the_file_alone(tmp_path: Path) -> None:
    path = save(tmp_path, model([value("x", ["n", 3])]))
    before = path.read_bytes()
    open_header(path)
    assert path.read_bytes() == before
    assert onnx.load(path).producer_name == "by hand"
