"""The ways to ONNX that are compared: each makes one file from one case, as its users would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from case import Case
from check import arrange
from draw import _parse, draw


def example_sizes(case: Case) -> dict[str, int]:
    """Distinct sizes of at least 2 where the domain has them, as careful users choose."""
    taken: set[int] = set()
    found = {}
    for name, (low, high) in case.bounds.items():
        step = case.multiples.get(name, 1)
        inside = [n for n in range(low, high + 1, step) if n >= 2] or [low]
        inside.sort(key=lambda n: abs(n - (low + high) // 3))
        found[name] = next((n for n in inside if n not in taken), inside[0])
        taken.add(found[name])
    return found


def dynamo(case: Case, model: torch.nn.Module, path: Path, dim: Callable[[str, int, int], Any]) -> None:
    flat, roots = draw(case, example_sizes(case), 1)
    args, kwargs = arrange(model, roots)
    torch.onnx.export(
        model,
        args,
        path,
        kwargs=kwargs,
        dynamo=True,
        input_names=_names(flat, roots, args, kwargs),
        verbose=False,
        dynamic_shapes=_tree(case, roots, dim),
        external_data=False,
    )


def _names(flat: Mapping[str, Any], roots: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The inputs' names in the order in which the model takes them, whatever that of the case's lines."""
    order = [*(name for one in args for name, root in roots.items() if root is one), *kwargs]
    return [name for root in order for name in flat if name.split(".")[0] == root]


def _tree(case: Case, roots: Mapping[str, Any], dim: Callable[[str, int, int], Any]) -> dict[str, Any]:
    """`dynamic_shapes` in the form of the inputs."""
    leaves: dict[str, Any] = {}
    dims: dict[str, Any] = {}
    for name, _, shape, _ in map(_parse, case.lines):
        varying = {axis: part for axis, part in enumerate(shape) if not part.isdigit()}
        for part in varying.values():
            if part not in dims:
                dims[part] = dim(part, *case.bounds[part])
        leaves[name] = {axis: dims[part] for axis, part in varying.items()}
    tree: dict[str, Any] = {}
    for root, value in roots.items():
        if isinstance(value, tuple):
            tree[root] = tuple(leaves[f"{root}.{i}"] for i in range(len(value)))
        elif isinstance(value, dict):
            tree[root] = {key: leaves[f"{root}.{key}"] for key in value}
        else:
            tree[root] = leaves[root]
    return tree


def dynamo_named(case: Case, model: torch.nn.Module, path: Path) -> None:
    dynamo(case, model, path, lambda name, low, high: torch.export.Dim(name, min=low, max=high))


def dynamo_dynamic(case: Case, model: torch.nn.Module, path: Path) -> None:
    dynamo(case, model, path, lambda *_: torch.export.Dim.DYNAMIC)


def dynamo_auto(case: Case, model: torch.nn.Module, path: Path) -> None:
    dynamo(case, model, path, lambda *_: torch.export.Dim.AUTO)


def torchscript(case: Case, model: torch.nn.Module, path: Path) -> None:
    flat, roots = draw(case, example_sizes(case), 1)
    args, kwargs = arrange(model, roots)
    axes = {}
    for name, _, shape, _ in map(_parse, case.lines):
        axes[name] = {axis: part for axis, part in enumerate(shape) if not part.isdigit()}
    torch.onnx.export(
        model,
        (*args, kwargs) if kwargs else args,
        path,
        dynamo=False,
        dynamic_axes=axes,
        input_names=_names(flat, roots, args, kwargs),
    )


class NotForIt(Exception):
    """The tool does not say that it can do this."""


def transformers_exporters(case: Case, model: torch.nn.Module, path: Path) -> None:
    """As its documentation shows it: every axis dynamic."""
    from transformers import PreTrainedModel
    from transformers.exporters import OnnxConfig, OnnxExporter

    if not isinstance(model, PreTrainedModel):
        raise NotForIt("not a model of transformers")
    _, roots = draw(case, example_sizes(case), 1)
    OnnxExporter().export(model, roots, config=OnnxConfig(dynamic=True, output_path=path, external_data=False))


def optimum(case: Case, model: torch.nn.Module, path: Path) -> None:
    """Export with optimum, if it has a config for the model type and the task of its class."""
    from optimum.exporters.onnx import export
    from optimum.exporters.tasks import TasksManager
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        raise NotForIt("not a model of transformers")
    kind = model.config.model_type
    try:
        tasks = TasksManager.get_supported_tasks_for_model_type(kind, exporter="onnx", library_name="transformers")
    except KeyError as error:
        raise NotForIt(f"{kind} is not supported") from error
    task = TasksManager.infer_task_from_model(model)
    if task not in tasks:
        raise NotForIt(f"no {task} for {kind}")
    config = TasksManager.get_exporter_config_constructor(
        "onnx", model, task=task, model_type=kind, library_name="transformers"
    )(model.config)
    export(model, config, path, do_constant_folding=True)


def onnx_diagnostic(case: Case, model: torch.nn.Module, path: Path) -> None:
    """torch's dynamo exporter inside its patches."""
    from onnx_diagnostic.torch_export_patches import torch_export_patches

    with torch_export_patches(patch_transformers=True):
        dynamo_dynamic(case, model, path)


STOCK: dict[str, Callable[[Case, torch.nn.Module, Path], None]] = {
    "dynamo, named dims": dynamo_named,
    "dynamo, DYNAMIC": dynamo_dynamic,
    "dynamo, AUTO": dynamo_auto,
    "TorchScript": torchscript,
    "transformers.exporters": transformers_exporters,
}
OLDER: dict[str, Callable[[Case, torch.nn.Module, Path], None]] = {
    "optimum-onnx": optimum,
    "onnx-diagnostic": onnx_diagnostic,
}
"""Tools that do not work with this transformers: run with an older one, see requirements-older.txt."""

CHOOSES = ("optimum-onnx",)
"""Tools that decide themselves which of a model's outputs the file has."""
