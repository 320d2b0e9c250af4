"""A graph declares an output's dim as fixed only where it really is.

Exporters declare outputs and inner values with the sizes they saw: torch's decomposition of nn.GRU under
`Dim.AUTO` fixes the length in the declared shapes, while the nodes compute the right ones. A runtime warns
or refuses, and later passes fold the untruth in. So all inner declarations are set aside and the shapes are
inferred anew from the inputs: once with their dims as names, and twice with numbers in place of the names.
A dim with the same number both times is fixed; one with two numbers varies and gets its name, or none if
none follows from the inputs'; one that cannot be inferred is not claimed to be fixed. Dims that are
symbolic already stay as they are.

The inputs' declared dims are the measure, so the pass has to run after they are declared. Refuses where no
input has a dim.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy, passing

if TYPE_CHECKING:
    import onnx_ir as ir

Dims = tuple[int | str | None, ...]
STEP = 16
"""Sizes tried are multiples of this, so that divisions, strides and groups inside the model come out even. Small ones,
since onnx computes along what is made from shapes, element by element: a Range over all of an image takes seconds."""


def release_fixed_dims(model: ir.Model) -> bool:
    """The pass: repairs outputs and inner values, and answers whether anything was declared wrongly."""
    values = list(_inner_values(model))
    names = sorted({d for v in model.graph.inputs for d in _dims(v) or () if isinstance(d, str)})
    if not names or not any(isinstance(d, int) for v in values for d in _dims(v) or ()):
        return False
    rounds = [
        _inferred(model, values, {}),
        _inferred(model, values, {name: STEP * (2 + i) for i, name in enumerate(names)}),
        _inferred(model, values, {name: STEP * (3 + i + len(names)) for i, name in enumerate(names)}),
    ]
    changed = False
    outputs = {id(v) for v in model.graph.outputs}
    for index, value in enumerate(values):
        declared = _dims(value)
        if declared is None:
            continue
        true = _merged(declared, [one[index] for one in rounds], id(value) in outputs)
        if true != declared:
            _declare(value, true)
            changed = True
    return changed


def _merged(declared: Dims, rounds: list[Dims | None], output: bool) -> Dims:
    named, *numbered = (one if one is not None and len(one) == len(declared) else None for one in rounds)
    merged: list[int | str | None] = []
    for axis, dim in enumerate(declared):
        name = named[axis] if named is not None else None
        sizes = [one[axis] if one is not None else None for one in numbered]
        if not isinstance(dim, int):
            merged.append(dim)
        elif isinstance(name, int) or (None not in sizes and sizes[0] == sizes[1]):
            merged.append(name if isinstance(name, int) else sizes[0])
        elif None not in sizes or output:
            merged.append(name)
        else:
            merged.append(dim)  # an inner dim that nothing contradicts
    return tuple(merged)


def _inferred(model: ir.Model, values: list[ir.Value], sizes: dict[str, int]) -> list[Dims | None]:
    """The shapes that follow from the inputs alone, with sizes for names; None where nothing follows."""
    import onnx_ir as ir
    from onnx_ir.passes.common import ShapeInferencePass

    inputs = [(v, v.shape) for v in model.graph.inputs]
    declared = [(v, v.shape) for v in values]
    # What Scan and Loop hand to their bodies is inferred too, and must not stay behind with the sizes tried here.
    handed = [(v, v.shape) for graph in model.graphs() for v in graph.inputs if graph is not model.graph]
    quiet = logging.getLogger("onnx_ir.passes.common.shape_inference")
    level = quiet.level
    try:
        quiet.setLevel(logging.ERROR)
        for value, shape in inputs:
            if shape is not None:
                value.shape = ir.Shape([sizes.get(str(d), d) for d in _raw(shape)])
        for value in values:
            value.shape = None
        ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
        return [_dims(v) for v in values]
    finally:
        quiet.setLevel(level)
        for value, shape in (*inputs, *declared, *handed):
            value.shape = shape


def _inner_values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        for node in graph:
            yield from (value for value in node.outputs if value.name)


def _raw(shape: ir.Shape) -> list[int | str | None]:
    return [d if isinstance(d, int) else d.value for d in shape]


def _dims(value: ir.Value) -> Dims | None:
    """Numbers, names, and None for a dim without a name."""
    return None if value.shape is None else tuple(_plain(d) for d in _raw(value.shape))


def _plain(dim: int | str | None) -> int | str | None:
    """torch writes some fixed dims as names made of digits; onnx calls a dim without a name `unk__0`."""
    if isinstance(dim, str) and dim.isdigit():
        return int(dim)
    return None if isinstance(dim, str) and dim.startswith("unk__") else dim


def _declare(value: ir.Value, dims: Dims) -> None:
    import onnx_ir as ir

    value.shape = ir.Shape(list(dims))


def detect(case: Case) -> Match | Refusal:
    if not any(isinstance(t, torch.Tensor) and t.dim() for t in _leaves((case.args, case.kwargs))):
        return Refusal("no input has a dim that could vary")
    return Match("outputs declared with a fixed dim that varies are declared as varying")


def _leaves(tree: Any) -> Any:
    return torch.utils._pytree.tree_leaves(tree)


def apply(case: Case, match: Match) -> AbstractContextManager[None]:
    return passing(case, release_fixed_dims)


REMEDY = Remedy(
    name="output_shape_fixed",
    cures="FW315",
    title="Declares outputs with the dims that really are fixed",
    stage="graph",
    affected={"torch": "==2.13.*"},
    upstream=("pytorch/pytorch#191855",),
    safety="Only declared shapes change, no node does; a dim less is claimed, never one more.",
    detect=detect,
    apply=apply,
)
