"""Summarize the graph of a file: its operators, and its nodes and weights by the module that they come from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from fairway.model.onnx_file import open_structure
from fairway.model.onnx_requirements import count_promised_bytes
from fairway.record.page.sanitize import PageData, clean_name

if TYPE_CHECKING:
    import onnx

MAX_NODES = 20_000
"""Nodes that are listed by name. All of them are counted."""

MAX_MODULES = 4000
MAX_OPERATORS = 500
"""Kinds of operators that are listed. The others are counted together."""

MODULE_DEPTHS = (32, 8, 4, 2, 1, 0)
"""Names in the path of a module; a deeper one is counted above. The first depth with few enough modules is used."""

SCOPES_KEY = "pkg.torch.onnx.name_scopes"
CLASSES_KEY = "pkg.torch.onnx.class_hierarchy"
_EMPTY_SCOPE = "_empty_nn_module_stack_from_metadata_hook"
_UNNAMED = "(no module named)"

Scope: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""The names on the path to a module, and their classes if they are known."""


def read_graph(path: Path) -> tuple[PageData, onnx.ModelProto]:
    """Return the summary, and the structure of the file. No weight is read."""
    header, proto = open_structure(path)
    nodes, tree = _build_tree(proto.graph)
    _count_weights(proto.graph, nodes, tree)
    ranked = Counter(node.op_type for node, _ in nodes).most_common()
    operators: list[list[object]] = [[clean_name(operator), count] for operator, count in ranked[:MAX_OPERATORS]]
    if len(ranked) > MAX_OPERATORS:
        operators.append(["(others)", sum(count for _, count in ranked[MAX_OPERATORS:])])
    numbers = {operator: min(index, MAX_OPERATORS) for index, (operator, _) in enumerate(ranked)}
    return {
        "opset": header.opset,
        "producer": clean_name(header.producer),
        "inputs": [clean_name(str(value)) for value in header.inputs],
        "outputs": [clean_name(str(value)) for value in header.outputs],
        "bytes": path.stat().st_size + sum((path.parent / name).stat().st_size for name in header.external),
        "operators": operators,
        "modules": tree.list_rows(),
        "nodes": [
            [clean_name(name_node(node)), numbers[node.op_type], tree.add(*scope).index]
            for node, scope in nodes[:MAX_NODES]
        ],
        "total": len(nodes),
    }, proto


def name_node(node: onnx.NodeProto) -> str:
    """Return the name of a node, or of its first output if it has none."""
    return node.name or (node.output[0] if node.output else "")


def find_module(node: onnx.NodeProto) -> Scope | None:
    """Return the module of a node, if the exporter wrote it down."""
    metadata = {entry.key: entry.value for entry in node.metadata_props if entry.key in (SCOPES_KEY, CLASSES_KEY)}
    scopes = re.findall(r"'([^']*)'", metadata.get(SCOPES_KEY, ""))[:-1]
    if scopes and scopes[0] != _EMPTY_SCOPE:
        inside = scopes[-1].removeprefix("model").strip(".")
        classes = re.findall(r"'([^']*)'", metadata.get(CLASSES_KEY, ""))
        kinds = {path: kind.rsplit(".", 1)[-1] for path, kind in zip(scopes, classes, strict=False)}
        parts = tuple(inside.split(".")) if inside else ()
        prefix = "model." if scopes[-1].startswith("model") else ""
        return parts, tuple(kinds.get(prefix + ".".join(parts[: n + 1]), "") for n in range(len(parts)))
    if node.name.startswith("/"):
        return tuple(_split_traced_name(node.name)), ()
    return None


def _split_traced_name(name: str) -> list[str]:
    """Return the path of the module. TorchScript writes /model/net/net.0/Conv for the module net.0."""
    parts: list[str] = []
    for part in name.strip("/").split("/")[:-1]:
        if parts and part.startswith(parts[-1] + "."):
            part = part.removeprefix(parts[-1] + ".")
        parts.append(part)
    return parts[1:] if parts[:1] == ["model"] else parts


def _build_tree(graph: onnx.GraphProto) -> tuple[list[tuple[onnx.NodeProto, Scope]], _ModuleTree]:
    """Return all nodes with their modules, and the tree of the modules, as deep as their number allows."""
    nodes = list(_walk(graph))
    for depth in MODULE_DEPTHS:
        nodes = [(node, (parts[:depth], kinds[:depth])) for node, (parts, kinds) in nodes]
        tree = _ModuleTree()
        for _, scope in nodes:
            tree.add(*scope).nodes += 1
        if len(tree) <= MAX_MODULES:
            break
    return nodes, tree


def list_subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the bodies of a loop or the branches of an `If`."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _walk(graph: onnx.GraphProto, outer: tuple[str, ...] = (_UNNAMED,)) -> Iterator[tuple[onnx.NodeProto, Scope]]:
    """Yield every node with its module. A node inside a loop or a branch without a module gets that of the loop."""
    for node in graph.node:
        scope = find_module(node) or (outer, ())
        yield node, scope
        for subgraph in list_subgraphs(node):
            yield from _walk(subgraph, scope[0])


class _ModuleRow:
    """One row of the tree, while it is built."""

    def __init__(self, index: int, parent: int, name: str, kind: str) -> None:
        self.index, self.parent, self.name, self.kind = index, parent, name, kind
        self.nodes = self.parameters = self.bytes = 0


class _ModuleTree:
    """Modules by their paths."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, ...], _ModuleRow] = {(): _ModuleRow(0, -1, "", "")}

    def add(self, parts: tuple[str, ...], kinds: tuple[str, ...] = ()) -> _ModuleRow:
        """Return the row of a module. It is added with all modules above it if it is new."""
        row = self._rows.get(parts)
        if row is None:
            above = self.add(parts[:-1], kinds[:-1])
            kind = kinds[len(parts) - 1] if len(kinds) >= len(parts) else ""
            row = self._rows[parts] = _ModuleRow(len(self._rows), above.index, parts[-1], kind)
        return row

    def __len__(self) -> int:
        return len(self._rows)

    def list_rows(self) -> list[list[object]]:
        """Return parent, name and class of each module, and its nodes, parameters and bytes with all modules below."""
        rows = list(self._rows.values())
        sums = [[row.nodes, row.parameters, row.bytes] for row in rows]
        for row in reversed(rows):  # a parent always stands before its children
            if row.parent >= 0:
                sums[row.parent] = [a + b for a, b in zip(sums[row.parent], sums[row.index], strict=True)]
        return [[row.parent, clean_name(row.name), clean_name(row.kind), *sums[row.index]] for row in rows]


def _count_weights(graph: onnx.GraphProto, nodes: Sequence[tuple[onnx.NodeProto, Scope]], tree: _ModuleTree) -> None:
    """Add each weight to the first module that reads it."""
    readers: dict[str, Scope] = {}
    for node, scope in nodes:
        for value in node.input:
            readers.setdefault(value, scope)
    for tensor in graph.initializer:
        row = tree.add(*readers.get(tensor.name, ((), ())))
        row.parameters += prod(tensor.dims)
        row.bytes += count_promised_bytes(tensor)
