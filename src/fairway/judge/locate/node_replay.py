"""Run a file in slices to get every value of its graph. A value is kept only until no later node needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper

from fairway.judge.yardstick import Array
from fairway.model.ort_session import SessionSettings, open_session

MAX_SLICE_NODES = 24
"""At most this many nodes run together, with all their values kept."""

FIRST_SLICE_NODES, MAX_SLICE_BYTES = 4, 48 << 20
"""The nodes of the first slice, and the bytes that the values of a slice may take."""

BFLOAT16 = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)
"""The dtype of onnx's arrays in bfloat16, which numpy lacks."""

MAX_EMBEDDED_BYTES = 1 << 16
"""Weights up to this size are initializers of the slice, as some operators require. Larger ones are inputs."""


Value: TypeAlias = Array | list[Array]
"""A tensor, or a sequence of tensors."""


@dataclass
class ReplayedNode:
    """A node with its outputs by name, or with the runtime's refusal."""

    node: onnx.NodeProto
    outputs: Mapping[str, Value] = field(default_factory=dict)
    refusal: str = ""


class FileTensors:
    """A file's tensors, also external ones. They are read on each access and not kept."""

    def __init__(self, proto: onnx.ModelProto, folder: str) -> None:
        self._folder = folder
        self._by_name = {tensor.name: tensor for tensor in proto.graph.initializer}

    def __getitem__(self, name: str) -> Array:
        tensor = self._by_name[name]
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            reference, tensor = tensor, onnx.TensorProto()
            tensor.CopyFrom(reference)  # reading stores the bytes in the tensor, where they would stay
        array: Array = numpy_helper.to_array(tensor, self._folder)
        return array


def replay_nodes(proto: onnx.ModelProto, folder: str, feeds: Mapping[str, Array]) -> Iterator[ReplayedNode]:
    """Yield each node in the graph's order. Stop after the first one that the runtime refuses."""
    weights = FileTensors(proto, folder)
    nodes = list(proto.graph.node)
    needs = [list_reads(node) for node in nodes]
    last = {name: i for i, names in enumerate(needs) for name in names}
    live: dict[str, Value] = dict(feeds)
    start, fitting = 0, FIRST_SLICE_NODES
    while start < len(nodes):
        size = fitting
        while True:
            part = nodes[start : start + size]
            try:
                values = _run_slice(proto, part, live, weights)
                break
            except Exception as error:
                if size == 1:
                    yield ReplayedNode(part[0], refusal=str(error))
                    return
                size = 1 if size <= 4 else size // 4
        taken = sum(value.nbytes for value in values.values() if isinstance(value, np.ndarray))
        fitting = max(1, min(MAX_SLICE_NODES, 2 * len(part), len(part) * MAX_SLICE_BYTES // max(taken, 1)))
        for node in part:
            yield ReplayedNode(node, {name: values[name] for name in node.output if name})
        start += len(part)
        live = {name: value for name, value in {**live, **values}.items() if last.get(name, -1) >= start}
        del values


def list_reads(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node reads, also inside its branches and bodies."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            local_names = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
            for inner in graph.node:
                names += [name for name in list_reads(inner) if name not in local_names]
                local_names.update(inner.output)
            names += [value.name for value in graph.output if value.name not in local_names]
    return list(dict.fromkeys(names))


def _run_slice(
    proto: onnx.ModelProto, part: Sequence[onnx.NodeProto], live: Mapping[str, Value], weights: FileTensors
) -> dict[str, Value]:
    """Run these nodes and return their outputs."""
    outputs = [name for node in part for name in node.output if name]
    inputs = dict.fromkeys(name for node in part for name in list_reads(node) if name not in set(outputs))
    feeds: dict[str, Value] = {}
    embedded = []
    for name in inputs:
        if name in live:
            feeds[name] = live[name]
            continue
        weight = weights[name]
        if weight.nbytes <= MAX_EMBEDDED_BYTES:
            embedded.append(numpy_helper.from_array(weight, name))
        else:
            feeds[name] = weight
    graph = onnx.helper.make_graph(
        list(part),
        "slice",
        [_declare_input(name, value) for name, value in feeds.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        embedded,
    )
    model = onnx.helper.make_model(
        graph, opset_imports=proto.opset_import, functions=proto.functions, ir_version=proto.ir_version
    )
    session = open_session(model.SerializeToString(), SessionSettings(1, "ORT_DISABLE_ALL"))
    if any(value.type == "tensor(bfloat16)" for value in (*session.get_inputs(), *session.get_outputs())):
        return _run_with_bfloat16(session, outputs, feeds)
    return dict(zip(outputs, session.run(outputs, feeds), strict=True))


def _run_with_bfloat16(
    session: onnxruntime.InferenceSession, outputs: Sequence[str], feeds: Mapping[str, Value]
) -> dict[str, Value]:
    """Run a slice through OrtValues, because ONNX Runtime takes and returns no bfloat16 arrays."""

    def wrap(value: Value) -> onnxruntime.OrtValue:
        if isinstance(value, np.ndarray) and value.dtype == BFLOAT16:
            kind = onnx.TensorProto.BFLOAT16
            return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(value.view(np.uint16), kind)
        return onnxruntime.OrtValue.ortvalue_from_numpy(value)

    def unwrap(value: onnxruntime.OrtValue) -> Value:
        if value.data_type() != "tensor(bfloat16)":
            array: Value = value.numpy()
            return array
        narrow: Array = torch.utils.dlpack.from_dlpack(value).view(torch.int16).numpy().view(BFLOAT16).copy()
        return narrow

    values = session.run_with_ort_values(list(outputs), {name: wrap(value) for name, value in feeds.items()})
    return {name: unwrap(value) for name, value in zip(outputs, values, strict=True)}


def _declare_input(name: str, value: Value) -> onnx.ValueInfoProto:
    if isinstance(value, list):
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.asarray(value[0]).dtype if value else np.dtype(np.float32))
        return onnx.helper.make_tensor_sequence_value_info(name, kind, None)
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), None)
