"""Exports a small model by one route and compares it with PyTorch at sizes other than the example's."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence

import numpy as np
import onnxruntime
import torch
from torch.export import Dim

from fairway.convert.ladder.route import Route
from fairway.convert.remedies.contract import Case

Tensors = tuple[torch.Tensor, ...]


class Flat(torch.nn.Module):
    """The thin module through which the ladder captures: flat tensors in, flat tensors out."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        # The TorchScript exporter sets its root to eval mode, and afterwards everything to the root's mode.
        self.training = model.training

    def forward(self, *tensors: torch.Tensor) -> object:
        return self.model(*tensors)


def case_of(model: torch.nn.Module, args: Tensors, route: str) -> Case:
    return Case(model, args, {}, Route("trace" if route == "trace" else "export"))


def copies(args: Tensors) -> Tensors:
    return tuple(t.clone() for t in args)


def outputs(model: torch.nn.Module, args: Tensors) -> list[torch.Tensor]:
    with torch.no_grad():
        result = model(*copies(args))
    if isinstance(result, dict):
        return list(result.values())
    return list(result) if isinstance(result, (tuple, list)) else [result]


def export(model: torch.nn.Module, args: Tensors, dims: Sequence[Sequence[int]], route: str) -> bytes:
    """The ONNX file, with every dim in `dims` (one tuple of axes per input) declared dynamic."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if route == "trace":
            names = [f"in{k}" for k in range(len(args))]
            axes = {n: {a: f"{n}_{a}" for a in d} for n, d in zip(names, dims, strict=True) if d}
            torch.onnx.export(
                Flat(model), copies(args), buffer, dynamo=False, input_names=names, dynamic_axes=axes, opset_version=17
            )
            return buffer.getvalue()
        shapes = tuple(dict.fromkeys(d, Dim.DYNAMIC) or None for d in dims)
        program = torch.export.export(Flat(model), copies(args), dynamic_shapes=(shapes,), strict=False)
        torch.onnx.export(program, dynamo=True, verbose=False).save(buffer)
    return buffer.getvalue()


def largest_difference(model: torch.nn.Module, file: bytes, points: Sequence[Tensors]) -> float:
    """The largest difference over the points; infinite where shapes or non-finite places differ."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    worst = 0.0
    for point in points:
        want = [t.numpy() for t in outputs(model, point)]
        got = session.run(None, {i.name: t.numpy() for i, t in zip(session.get_inputs(), point, strict=True)})
        assert len(want) == len(got)
        for a, b in zip(want, got, strict=True):
            if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
                return float("inf")
            finite = np.isfinite(a)
            worst = max(worst, float(np.abs(a[finite].astype("f8") - b[finite].astype("f8")).max(initial=0.0)))
    return worst
