"""Differential export: the same route from two examples. A constant that differs between the two files was baked.

This sees what sampling can miss, and names the node. Whether such a constant does harm is for the judge to say: if the
second file agrees with PyTorch at the first one's samples, the constant has no effect.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import onnx_ir as ir

from fairway.diagnostics import Where
from fairway.model.source import find_user_frame

MAX_SHOWN_ELEMENTS = 8
"""Elements of a constant that are shown."""


@dataclass(frozen=True)
class BakedConstant:
    """One difference between the two files."""

    where: Where
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.where.node}: {self.first} in one export, {self.second} in the other"


def compare_exports(first: str, second: str, limit: int = 20) -> list[BakedConstant]:
    """Differences in structure and constants, in graph order, at most `most` of them."""
    differences: list[BakedConstant] = []
    pairs = zip_longest(_list_nodes(ir.load(first).graph), _list_nodes(ir.load(second).graph))
    for a, b in pairs:
        if a is None or b is None or a.op_type != b.op_type or len(a.inputs) != len(b.inputs):
            node = a or b
            assert node is not None
            differences.append(BakedConstant(locate_node(node), _describe_node(a), _describe_node(b)))
            break
        differences += [BakedConstant(locate_node(a), x, y) for x, y in _compare_nodes(a, b)]
        if len(differences) >= limit:
            break
    return differences[:limit]


def _list_nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """Constant nodes are left out: they show up as inputs of the nodes that use them."""
    return (node for node in graph.all_nodes() if node.op_type != "Constant")


def _describe_node(node: ir.Node | None) -> str:
    return "nothing more" if node is None else f"{node.op_type} with {len(node.inputs)} inputs"


def _compare_nodes(a: ir.Node, b: ir.Node) -> Iterator[tuple[str, str]]:
    for x, y in zip(a.inputs, b.inputs, strict=True):
        if x is None or y is None or x is y:
            continue
        left, right = ir.convenience.get_const_tensor(x), ir.convenience.get_const_tensor(y)
        if left is None and right is None:
            continue
        if left is None or right is None or not _is_equal(left, right):
            yield _show_tensor(left), _show_tensor(right)
    for name in sorted(set(a.attributes) | set(b.attributes)):
        first, second = a.attributes.get(name), b.attributes.get(name)
        if _get_plain_value(first) != _get_plain_value(second):
            yield f"{name}={_get_plain_value(first)}", f"{name}={_get_plain_value(second)}"


def _is_equal(left: ir.TensorProtocol, right: ir.TensorProtocol) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if isinstance(left, ir.ExternalTensor) and isinstance(right, ir.ExternalTensor):
        place = (left.location, left.offset, left.length)
        if place == (right.location, right.offset, right.length) and os.path.samefile(left.path, right.path):
            return True  # large weights are not read for this
    return np.array_equal(left.numpy(), right.numpy(), equal_nan=left.dtype.is_floating_point())


def _get_plain_value(attribute: ir.Attr | None) -> object:
    """Graphs are walked node by node, so they count as equal here."""
    if attribute is None or attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return None
    value = attribute.value
    return value.numpy().tolist() if isinstance(value, ir.TensorProtocol) else value


def _show_tensor(tensor: ir.TensorProtocol | None) -> str:
    if tensor is None:
        return "computed"
    values = tensor.numpy().reshape(-1)
    text = ", ".join(str(v) for v in values[:MAX_SHOWN_ELEMENTS].tolist())
    return f"[{text}{', …' if values.size > MAX_SHOWN_ELEMENTS else ''}]"


def locate_node(node: ir.Node) -> Where:
    """The node, its module and the user's line, as far as the exporter wrote them down."""
    stack = node.metadata_props.get("pkg.torch.onnx.stack_trace", "")
    quoted = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', stack)
    frame = find_user_frame([Where(file=f, line=int(n), function=g) for f, n, g in quoted])
    scopes = re.findall(r"'([^']*)'", node.metadata_props.get("pkg.torch.onnx.name_scopes", ""))
    module = scopes[-2].removeprefix("model").lstrip(".") if len(scopes) > 1 else ""
    if not scopes and node.name and node.name.startswith("/"):
        module = node.name.rsplit("/", 1)[0].strip("/").removeprefix("model").strip("/").replace("/", ".")
    name = f"{node.name or '?'} ({node.op_type})"
    if frame is None:
        return Where(module=module or None, node=name)
    return Where(frame.file, frame.line, frame.function, frame.source, module or None, name)
