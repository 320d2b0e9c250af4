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
        model, args, path, kwargs=kwargs, dynamo=True, input_names=list(flat), verbose=False,
        dynamic_shapes=_tree(case, roots, dim), external_data=False,
    )  # fmt: skip


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
        model, (*args, kwargs) if kwargs else args, path, dynamo=False, input_names=list(flat), dynamic_axes=axes
    )


STOCK: dict[str, Callable[[Case, torch.nn.Module, Path], None]] = {
    "dynamo, named dims": dynamo_named,
    "dynamo, DYNAMIC": dynamo_dynamic,
    "dynamo, AUTO": dynamo_auto,
    "TorchScript": torchscript,
}
