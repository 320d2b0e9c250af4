"""Inputs of the recipes, drawn without Fairway's code: for the stock exporter and for the proof of planted errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]
sys.path.append(str(HERE.parent / "corpus"))

from case import Case  # noqa: E402  # from the corpus
from draw import draw  # noqa: E402  # from the corpus
from models import RECIPES  # noqa: E402

Tensors = dict[str, torch.Tensor]


def draw_inputs(name: str, sizes: Mapping[str, int], seed: int) -> Tensors:
    """Legal tensors of these sizes by input name."""
    recipe = RECIPES[name]
    case = Case(name, "real sizes", recipe.model, tuple(recipe.inputs), dict(recipe.bounds), dict(recipe.multiples))
    return draw(case, sizes, seed)[0]


def choose_sizes(name: str, share: float) -> dict[str, int]:
    """Sizes at a share of each dim's range, in steps of its multiple, each dim a little different."""
    recipe = RECIPES[name]
    sizes = {}
    for place, (dim, (low, high)) in enumerate(recipe.bounds.items()):
        step = recipe.multiples.get(dim, 1)
        count = (high - low) // step
        sizes[dim] = low + step * min(count, round(count * share) + place % 2)
    return sizes


def stock_inputs(name: str) -> tuple[Tensors, dict[str, dict[int, Any]]]:
    """Example tensors and `dynamic_shapes` as a user of `torch.onnx.export` writes them."""
    recipe = RECIPES[name]
    dims = {}
    for dim, (low, high) in recipe.bounds.items():
        step = recipe.multiples.get(dim, 1)
        base = torch.export.Dim(f"{dim}_of_{step}" if step > 1 else dim, min=low // step, max=high // step)
        dims[dim] = step * base if step > 1 else base
    shapes = {}
    for line in recipe.inputs:
        found = re.match(r"(\w+): \w+\[([^\]]*)\]", line)
        assert found is not None, line
        axes = enumerate(part.strip() for part in found[2].split(","))
        shapes[found[1]] = {axis: dims[part] for axis, part in axes if part in dims}
    return draw_inputs(name, choose_sizes(name, 0.2), 1), shapes
