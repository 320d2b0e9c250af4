"""Translates a linear layer to Gemm with `transB`, so that the weight stays as it is in the checkpoint.

torch.onnx writes Transpose and MatMul, and folds the transpose into the weight, which is then in no checkpoint. If it
is not folded, ONNX Runtime folds it at load and needs a second copy. Gemm uses the weight unchanged. Compared with
MatMul it is up to a tenth slower or faster in some small layers, and equally fast in most (benchmarks/large/gemm.md).
"""

from __future__ import annotations

from fairway.model.user_types import OperatorFunctions
from fairway.torch_internals import GraphValue


def gemm_translations() -> OperatorFunctions:
    """Return the entries for dynamo's `custom_translation_table`."""
    import torch

    return {torch.ops.aten.linear.default: linear}


def linear(input: GraphValue, weight: GraphValue, bias: GraphValue = None) -> GraphValue:
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
