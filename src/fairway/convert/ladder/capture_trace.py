"""The TorchScript exporter: the tracer, and the scripter inside a trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir
import torch

from fairway.convert.ladder.capture import Flat, TranslationError, dynamic_axes
from fairway.convert.remedies.contract import Case
from fairway.model.subject import Subject


def trace_program(flat: Flat, subject: Subject, case: Case, tensors: Sequence[torch.Tensor], path: Path) -> ir.Model:
    """The traced program as an onnx-ir model. With the `script` capture the user's model is compiled first."""
    whole: torch.nn.Module = flat
    if case.route.capture == "script":
        flat.model = torch.jit.script(flat.model)
        # torch.onnx traces without the module itself, and then refuses a compiled module inside: "not part of the
        # active trace" (torch 2.13). torch.jit.trace knows it.
        whole = torch.jit.trace(flat, tuple(tensors), check_trace=False)  # type: ignore[no-untyped-call]  # torch's own
    names = [f"fairway_in_{i}" for i in range(len(tensors))]
    axes = {name: {a: str(s) for a, s in a2.items()} for name, a2 in zip(names, dynamic_axes(subject), strict=True)}
    raw = path.with_suffix(".raw.onnx")
    try:
        torch.onnx.export(
            whole,
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
    return ir.load(raw)
