"""onnx-diagnostic's model cases, read from its installed package: `pip install --no-deps onnx-diagnostic==0.9.3`.

Only the file with the cases is read, because the package itself does not import beside this transformers. Dims are
those that a case declares. Sizes between their bounds are tried in PyTorch first; if it refuses, all dims are fixed.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from case import Call, Case

PREFIX = "diagnostic/"
LARGEST = 8
"""The upper end of a dim that declares none."""


@functools.cache
def load_classes() -> dict[str, type[torch.nn.Module]]:
    found = importlib.util.find_spec("onnx_diagnostic")
    if found is None or found.origin is None:
        return {}
    path = Path(found.origin).parent / "torch_export_patches/eval/model_cases.py"
    source = path.read_text().replace(
        "from ..patches.patch_torch import patched_vmap", "from torch import vmap as patched_vmap"
    )
    module = types.ModuleType("diagnostic_model_cases")
    sys.modules[module.__name__] = module
    module.__file__ = str(path)
    exec(compile(source, str(path), "exec"), module.__dict__)
    classes = (value for value in vars(module).values() if isinstance(value, type))
    return {kind.__name__: kind for kind in classes if hasattr(kind, "_inputs") and hasattr(kind, "_dynamic")}


def list_names() -> list[str]:
    return [PREFIX + name for name in load_classes()]


def build(name: str) -> Case:
    kind: Any = load_classes()[name.removeprefix(PREFIX)]
    torch.manual_seed(0)
    module = kind().eval()
    calls = kind._inputs if isinstance(kind._inputs, list) else [kind._inputs]
    first = tuple(calls[0]) if isinstance(calls[0], tuple) else (calls[0],)
    parameters = list(inspect.signature(module.forward).parameters)
    declared = kind._dynamic
    given = declared if isinstance(declared, Mapping) else dict(zip(parameters, declared, strict=False))
    namer = DimNames()
    dims = {
        parameter: namer.read(argument, given.get(parameter))
        for parameter, argument in zip(parameters, first, strict=False)
        if not isinstance(argument, int | float | str)
    }
    case = _make(name, module, first, dims, namer.bounds)
    if not _is_legal(case, namer.sizes):
        case = _make(name, module, first, {}, {})
    return case


class DimNames:
    """Names for declared dims. Those without a name share one if they have the same axis and size."""

    def __init__(self) -> None:
        self.bounds: dict[str, tuple[int, int]] = {}
        self.sizes: dict[str, int] = {}

    def read(self, argument: Any, declared: Any) -> Any:
        if isinstance(argument, list | tuple):
            items = list(declared or [])
            items += [None] * (len(argument) - len(items))
            return [self.read(*pair) for pair in zip(argument, items, strict=True)]
        if not isinstance(argument, torch.Tensor):
            return None
        return {axis: self._name(axis, argument.shape[axis], dim) for axis, dim in (declared or {}).items()}

    def _name(self, axis: int, size: int, dim: Any) -> str:
        name = getattr(dim, "__name__", None) or f"d{axis}_{size}"
        low, high = getattr(dim, "min", 1), getattr(dim, "max", LARGEST)
        low = max(1, int(low or 1))
        high = min(int(high), LARGEST) if isinstance(high, int) else LARGEST
        self.bounds[name] = (min(low, max(size, 1)), max(high, size))
        self.sizes[name] = size
        return name


def _make(name: str, module: torch.nn.Module, first: Call, dims: Any, bounds: dict[str, tuple[int, int]]) -> Case:
    parameters = list(inspect.signature(module.forward).parameters)

    def make_inputs(seed: int, **sizes: int) -> Call:
        generator = torch.Generator().manual_seed(seed)

        def draw(argument: Any, axes: Any) -> Any:
            if isinstance(argument, list | tuple):
                items = axes or [None] * len(argument)
                return type(argument)(draw(*pair) for pair in zip(argument, items, strict=True))
            if not isinstance(argument, torch.Tensor):
                return argument
            for axis, dim in (axes or {}).items():
                if dim in sizes and argument.shape[axis]:
                    places = torch.arange(sizes[dim]) % argument.shape[axis]
                    argument = argument.index_select(axis, places)
            if not argument.is_floating_point() or seed == 0 or not argument.numel():
                return argument.clone()
            low, high = argument.min(), argument.max()
            return low + (high - low + 0.5) * torch.rand(argument.shape, generator=generator)

        return tuple(draw(a, dims.get(p)) for p, a in zip(parameters, first, strict=False)), {}

    return Case(name, module, make_inputs, dims or None, bounds)


def _is_legal(case: Case, sizes: Mapping[str, int]) -> bool:
    from check import list_points, run_eager

    try:
        for point in (dict(sizes), *list_points(case)):
            run_eager(case, 101, point)
    except Exception:
        return False
    return True
