"""Makes the ONNX files of the set with torch's own exporters; Fairway has no part in it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import onnx
import torch
from case import Call, Declared, RightFile, Route, WrongFile
from oracle import flatten_call
from torch import nn

OPSET = 18


def export_stock(model: nn.Module, call: Call, declared: Declared, route: Route, path: Path) -> None:
    """Export with the call as the example; every dim that has a name varies."""
    axes = {name: found for name, found in declared.find_axes().items() if found}
    names = list(flatten_call(call))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if route == "dynamo":
            shapes = {name: find_dynamic(name, value, axes) for name, value in call.items()}
            program = torch.export.export(model, (), call, dynamic_shapes=shapes)
            exported = torch.onnx.export(program, dynamo=True, verbose=False, input_names=names)
            assert exported is not None
            exported.save(str(path))
            return
        given: Any = torch.jit.script(model) if route == "script" else model
        torch.onnx.export(
            given,
            tuple(call.values()),
            str(path),
            dynamo=False,
            input_names=names,
            dynamic_axes=axes,
            opset_version=OPSET,
        )


def find_dynamic(name: str, value: Any, axes: dict[str, dict[int, str]]) -> Any:
    """Return the dynamic shapes of one argument, as `torch.export` takes them."""
    if isinstance(value, torch.Tensor):
        return dict.fromkeys(axes.get(name, {}), torch.export.Dim.DYNAMIC)
    if isinstance(value, list | tuple):
        return [find_dynamic(f"{name}.{i}", item, axes) for i, item in enumerate(value)]
    return None


def make_wrong(case: WrongFile, path: Path) -> None:
    """Write the wrong file: the model with the case's mistake, exported by the case's route."""
    model = case.build()
    if case.forward is not None:
        model.__class__ = type(type(model).__name__, (type(model),), {"forward": case.forward})
    if case.alter is not None:
        with torch.no_grad():
            case.alter(model)
    torch.manual_seed(1)
    export_stock(model, case.probes()[0], case.declared, case.route, path)
    if case.mutate is not None:
        proto = onnx.load(str(path))
        case.mutate(proto)
        onnx.save(proto, str(path))


def make_right(case: RightFile, path: Path) -> None:
    torch.manual_seed(1)
    export_stock(case.build(), case.probes()[0], case.declared, case.route, path)
