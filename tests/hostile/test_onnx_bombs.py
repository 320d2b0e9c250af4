"""A file that asks for memory or for other files is refused by its header; nothing else is opened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from fairway.model import memory_check as room
from fairway.model import onnx_file
from fairway.model import onnx_requirements as onnx_asks
from fairway.model.onnx_file import check_memory, open_header

from .watch import opened, refusal

GIB = 2**30


@pytest.fixture(autouse=True)
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of one GiB, so that the texts below are the same on every machine."""
    for module in (onnx_asks, onnx_file, room):
        monkeypatch.setattr(module, "read_memory_bytes", lambda: GIB)


def value(name: str, shape: Any) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def save(folder: Path, nodes: Any = (), weights: Any = (), name: str = "m.onnx", **more: Any) -> Path:
    graph = helper.make_graph(list(nodes), "g", [value("x", ["n"])], [value("y", ["n"])], list(weights))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], **more)
    (folder / name).write_bytes(proto.SerializeToString())
    return folder / name


def external(location: str, dims: Any = (4,), **entries: str) -> Any:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=text)
    return tensor


def ints(name: str, *values: int) -> Any:
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


def refused(path: Path) -> tuple[str, str]:
    """The finding, and that nothing but the model file itself was opened for it."""
    with opened() as files:
        found = refusal(lambda: open_header(path))
    assert set(files) <= {str(path)}
    return found


# Memory


def test_dims_that_promise_more_than_the_tensor_holds_are_refused(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[10**9, 10**9])
    seen = "m.onnx: w declares 1000000000000000000 elements and contains 0"
    assert refused(save(tmp_path, weights=[tensor])) == ("FW110", seen)


@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16", "INT4", "BOOL", "DOUBLE", "INT64", "STRING", "COMPLEX64"])
def test_a_tensor_that_holds_what_it_promises_passes_in_every_encoding(tmp_path: Path, dtype: str) -> None:
    number = getattr(TensorProto, dtype)
    values: list[Any] = [b"a", b"b", b"c"] if dtype == "STRING" else [0, 1, 1]
    weights = [helper.make_tensor("w", number, [3], values)]
    if dtype not in ("STRING", "COMPLEX64"):
        array = onnx.numpy_helper.to_array(weights[0])
        weights.append(onnx.numpy_helper.from_array(array, "raw"))
    assert open_header(save(tmp_path, weights=weights)).weights == len(weights)


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("ConstantOfShape", ["big"], ["y"], name="n"),
        helper.make_node("Expand", ["x", "big"], ["y"], name="n"),
        helper.make_node("Tile", ["x", "big"], ["y"], name="n"),
        helper.make_node("Resize", ["x", "", "", "big"], ["y"], name="n"),
        helper.make_node("RandomNormal", [], ["y"], name="n", shape=[10**9, 10**9]),
        helper.make_node("RandomUniform", [], ["y"], name="n", shape=[10**9, 10**9]),
    ],
    ids=lambda node: node.op_type,
)
def test_a_node_that_makes_terabytes_of_a_constant_is_refused(tmp_path: Path, node: Any) -> None:
    asks = f"m.onnx: the {node.op_type} node n needs 1.0 EB; this machine has 1.1 GB of memory"
    assert refused(save(tmp_path, [node], [ints("big", 10**9, 10**9)])) == ("FW114", asks)
    held = helper.make_node("Constant", [], ["big"], value=ints("t", 10**9, 10**9))
    assert refused(save(tmp_path, [held, node])) == ("FW114", asks)


@pytest.mark.parametrize("op", ["Range", "Pad", "OneHot", "HannWindow"])
def test_other_nodes_that_grow_by_a_constant_are_refused_too(tmp_path: Path, op: str) -> None:
    inputs = {"Range": ["zero", "big", "one"], "HannWindow": ["big"]}.get(op, ["x", "big"])
    weights = [ints("zero", 0), ints("one", 1), ints("big", 10**15)]
    code, seen = refused(save(tmp_path, [helper.make_node(op, inputs, ["y"], name="n")], weights))
    assert (code, seen) == ("FW114", f"m.onnx: the {op} node n needs 1.0 PB; this machine has 1.1 GB of memory")


