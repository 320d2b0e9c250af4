"""torch's own operators with its own samples: one case for each operator and dtype.

A case calls the operator with up to three of its samples. The values come from torch's sample functions by seed, so
they are legal for the operator, whatever it asks for. Sizes are fixed.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import torch
from case import Call, Calls, Case, NoCase, flatten_samples, list_tensors
from torch.utils._pytree import tree_flatten, tree_map_only
from torch_tests import import_torch_tests

PREFIX = "op/"
LOOKED_AT = 48
"""How many samples of an operator are looked at; some have thousands."""

DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)

NO_NUMBERS = {
    "empty": "memory that is not initialized",
    "empty_like": "memory that is not initialized",
    "empty_permuted": "memory that is not initialized",
    "empty_strided": "memory that is not initialized",
    "new_empty": "memory that is not initialized",
    "new_empty_strided": "memory that is not initialized",
    "resize_": "memory that is not initialized",
    "resize_as_": "memory that is not initialized",
}
"""Operators whose results have no defined numbers."""


@functools.cache
def load_operators() -> dict[str, Any]:
    operators = import_torch_tests("common_methods_invocations").op_db
    # torch seeds random operators for its tests; here they count as random.
    for name, module in [*sys.modules.items()]:
        if name.startswith("torch.testing._internal.") and hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = lambda function, *args, **kwargs: function(*args, **kwargs)
    return {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in operators}


def list_dtypes(op: Any) -> list[torch.dtype]:
    return [dtype for dtype in DTYPES if dtype in op.supported_dtypes("cpu")]


def list_names(every_dtype: bool = False) -> list[str]:
    names = []
    for name, op in load_operators().items():
        names.append(PREFIX + name)
        if every_dtype:
            names += [f"{PREFIX}{name}:{_shorten(dtype)}" for dtype in list_dtypes(op)[1:]]
    return names


def _shorten(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def build(name: str) -> Case:
    short, _, asked = name.removeprefix(PREFIX).partition(":")
    op = load_operators()[short]
    dtypes = list_dtypes(op)
    if not dtypes:
        raise NoCase("none of the dtypes float32, int64, bool and complex64 is supported")
    if op.name in NO_NUMBERS:
        raise NoCase(NO_NUMBERS[op.name])
    dtype = getattr(torch, asked) if asked else dtypes[0]
    function = op.get_op()
    drawn = _draw_samples(op, dtype, 0)
    certain = [position for position, (call, _) in enumerate(drawn) if not _is_random(function, call)]
    if not certain:
        raise NoCase("its results are random" if drawn else "no sample with elements and dense tensors")
    positions = sorted({certain[0], certain[len(certain) // 2], certain[-1]})
    samples = [drawn[position][0] for position in positions]
    pattern = _describe(samples)

    def make_inputs(seed: int) -> Call:
        others = _draw_samples(op, dtype, seed)
        chosen = [others[position][0] for position in positions if position < len(others)]
        # Some sample functions draw shapes and numbers, too. Then the first sample is used again.
        return flatten_samples(chosen if _describe(chosen) == pattern else samples), {}

    return Case(name, Calls(function, samples, [drawn[position][1] for position in positions]), make_inputs)


def _draw_samples(op: Any, dtype: torch.dtype, seed: int) -> list[tuple[Call, Callable[..., Any]]]:
    """Return calls, each with torch's function that reduces the result to what is well-defined."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    drawn = []
    for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=False), LOOKED_AT):
        call = ((sample.input, *sample.args), dict(sample.kwargs))
        tensors = [leaf for leaf in tree_flatten(call)[0] if isinstance(leaf, torch.Tensor)]
        if any(t.layout != torch.strided or t.numel() == 0 or t.is_quantized for t in tensors):
            continue
        drawn.append((call, sample.output_process_fn_grad))
    return drawn


def _is_random(function: Callable[..., Any], call: Call) -> bool:
    results = []
    for seed in range(4):
        args, kwargs = tree_map_only(torch.Tensor, torch.clone, call)
        torch.manual_seed(seed)
        with torch.no_grad():
            results.append(list_tensors(function(*args, **kwargs)))
    first, *others = results
    pairs = [pair for other in others for pair in zip(first, other, strict=True)]
    return any(a.shape != b.shape or not torch.equal(_drop_nan(a), _drop_nan(b)) for a, b in pairs)


def _drop_nan(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(tensor) if tensor.is_floating_point() else tensor


def _describe(samples: list[Call]) -> str:
    """Return everything about samples but the numbers in their tensors."""
    leaves, tree = tree_flatten(samples)
    shown = [(leaf.dtype, tuple(leaf.shape)) if isinstance(leaf, torch.Tensor) else repr(leaf) for leaf in leaves]
    return f"{shown} {tree}"
