"""A file's graph in short: its operators, and its nodes and weights by the module that they come from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from fairway.model.onnx_file import open_file
from fairway.model.onnx_requirements import promised
from fairway.record.page.sanitize import name

MOST = 20_000
"""Nodes that are listed by name. All of them are counted."""

MODULES, KINDS = 4000, 500
"""Modules and kinds of operators that are told apart."""

DEEPEST = 32
"""Names in a module's path; what lies deeper is counted there."""

SCOPES, CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
_NOWHERE = "_empty_nn_module_stack_from_metadata_hook"
_UNNAMED = "(no module named)"


def read_graph(path: Path) -> tuple[dict[str, Any], Any]:
    """The summary, and the file's structure. No weight is read."""
    header, proto = open_file(path)
    every = list(_walk(proto.graph))
    for deepest in (DEEPEST, 8, 4, 2, 1, 0):  # whoever names modules without end sees the upper ones
        every = [(node, (parts[:deepest], kinds[:deepest])) for node, (parts, kinds) in every]
        tree = _ModuleTree()
        for _, scope in every:
            tree.add(*scope).nodes += 1
        if len(tree) <= MODULES:
            break
    operators = Counter(node.op_type for node, _ in every)
    _weigh(proto.graph, every, tree)
    modules = tree.rows()
    ranked = operators.most_common()
    shown = [[name(op), count] for op, count in ranked[:KINDS]]
    shown += [["(others)", sum(count for _, count in ranked[KINDS:])]] if len(ranked) > KINDS else []
    number = {op: min(index, KINDS) for index, (op, _) in enumerate(ranked)}
    return {
        "opset": header.opset,
        "producer": name(header.producer),
        "inputs": [name(str(one)) for one in header.inputs],
        "outputs": [name(str(one)) for one in header.outputs],
        "bytes": path.stat().st_size + sum((path.parent / one).stat().st_size for one in header.external),
        "operators": shown,
        "modules": modules,
        "nodes": [
            [name(node.name or (node.output[0] if node.output else "")), number[node.op_type], tree.add(*scope).index]
            for node, scope in every[:MOST]
        ],
        "total": len(every),
    }, proto


Scope = tuple[tuple[str, ...], tuple[str, ...]]


def module_of(node: Any) -> Scope | None:
    """The names on the way to a node's module, and their classes where the exporter wrote them down."""
    said = {prop.key: prop.value for prop in node.metadata_props if prop.key in (SCOPES, CLASSES)}
    scopes = re.findall(r"'([^']*)'", said.get(SCOPES, ""))[:-1]
    if scopes and scopes[0] != _NOWHERE:
        inside = scopes[-1].removeprefix("model").strip(".")
        classes = re.findall(r"'([^']*)'", said.get(CLASSES, ""))
        kinds = {path: kind.rsplit(".", 1)[-1] for path, kind in zip(scopes, classes, strict=False)}
        parts = tuple(inside.split(".")) if inside else ()
        whole = "model." if scopes[-1].startswith("model") else ""
        return parts, tuple(kinds.get(whole + ".".join(parts[: n + 1]), "") for n in range(len(parts)))
    if node.name.startswith("/"):
        return tuple(_traced(node.name)), ()
    return None


def _traced(path: str) -> list[str]:
    """TorchScript writes /model/net/net.0/Conv for the module net.0."""
    parts: list[str] = []
    for part in path.strip("/").split("/")[:-1]:
        if parts and part.startswith(parts[-1] + "."):
            part = part.removeprefix(parts[-1] + ".")
        parts.append(part)
    return parts[1:] if parts[:1] == ["model"] else parts


def _walk(graph: Any, outer: tuple[str, ...] = (_UNNAMED,)) -> Iterator[tuple[Any, Scope]]:
    """Every node with its module; one in the body of a loop or a choice has at least that of the loop."""
    for node in graph.node:
        scope = module_of(node) or (outer, ())
        yield node, scope
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _walk(inner, scope[0])


class _Module:
    """One row of the tree, while it is built."""

    def __init__(self, index: int, parent: int, called: str, kind: str) -> None:
        self.index, self.parent, self.called, self.kind = index, parent, called, kind
        self.nodes = self.parameters = self.bytes = 0


class _ModuleTree:
    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], _Module] = {(): _Module(0, -1, "", "")}

    def add(self, parts: tuple[str, ...], kinds: tuple[str, ...] = ()) -> _Module:
        found = self._known.get(parts)
        if found is None:
            above = self.add(parts[:-1], kinds[:-1])
            kind = kinds[len(parts) - 1] if len(kinds) >= len(parts) else ""
            found = self._known[parts] = _Module(len(self._known), above.index, parts[-1], kind)
        return found

    def __len__(self) -> int:
        return len(self._known)

    def rows(self) -> list[list[Any]]:
        """Parent, name, class, and the sums over the module and all below it: nodes, parameters, bytes."""
        modules = list(self._known.values())
        sums = [[m.nodes, m.parameters, m.bytes] for m in modules]
        for module in reversed(modules):  # a parent always stands before its children
            if module.parent >= 0:
                sums[module.parent] = [a + b for a, b in zip(sums[module.parent], sums[module.index], strict=True)]
        return [[m.parent, name(m.called), name(m.kind), *sums[m.index]] for m in modules]


def _weigh(graph: Any, every: list[tuple[Any, Scope]], tree: _ModuleTree) -> None:
    """Each weight counts once, for the first module that reads it."""
    readers: dict[str, Scope] = {}
    for node, scope in every:
        for value in node.input:
            readers.setdefault(value, scope)
    for tensor in graph.initializer:
        module = tree.add(*readers.get(tensor.name, ((), ())))
        module.parameters += prod(tensor.dims)
        module.bytes += promised(tensor)
