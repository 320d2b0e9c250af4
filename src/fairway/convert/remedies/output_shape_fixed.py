"""A graph declares an output's dim as fixed only if it is fixed.

Exporters declare outputs and inner values with the sizes they saw. For example, torch's decomposition of nn.GRU under
`Dim.AUTO` fixes the length in the declared shapes, while the nodes compute the right ones. A runtime warns or refuses,
and later passes fold the wrong sizes in. So all inner declarations are set aside, and the shapes are inferred again
from the inputs: once with their dims as names, and twice with numbers in place of the names. A dim with the same number
both times is fixed. A dim with two numbers varies and gets its inferred name, if there is one. A dim that cannot be
inferred is not declared as fixed. Dims that are symbolic already stay as they are.

The inference starts from the inputs' declared dims, so the pass runs after they are declared. Refuses if no input has a
dim.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy, add_pass
from fairway.diagnostics import Code
from fairway.torch_internals import tree_leaves

if TYPE_CHECKING:
    import onnx_ir as ir

Dims = tuple[int | str | None, ...]
SIZE_STEP = 16
"""The numbers tried are multiples of this, so that divisions, strides and groups inside the model come out even. They
are small, since onnx computes values made from shapes element by element: a Range over a large image takes seconds."""


def release_fixed_dims(model: ir.Model) -> bool:
    """Repair the shapes of outputs and inner values, and return whether any was declared wrongly."""
    values = list(_inner_values(model))
    names = sorted({d for v in model.graph.inputs for d in _read_dims(v) or () if isinstance(d, str)})
    if not names or not any(isinstance(d, int) for v in values for d in _read_dims(v) or ()):
        return False
    rounds = [
        _infer_dims(model, values, {}),
        _infer_dims(model, values, {name: SIZE_STEP * (2 + i) for i, name in enumerate(names)}),
        _infer_dims(model, values, {name: SIZE_STEP * (3 + i + len(names)) for i, name in enumerate(names)}),
    ]
    changed = False
    outputs = {id(v) for v in model.graph.outputs}
    for index, value in enumerate(values):
        declared = _read_dims(value)
        if declared is None:
            continue
        actual = _merge_dims(declared, [shapes[index] for shapes in rounds], id(value) in outputs)
        if actual != declared:
            _declare_dims(value, actual)
            changed = True
    return changed


def _merge_dims(declared: Dims, rounds: list[Dims | None], is_output: bool) -> Dims:
    named, *numbered = (dims if dims is not None and len(dims) == len(declared) else None for dims in rounds)
    merged: list[int | str | None] = []
    for axis, dim in enumerate(declared):
        name = named[axis] if named is not None else None
        sizes = [dims[axis] if dims is not None else None for dims in numbered]
        if not isinstance(dim, int):
            merged.append(dim)
        elif isinstance(name, int) or (None not in sizes and sizes[0] == sizes[1]):
            merged.append(name if isinstance(name, int) else sizes[0])
        elif None not in sizes or is_output:
            merged.append(name)
        else:
            merged.append(dim)  # an inner dim that nothing contradicts
    return tuple(merged)


def _infer_dims(model: ir.Model, values: list[ir.Value], sizes: dict[str, int]) -> list[Dims | None]:
    """Return the shapes that follow from the inputs alone, with sizes for names; None for values without one."""
    import onnx_ir as ir
    from onnx_ir.passes.common import ShapeInferencePass

    inputs = [(v, v.shape) for v in model.graph.inputs]
    declared = [(v, v.shape) for v in values]
    # The inputs of Scan and Loop bodies are inferred too, and must not keep the sizes tried here.
    body_inputs = [(v, v.shape) for graph in model.graphs() for v in graph.inputs if graph is not model.graph]
    logger = logging.getLogger("onnx_ir.passes.common.shape_inference")
    level = logger.level
    try:
        logger.setLevel(logging.ERROR)
        for value, shape in inputs:
            if shape is not None:
                value.shape = ir.Shape([sizes.get(str(d), d) for d in _raw_dims(shape)])
        for value in values:
            value.shape = None
        ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
        return [_read_dims(v) for v in values]
    finally:
        logger.setLevel(level)
        for value, shape in (*inputs, *declared, *body_inputs):
            value.shape = shape


def _inner_values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        for node in graph:
            yield from (value for value in node.outputs if value.name)


def _raw_dims(shape: ir.Shape) -> list[int | str | None]:
    return [d if isinstance(d, int) else d.value for d in shape]


def _read_dims(value: ir.Value) -> Dims | None:
    """Return a value's dims: numbers, names, and None for a dim without a name."""
    return None if value.shape is None else tuple(_parse_dim(d) for d in _raw_dims(value.shape))


def _parse_dim(dim: int | str | None) -> int | str | None:
    """Return a dim as it is meant: torch names some fixed dims by digits, and onnx calls unnamed ones `unk__0`."""
    if isinstance(dim, str) and dim.isdigit():
        return int(dim)
    return None if isinstance(dim, str) and dim.startswith("unk__") else dim


def _declare_dims(value: ir.Value, dims: Dims) -> None:
    import onnx_ir as ir

    value.shape = ir.Shape(list(dims))


def detect(case: Case) -> Match | Refusal:
    if not any(isinstance(leaf, torch.Tensor) and leaf.dim() for leaf in tree_leaves((case.args, case.kwargs))):
        return Refusal("no input has a dim that could vary")
    return Match("dims that vary are not declared as fixed")


def apply(case: Case, match: Match) -> AbstractContextManager[None]:
    return add_pass(case, release_fixed_dims)


REMEDY = Remedy(
    name="output_shape_fixed",
    cures=Code.OUTPUT_SHAPE_FIXED,
    title="Declares only those dims of outputs as fixed that are fixed",
    stage="graph",
    affected={"torch": "==2.13.*"},
    upstream=("pytorch/pytorch#191855",),
    safety="Only declared shapes change, never a node; fewer dims are declared as fixed, never more.",
    detect=detect,
    apply=apply,
    order=50,
)
