"""Find sizes and values to test among the constants of a file's graph.

A size at which a file behaves differently is in its graph as a constant: a comparison, a cut, a table's end. So is a
threshold. Each is worth a sample, whichever exporter wrote the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations, islice

import onnx_ir as ir

from fairway.model.dims import Dim, Domain, Point
from fairway.model.values import LARGE_MAGNITUDE

SIZE_OPERATORS = (
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
"""Operators whose whole numbers are most likely sizes. Their constants come first."""

MAX_CONSTANTS = 6
"""At most this many constants are used for each dim. A graph can have hundreds, mostly axes and layer sizes."""

MAX_CONSTANT_ELEMENTS = 8
"""A constant with more elements is data."""


THRESHOLD_OPERATORS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Min", "Max", "Clip")
"""Operators whose float constants are thresholds."""


def has_branches(path: str) -> bool:
    """Return whether a file contains an `If` or a loop."""
    model = ir.load(path)
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    return any(node.op_type in ("If", "Loop") for graph in graphs for node in graph.all_nodes())


def find_thresholds(path: str, has_integers: bool) -> list[float]:
    """Return the single numbers with which something is compared or clipped; whole ones if an input has such."""
    thresholds: dict[float, None] = {}
    integers: dict[float, None] = {}
    for node in ir.load(path).graph.all_nodes():
        for value in node.inputs if node.op_type in THRESHOLD_OPERATORS else ():
            tensor = None if value is None else ir.convenience.get_const_tensor(value)
            if tensor is None or tensor.size != 1:
                continue
            number = float(tensor.numpy().reshape(-1)[0])
            if not tensor.dtype.is_floating_point():
                integers.update({number: None} if has_integers else {})
            elif math.isfinite(number) and abs(number) < LARGE_MAGNITUDE:
                thresholds[number] = None
    return [*list(thresholds)[:MAX_CONSTANTS], *list(integers)[:MAX_CONSTANTS]]


def find_sizes(path: str, domain: Domain) -> tuple[dict[str, list[int]], list[Point]]:
    """Return for each dim the constants of the graph within its bounds, and points with such a constant as a product.

    Constants of `SIZE_OPERATORS` come first, and only they are used as the product of two dims.
    """
    telling, others = _collect_integers(ir.load(path).graph.all_nodes())
    constants = list(dict.fromkeys([*telling, *others]))
    sizes = {dim.name: [n for n in constants if n in dim.sizes][:MAX_CONSTANTS] for dim in domain.dims}
    pairs = combinations(domain.dims, 2)
    return sizes, [
        point for a, b in pairs for n in telling[:MAX_CONSTANTS] for point in _find_points_with_product(a, b, n)
    ]


def _find_points_with_product(a: Dim, b: Dim, number: int) -> list[Point]:
    """Return up to two points of two dims whose sizes have this product and are not 1."""
    fitting = (n for n in a.sizes if n > 1 and number > n and number % n == 0 and number // n in b.sizes)
    return [{a.name: n, b.name: number // n} for n in islice(fitting, 2)]


def _collect_integers(nodes: Iterable[ir.Node]) -> tuple[list[int], list[int]]:
    """Return the whole numbers of `SIZE_OPERATORS`, and those of other operators."""
    telling: dict[int, None] = {}
    others: dict[int, None] = {}
    for node in nodes:
        numbers = telling if node.op_type in SIZE_OPERATORS else others
        for value in node.inputs:
            tensor = None if value is None else ir.convenience.get_const_tensor(value)
            if tensor is None or tensor.size > MAX_CONSTANT_ELEMENTS:
                continue
            if tensor.dtype in (ir.DataType.INT64, ir.DataType.INT32):
                numbers.update(dict.fromkeys(int(n) for n in tensor.numpy().reshape(-1)))
            elif tensor.dtype == ir.DataType.FLOAT and numbers is telling:  # a size may be computed in floats
                integral_floats = [float(n) for n in tensor.numpy().reshape(-1) if float(n).is_integer()]
                numbers.update(dict.fromkeys(int(n) for n in integral_floats))
    return list(telling), list(others)
