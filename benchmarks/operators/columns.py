"""The three ways to a file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from case import Case
from check import choose_example
from torch.utils._pytree import tree_leaves

Row = dict[str, Any]


def export_by_dynamo(case: Case, path: Path) -> Row:
    args, kwargs = case.make_inputs(0, **choose_example(case))
    shapes = make_dynamic_shapes(case, args, kwargs)
    torch.onnx.export(
        case.module,
        args,
        path,
        kwargs=kwargs,
        dynamo=True,
        dynamic_shapes=shapes,
        verbose=False,
        external_data=False,
        input_names=_name_inputs(args, kwargs),
    )
    return {}


def _name_inputs(args: Any, kwargs: Any) -> list[str]:
    return [f"in_{number}" for number, leaf in enumerate(tree_leaves((args, kwargs))) if isinstance(leaf, torch.Tensor)]


def make_dynamic_shapes(case: Case, args: Any, kwargs: Any) -> Any:
    if not case.dims:
        return None
    bound = inspect.signature(case.module.forward).bind(*args, **kwargs).arguments
    return {name: _mark_dynamic(argument, case.dims.get(name)) for name, argument in bound.items()}


def _mark_dynamic(argument: Any, dims: Any) -> Any:
    if isinstance(argument, list | tuple):
        return type(argument)(_mark_dynamic(*pair) for pair in zip(argument, dims, strict=True))
    return dict.fromkeys(dims, torch.export.Dim.DYNAMIC) if dims else None


def _list_axes(argument: Any, dims: Any) -> list[dict[int, str]]:
    """Return the named axes of each tensor in an argument."""
    if isinstance(argument, list | tuple):
        pairs = zip(argument, dims or [None] * len(argument), strict=True)
        return [axes for pair in pairs for axes in _list_axes(*pair)]
    return [dict(dims or {})] if isinstance(argument, torch.Tensor) else []


def export_by_torchscript(case: Case, path: Path) -> Row:
    args, kwargs = case.make_inputs(0, **choose_example(case))
    names = _name_inputs(args, kwargs)
    axes: dict[str, Any] = {}
    if case.dims:
        bound = inspect.signature(case.module.forward).bind(*args, **kwargs).arguments
        listed = [item for name, argument in bound.items() for item in _list_axes(argument, case.dims.get(name))]
        axes = dict(zip(names, listed, strict=True))
    torch.onnx.export(
        case.module,
        (*args, kwargs) if kwargs else args,
        path,
        dynamo=False,
        input_names=names,
        dynamic_axes=axes,
    )
    return {}


def _drop_fixed(dims: Any) -> Any:
    """Leave out the items of a list that are no tensors."""
    if isinstance(dims, list):
        return {place: _drop_fixed(item) for place, item in enumerate(dims) if item is not None}
    return dims


def export_by_fairway(case: Case, path: Path) -> Row:
    import fairway

    dims: Mapping[str, Any] | None = case.dims and {name: _drop_fixed(axes) for name, axes in case.dims.items()}
    try:
        result = fairway.export(case.module, case.make_inputs, path, dims=dims, bounds=dict(case.bounds), timeout=120)
    except fairway.UserError as error:
        finding = error.finding
        return {"verdict": "refused", "codes": [finding.code], "outcome": "fails", "note": str(finding)[:300]}
    row: Row = {
        "verdict": result.verdict,
        "route": result.route,
        "remedies": list(result.remedies),
        "codes": [finding.code for finding in result.findings],
    }
    if result.path is None:
        row["outcome"] = "fails"
        row["note"] = "; ".join(f"{finding.code}: {finding.seen[:200]}" for finding in result.findings[:2])
    return row


FAIRWAY = "Fairway"
STOCK: dict[str, Callable[[Case, Path], Row]] = {
    "dynamo": export_by_dynamo,
    "TorchScript": export_by_torchscript,
}
COLUMNS: dict[str, Callable[[Case, Path], Row]] = {**STOCK, FAIRWAY: export_by_fairway}
