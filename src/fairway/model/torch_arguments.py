"""Reads the arguments of torch.onnx.export: those that say the same in Fairway are taken, the others are answered."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.tree import TreeLeaf
from fairway.model.user_types import UserDims


class TorchArguments(TypedDict, total=False):
    """The arguments of torch.onnx.export that `fairway.export` also takes."""

    dynamic_axes: UserDims
    dynamic_shapes: UserDims
    opset_version: int | None


@dataclass(frozen=True)
class DynamicAxes:
    """The `dynamic_axes` of torch.onnx.export. It may name inputs by `input_names`, and outputs too."""

    axes: Mapping[str, UserDims]
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None


_COUNTERPARTS = {
    "args": "inputs",
    "kwargs": "inputs=(args, kwargs)",
    "f": "path",
    "dynamo": 'routes=["export-dynamic"] for dynamo=True, routes=["trace"] for dynamo=False',
    "verbose": "progress=True",
    "external_data": 'weights="copy"',
    "custom_translation_table": "translations",
    "dump_exported_program": "the record beside the file",
    "report": "the record beside the file",
    "verify": 'level="standard", which is the default',
}
"""What Fairway has for an argument of torch.onnx.export."""

_DECIDED = {
    "artifacts_dir",
    "autograd_inlining",
    "custom_opsets",
    "do_constant_folding",
    "export_modules_as_functions",
    "export_params",
    "fallback",
    "keep_initializers_as_inputs",
    "operator_export_type",
    "optimize",
    "profile",
    "training",
}
"""Arguments of torch.onnx.export that Fairway has no use for."""


def take_torch_arguments(
    given: TorchArguments,
    function: str,
    dims: UserDims,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
) -> UserDims:
    """Return `dims`, or what dynamic_axes or dynamic_shapes say in their place; refuse every other argument."""
    rest = {name: value for name, value in given.items() if name not in TorchArguments.__annotations__}
    for name in rest:
        if name in _COUNTERPARTS:
            todo = (f"fairway.{function} has {_COUNTERPARTS[name]}.",)
            raise complain(Code.TORCH_ARGUMENT, f"fairway.{function} has no argument {name!r}", todo=todo)
        if name in _DECIDED:
            raise complain(Code.TORCH_ARGUMENT, f"fairway.{function} has no argument {name!r} and needs none")
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    axes, shapes = given.get("dynamic_axes"), given.get("dynamic_shapes")
    forms = [
        name
        for name, value in (("dims", dims), ("dynamic_axes", axes), ("dynamic_shapes", shapes))
        if value is not None
    ]
    if len(forms) > 1:
        raise complain(
            Code.BAD_INPUTS, f"{' and '.join(forms)} are given together", todo=("Declare the dims in one form.",)
        )
    if axes is not None:
        return DynamicAxes(axes, input_names, output_names)
    return dims if shapes is None else shapes


def read_dynamic_axes(given: DynamicAxes, leaves: Sequence[TreeLeaf]) -> dict[str, UserDims]:
    """Return dims by input. Axes without a name share one if they have the same place and size in the example."""
    if not isinstance(given.axes, Mapping):
        todo = ('Write dynamic_axes={"x": {0: "batch"}}.',)
        raise complain(Code.BAD_INPUTS, f"dynamic_axes is {given.axes!r:.80}", todo=todo)
    leaf_of = {leaf.name: leaf for leaf in leaves}
    named = {**leaf_of, **dict(zip(given.input_names or (), leaves, strict=False))}
    dims: dict[str, UserDims] = {}
    for name, axes in given.axes.items():
        if name not in named:
            continue
        leaf = named[name]
        pairs = axes.items() if isinstance(axes, Mapping) else ((axis, None) for axis in axes)
        dims[leaf.name] = {axis: _name_axis(leaf, axis, label) for axis, label in pairs}
    unknown = [name for name in given.axes if name not in named and name not in (given.output_names or ())]
    if unknown and not dims:
        known = ", ".join(named) or "none"
        raise complain(Code.UNKNOWN_INPUT, f"dynamic_axes names {', '.join(unknown)}; the inputs are: {known}")
    return dims


def _name_axis(leaf: TreeLeaf, axis: int, label: object) -> str:
    if isinstance(label, str) and label:
        return re.sub(r"\W", "_", label if not label[0].isdigit() else f"dim_{label}")
    shape = leaf.value.shape
    inside = isinstance(axis, int) and -len(shape) <= axis < len(shape)
    return f"dim_{axis % len(shape)}_of_{shape[axis]}" if inside else f"dim_{axis}"