def test_a_bomb_in_a_subgraph_or_function_is_refused_too(tmp_path: Path) -> None:
    bomb = helper.make_node("ConstantOfShape", ["big"], ["y"], name="n")
    inner = helper.make_graph([bomb], "inner", [], [value("y", None)], [ints("big", 10**15)])
    branch = helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)
    assert refused(save(tmp_path, [branch]))[0] == "FW114"
    held = helper.make_node("Constant", [], ["big"], value_ints=[10**15])
    function = helper.make_function("own", "F", [], ["y"], [held, bomb], [helper.make_opsetid("", 18)])
    assert refused(save(tmp_path, functions=[function]))[0] == "FW114"


def test_a_sparse_tensor_that_would_fill_the_memory_with_zeros_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path)
    proto = onnx.load(path)
    sparse = proto.graph.sparse_initializer.add(dims=[10**6, 10**6])
    sparse.values.CopyFrom(helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0]))
    sparse.indices.CopyFrom(ints("i", 5))
    path.write_bytes(proto.SerializeToString())
    asks = "m.onnx: the sparse tensor v needs 4.0 TB; this machine has 1.1 GB of memory"
    assert refused(path) == ("FW114", asks)


def test_tensors_that_share_a_small_file_are_counted_by_their_memory(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 2**20)
    weights = [external("w.bin", [2**18]) for _ in range(1100)]
    header = open_header(save(tmp_path, weights=weights))
    asks = "m.onnx: its tensors need 1.2 GB; this machine has 1.1 GB of memory"
    assert refusal(lambda: check_memory(header)) == ("FW114", asks)


def test_a_sparse_data_file_counts_by_the_bytes_that_are_read(tmp_path: Path) -> None:
    os.truncate(os.open(tmp_path / "w.bin", os.O_CREAT | os.O_WRONLY), 1 << 43)
    header = open_header(save(tmp_path, weights=[external("w.bin", [2**41])]))
    assert refusal(lambda: check_memory(header))[0] == "FW114"


def test_a_model_file_of_nothing_but_holes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 43)
    with opened() as files:
        code, seen = refusal(lambda: open_header(path))
    assert (code, files) == ("FW110", [])
    assert "is larger than an ONNX file can be" in seen


def test_giant_sizes_that_are_only_declared_ask_for_nothing(tmp_path: Path) -> None:
    graph = helper.make_graph([], "g", [value("x", [2**62, 2**62])], [value("y", [2**62])])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    assert str(open_header(path).inputs[0]) == f"x: float32[{2**62}, {2**62}]"


def field(number: int, content: bytes) -> bytes:
    """A protobuf field that holds a message; the length as varint."""
    size, length = len(content), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes((number << 3 | 2, *length, size)) + content


def test_subgraphs_nested_beyond_reason_are_refused(tmp_path: Path) -> None:
    graph = value("y", None).SerializeToString()
    graph = field(12, graph)
    for _ in range(500):
        graph = field(1, field(5, field(6, graph)))  # a node's attribute is a graph
    opset = helper.make_opsetid("", 18).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(field(7, graph + field(12, b"")) + field(8, opset))
    assert refused(tmp_path / "m.onnx")[0] == "FW110"


# Other files


@pytest.fixture
def traps(tmp_path: Path) -> Path:
    """A folder with every kind of thing that external data could name; `secret` lies outside it."""
    (tmp_path / "secret").write_bytes(b"\0" * 64)
    home = tmp_path / "home"
    (home / "sub").mkdir(parents=True)
    (home / "w.bin").write_bytes(b"\0" * 64)
    (home / "link").symlink_to(tmp_path / "secret")
    (home / "folder").symlink_to(tmp_path)
    (home / "loop").symlink_to("loop")
    (home / "device").symlink_to("/dev/zero")
    os.mkfifo(home / "fifo")
    (home / "*/_ORT_MEM_ADDR_").mkdir(parents=True)
    (home / "*/_ORT_MEM_ADDR_/*").write_bytes(b"\0" * 64)
    return home


@pytest.mark.parametrize(
    "location",
    [
        "../secret",
        "/etc/passwd",
        "link",
        "folder/secret",
        "sub/../../secret",
        "sub/../w.bin",
        "loop",
        "device",
        "a\0b",
        "",
        "./../secret",
        "*/_ORT_MEM_ADDR_/*",
    ],
)
def test_a_name_that_leads_out_of_the_folder_is_refused(traps: Path, location: str) -> None:
    assert refused(save(traps, weights=[external(location)])) == ("FW112", f"m.onnx: w refers to {location!r}")


