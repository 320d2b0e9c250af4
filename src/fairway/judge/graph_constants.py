"""Sizes and values that the file itself speaks of: the constants of its graph.

A size at which a file changes its ways stands in it as a constant: a comparison, a cut, a table's end. So does a
threshold. They are worth a sample each, whoever wrote the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations, islice

import onnx_ir as ir

from fairway.model.dims import Dim, Domain, Point
from fairway.model.values import LARGE

TELLING = (
    "Equal",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
    "Mod",
    "Min",
    "Max",
    "Clip",
    "Range",
    "Slice",
    "Where",
)
"""Operators whose whole numbers are most likely about sizes; their constants come first."""

MOST = 6
"""Constants taken for each dim. A graph can hold hundreds, most of them about axes and layer sizes."""

SMALL = 8
"""Elements a constant may have. What has more is data."""


COMPARING = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Min", "Max", "Clip")
"""Operators whose float constants are thresholds."""


def holds_branches(path: str) -> bool:
    """Return whether a file can go more than one way: it holds an `If` or a loop."""
    model = ir.load(path)
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    return any(node.op_type in ("If", "Loop") for graph in graphs for node in graph.all_nodes())


def thresholds_spoken_of(path: str) -> list[float]:
    """The single floats that something is compared with or cut at."""
    found: dict[float, None] = {}
    for node in ir.load(path).graph.all_nodes():
        for value in node.inputs if node.op_type in COMPARING else ():
            tensor = None if value is None else ir.convenience.get_const_tensor(value)
            if tensor is not None and tensor.dtype.is_floating_point() and tensor.size == 1:
                number = float(tensor.numpy().reshape(-1)[0])
                if math.isfinite(number) and abs(number) < LARGE:
                    found[number] = None
    return list(found)[:MOST]


def sizes_spoken_of(path: str, domain: Domain) -> tuple[dict[str, list[int]], list[Point]]:
    """For each dim the constants of the graph within its bounds, the telling ones first; and points at which two dims
    have such a constant as their product."""
    telling, others = _constants(ir.load(path).graph.all_nodes())
    spoken = list(dict.fromkeys([*telling, *others]))
    sizes = {dim.name: [n for n in spoken if n in dim.sizes][:MOST] for dim in domain.dims}
    pairs = combinations(domain.dims, 2)
    return sizes, [point for a, b in pairs for n in telling[:MOST] for point in _with_product(a, b, n)]


def _with_product(a: Dim, b: Dim, number: int) -> list[Point]:
    """Return up to two points of two dims whose sizes have this product and are not 1."""
    fitting = (n for n in a.sizes if n > 1 and number > n and number % n == 0 and number // n in b.sizes)
    return [{a.name: n, b.name: number // n} for n in islice(fitting, 2)]


def _constants(nodes: Iterable[ir.Node]) -> tuple[list[int], list[int]]:
    """Return the whole numbers of telling operators, and those of others."""
    telling: dict[int, None] = {}
    others: dict[int, None] = {}
    for node in nodes:
        found = telling if node.op_type in TELLING else others
        for value in node.inputs:
            tensor = None if value is None else ir.convenience.get_const_tensor(value)
            if tensor is None or tensor.size > SMALL:
                continue
            if tensor.dtype in (ir.DataType.INT64, ir.DataType.INT32):
                found.update(dict.fromkeys(int(n) for n in tensor.numpy().reshape(-1)))
            elif tensor.dtype == ir.DataType.FLOAT and found is telling:  # a size may be computed in floats
                whole = [float(n) for n in tensor.numpy().reshape(-1) if float(n).is_integer()]
                found.update(dict.fromkeys(int(n) for n in whole))
    return list(telling), list(others)
