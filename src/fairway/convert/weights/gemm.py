"""A linear layer as Gemm with `transB`: the weight stays as the checkpoint has it.

torch.onnx writes Transpose and MatMul, and folds the transpose into the weight, which then lies in no checkpoint; left
unfolded, ONNX Runtime folds it at load, at the price of a second copy. Gemm takes it as it is. Beside MatMul it is now
and then a tenth slower or faster in small layers and no different in most (benchmarks/large/gemm.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def gemm_translations() -> dict[Any, Callable[..., Any]]:
    """For dynamo's `custom_translation_table`."""
    import torch

    return {torch.ops.aten.linear.default: linear}


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """torch.nn.functional.linear over any number of leading dims."""
    from onnxscript import opset18 as op

    operands = (weight,) if bias is None else (weight, bias)
    if input.shape is not None and len(input.shape) == 2:
        return op.Gemm(input, *operands, transB=1)
    width, features = weight.shape[1], weight.shape[0]
    flat = op.Reshape(input, op.Constant(value_ints=[-1, int(width)]))
    leading = op.Shape(input, start=0, end=-1)
    shape = op.Concat(leading, op.Constant(value_ints=[int(features)]), axis=0)
    return op.Reshape(op.Gemm(flat, *operands, transB=1), shape)
