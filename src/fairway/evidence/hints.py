"""Sizes and values that the file itself speaks of: the constants of its graph.

A size at which a file changes its ways stands in it as a constant: a comparison, a cut, a table's end. So does a
threshold. They are worth a sample each, whoever wrote the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx_ir as ir

from fairway.subject.dims import Domain
from fairway.subject.values import LARGE

TELLING = (
    "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Mod", "Min", "Max", "Clip", "Range", "Slice", "Where",
)  # fmt: skip
"""Operators whose whole numbers are most likely about sizes; their constants come first."""

MOST = 6
"""Constants taken for each dim. A graph can hold hundreds, most of them about axes and layer sizes."""

SMALL = 8
"""Elements a constant may have. What has more is data."""


COMPARING = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Min", "Max", "Clip")
"""Operators whose float constants are thresholds."""


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


def sizes_spoken_of(path: str, domain: Domain) -> dict[str, list[int]]:
    """For each dim the constants of the graph within its bounds, the telling ones first."""
    spoken = _constants(ir.load(path).graph.all_nodes())
    return {dim.name: [n for n in spoken if n in dim.sizes][:MOST] for dim in domain.dims}


def _constants(nodes: Iterable[ir.Node]) -> list[int]:
    telling: dict[int, None] = {}
    others: dict[int, None] = {}
    for node in nodes:
        found = telling if node.op_type in TELLING else others
        for value in node.inputs:
            tensor = None if value is None else ir.convenience.get_const_tensor(value)
            if tensor is not None and tensor.dtype in (ir.DataType.INT64, ir.DataType.INT32) and tensor.size <= SMALL:
                found.update(dict.fromkeys(int(n) for n in tensor.numpy().reshape(-1)))
    return list({**telling, **others})
