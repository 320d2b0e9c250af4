"""Declares the outputs of a joined file: the sizes that all pieces agree on, and names for the others."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from fairway.judge.formulas import CannotEvaluate, evaluate

FixedDims = Mapping[str, int]
"""The dims that a capture fixed, with their sizes."""


def merge_output(outputs: Sequence[ir.Value], fixed: Sequence[FixedDims]) -> ir.Value:
    """Return a value with the name and dtype of the first output, and with a shape that is valid for all."""
    merged = ir.Value(name=outputs[0].name, type=outputs[0].type)
    shapes = [value.shape for value in outputs]
    if any(shape is None for shape in shapes) or len({len(shape) for shape in shapes if shape is not None}) != 1:
        return merged  # another number of axes in another region
    axes = zip(*(shape for shape in shapes if shape is not None), strict=True)
    merged.shape = ir.Shape([_merge_dim(dims, fixed, f"{merged.name}_{axis}") for axis, dims in enumerate(axes)])
    return merged


def _merge_dim(dims: Sequence[int | ir.SymbolicDim], fixed: Sequence[FixedDims], name: str) -> int | str:
    texts = [dim if isinstance(dim, int) else str(dim.value or "") for dim in dims]
    if len(set(texts)) == 1 and texts[0] != "":
        return texts[0]
    for text in texts:
        if (
            isinstance(text, str)
            and text
            and all(_is_same_size(text, *pair) for pair in zip(texts, fixed, strict=True))
        ):
            return text
    return name


def _is_same_size(text: str, other: int | str, fixed: FixedDims) -> bool:
    """Return whether a size equals that of a capture, whose fixed dims may have turned it into a number."""
    if text == other:
        return True
    try:
        return isinstance(other, int) and bool(evaluate(ast.parse(text, mode="eval").body, fixed) == other)
    except (CannotEvaluate, SyntaxError):
        return False
