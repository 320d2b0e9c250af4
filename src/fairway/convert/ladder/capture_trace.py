"""The TorchScript exporter: the tracer, and the scripter inside a trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir
import torch

from fairway.convert.ladder.flat_model import CapturedProgram, FlatModel, TranslationError, list_dynamic_axes
from fairway.convert.remedies.contract import Case
from fairway.model.subject import Subject


def trace_program(
    model: FlatModel, subject: Subject, case: Case, tensors: Sequence[torch.Tensor], path: Path
) -> CapturedProgram:
    """Return the traced program as an onnx-ir model. With the `script` capture the user's model is compiled first."""
    traced: torch.nn.Module = model
    if case.route.capture == "script":
        model.model = torch.jit.script(model.model)
        # torch.onnx traces without the module itself, and then refuses a compiled module inside: "not part of the
        # active trace" (torch 2.13). torch.jit.trace knows it.
        traced = torch.jit.trace(model, tuple(tensors), check_trace=False)  # type: ignore[no-untyped-call]  # torch's own
    names = [f"fairway_in_{i}" for i in range(len(tensors))]
    axes = {
        name: {a: str(s) for a, s in a2.items()} for name, a2 in zip(names, list_dynamic_axes(subject), strict=True)
    }
    raw = path.with_suffix(".raw.onnx")
    try:
        torch.onnx.export(
            traced,
            tuple(tensors),
            str(raw),
            dynamo=False,
            input_names=names,
            dynamic_axes={name: a for name, a in axes.items() if a},
            opset_version=case.route.opset,
            do_constant_folding=True,
        )
    except torch.onnx.errors.UnsupportedOperatorError as error:
        raise TranslationError(str(error)) from error
    return CapturedProgram(ir.load(raw))
