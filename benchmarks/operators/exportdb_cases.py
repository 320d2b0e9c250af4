"""torch.export's own examples. Dims are those that an example declares."""

from __future__ import annotations

import functools
from typing import Any

import torch
from case import Call, Case
from torch.utils._pytree import tree_map

PREFIX = "exportdb/"
BOUNDS = (1, 9)


@functools.cache
def load_examples() -> dict[str, Any]:
    from torch._export.db.examples import all_examples

    return dict(all_examples())


def list_names() -> list[str]:
    return [PREFIX + name for name in sorted(load_examples())]


def build(name: str) -> Case:
    example = load_examples()[name.removeprefix(PREFIX)]
    dims = {
        argument: {axis: dim.__name__ for axis, dim in (axes or {}).items()}
        for argument, axes in (example.dynamic_shapes or {}).items()
    }

    def make_inputs(seed: int, **sizes: int) -> Call:
        generator = torch.Generator().manual_seed(seed)

        def draw(leaf: Any, axes: dict[int, str] | None = None) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            shape = [sizes.get((axes or {}).get(axis, ""), size) for axis, size in enumerate(leaf.shape)]
            if not leaf.is_floating_point() or (seed == 0 and not sizes):
                return leaf.clone()
            return torch.randn(shape, generator=generator)

        args = tuple(
            draw(arg, axes) if isinstance(arg, torch.Tensor) else tree_map(draw, arg)
            for arg, axes in zip(example.example_args, [*dims.values(), *[None] * 9], strict=False)
        )
        return args, tree_map(draw, dict(example.example_kwargs))

    bounds = {dim: BOUNDS for axes in dims.values() for dim in axes.values()}
    return Case(name, example.model.eval(), make_inputs, dims or None, bounds)