@pytest.mark.parametrize("location", ["fifo", "sub", "nosuch", "x" * 250 + "/w.bin"])
def test_what_is_no_plain_file_is_refused_and_never_waited_for(traps: Path, location: str) -> None:
    seen = f"m.onnx needs {location}, which does not exist or is not a regular file"
    assert refused(save(traps, weights=[external(location)])) == ("FW111", seen)


def test_a_name_longer_than_a_file_system_allows_is_refused(traps: Path) -> None:
    assert refused(save(traps, weights=[external("x" * 5000)]))[0] in ("FW111", "FW112")


def test_a_model_that_is_a_link_may_not_name_other_files(traps: Path) -> None:
    save(traps, weights=[external("w.bin")])
    (traps / "sub/m.onnx").symlink_to(traps / "m.onnx")
    (traps / "sub/w.bin").symlink_to(traps.parent / "secret")
    assert refused(traps / "sub/m.onnx") == ("FW112", "m.onnx: w refers to 'w.bin'")


@pytest.mark.parametrize(
    ("entries", "code", "seen"),
    [
        ({"offset": str(2**62)}, "FW111", f"w.bin has 64 bytes, m.onnx needs {2**62 + 16}"),
        ({"length": str(2**62)}, "FW111", f"w.bin has 64 bytes, m.onnx needs {2**62}"),
        ({"offset": "9" * 30}, "FW110", "m.onnx: w has an offset or length that is not a number"),
        ({"offset": "1_0"}, "FW110", "m.onnx: w has an offset or length that is not a number"),
        ({"offset": "٣"}, "FW110", "m.onnx: w has an offset or length that is not a number"),
        ({"offset": "-1"}, "FW110", "m.onnx: w has an offset or length below 0"),
        ({"length": "4"}, "FW110", "m.onnx: w declares 16 bytes and has a length of 4"),
        ({"basepath": "/"}, "FW110", "m.onnx: w has 'basepath' in its external data, which is unknown or repeated"),
    ],
)
def test_entries_that_cannot_be_meant_are_refused(traps: Path, entries: dict[str, str], code: str, seen: str) -> None:
    assert refused(save(traps, weights=[external("w.bin", **entries)])) == (code, seen)


def test_an_entry_that_stands_twice_is_refused(traps: Path) -> None:
    tensor = external("w.bin")
    tensor.external_data.add(key="location", value="link")
    seen = "m.onnx: w has 'location' in its external data, which is unknown or repeated"
    assert refused(save(traps, weights=[tensor])) == ("FW110", seen)


def test_a_tensor_that_lies_elsewhere_without_saying_where_is_refused(traps: Path) -> None:
    tensor = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    assert refused(save(traps, weights=[tensor])) == ("FW112", "m.onnx: w refers to ''")


def test_external_data_is_found_in_training_graphs_and_functions_defaults(traps: Path) -> None:
    path = save(traps)
    proto = onnx.load(path)
    proto.training_info.add().algorithm.initializer.append(external("../secret"))
    path.write_bytes(proto.SerializeToString())
    assert refused(path)[0] == "FW112"
    function = helper.make_function("own", "F", [], [], [], [helper.make_opsetid("", 18)])
    function.attribute_proto.append(helper.make_attribute("value", external("../secret")))
    assert refused(save(traps, functions=[function]))[0] == "FW112"


@pytest.mark.parametrize("name", ["m.json", "m.textproto", "m.ort", "m.xml"])
def test_an_ending_by_which_engines_read_the_same_bytes_differently_is_refused(tmp_path: Path, name: str) -> None:
    seen = f"{tmp_path / name} does not end in .onnx; runtimes choose the format by the ending"
    assert refused(save(tmp_path, name=name)) == ("FW110", seen)


def test_a_pipe_instead_of_a_model_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.onnx")
    assert refused(tmp_path / "m.onnx") == ("FW110", f"{tmp_path / 'm.onnx'} is not a regular file")


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    whole = save(tmp_path, weights=[ints("abcd", 1)]).read_bytes()
    (tmp_path / "m.onnx").write_bytes(whole.replace(b"\x01x", b"\x01\xff"))
    assert refused(tmp_path / "m.onnx") == ("FW110", f"{tmp_path / 'm.onnx'} contains a name that is not valid text")
