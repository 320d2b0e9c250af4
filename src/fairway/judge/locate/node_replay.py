"""A file run in slices: every value of the graph, each kept only as long as a later node needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from fairway.judge.yardstick import Array

SLICE = 24
"""Nodes that are run at once, with all their values kept."""

FIRST, HELD = 4, 48 << 20
"""Nodes to begin with, and bytes that the values of a slice may take: fewer nodes at once where values are large."""

EMBED = 1 << 16
"""Weights up to so many bytes stand in the slice; operators may want them there. Larger ones are handed in."""


@dataclass
class ReplayedNode:
    """One node, and what it gave: arrays by name, or the runtime's words where it refused."""

    node: Any
    gave: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""


class FileTensors:
    """A file's tensors, read when asked for and not kept, also where they lie beside the file."""

    def __init__(self, proto: Any, folder: str) -> None:
        self._folder = folder
        self._by_name = {tensor.name: tensor for tensor in proto.graph.initializer}

    def __getitem__(self, name: str) -> Array:
        tensor = self._by_name[name]
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            reference, tensor = tensor, onnx.TensorProto()
            tensor.CopyFrom(reference)  # what is read is put into the tensor, and would stay there
        array: Array = numpy_helper.to_array(tensor, self._folder)
        return array


def replay(proto: Any, folder: str, feeds: Mapping[str, Array]) -> Iterator[ReplayedNode]:
    """Node after node in the graph's order. Ends at the first one that the runtime refuses."""
    weights = FileTensors(proto, folder)
    nodes = list(proto.graph.node)
    needs = [reads(node) for node in nodes]
    last = {name: i for i, names in enumerate(needs) for name in names}
    live: dict[str, Any] = dict(feeds)
    start, fitting = 0, FIRST
    while start < len(nodes):
        size = fitting
        while True:
            part = nodes[start : start + size]
            try:
                got = _run(proto, part, live, weights)
                break
            except Exception as error:
                if size == 1:
                    yield ReplayedNode(part[0], refused=str(error))
                    return
                size = 1 if size <= 4 else size // 4
        taken = sum(value.nbytes for value in got.values() if isinstance(value, np.ndarray))
        fitting = max(1, min(SLICE, 2 * len(part), len(part) * HELD // max(taken, 1)))
        for node in part:
            yield ReplayedNode(node, {name: got[name] for name in node.output if name})
        start += len(part)
        live = {name: value for name, value in {**live, **got}.items() if last.get(name, -1) >= start}
        del got


def reads(node: Any) -> list[str]:
    """What a node takes, also from within its branches and bodies."""
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            made = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
            for inner in graph.node:
                found += [name for name in reads(inner) if name not in made]
                made.update(inner.output)
            found += [value.name for value in graph.output if value.name not in made]
    return list(dict.fromkeys(found))


def _run(proto: Any, part: Sequence[Any], live: Mapping[str, Any], weights: FileTensors) -> dict[str, Any]:
    """The values that these nodes give."""
    made = [name for node in part for name in node.output if name]
    wanted = dict.fromkeys(name for node in part for name in reads(node) if name not in set(made))
    feeds: dict[str, Any] = {}
    embedded = []
    for name in wanted:
        value = live[name] if name in live else weights[name]
        if name not in live and value.nbytes <= EMBED:
            embedded.append(numpy_helper.from_array(value, name))
        else:
            feeds[name] = value
    graph = onnx.helper.make_graph(
        list(part),
        "slice",
        [_declared(name, value) for name, value in feeds.items()],
        [onnx.ValueInfoProto(name=name) for name in made],
        embedded,
    )
    model = onnx.helper.make_model(
        graph, opset_imports=proto.opset_import, functions=proto.functions, ir_version=proto.ir_version
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(made, session.run(made, feeds), strict=True))


def _declared(name: str, value: Any) -> Any:
    if isinstance(value, list):
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.asarray(value[0]).dtype if value else np.dtype(np.float32))
        return onnx.helper.make_tensor_sequence_value_info(name, kind, None)
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), None)
