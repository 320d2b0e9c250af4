"""A case: a module, and a function that makes legal inputs for it by seed and by the sizes of its dims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""The positional and keyword arguments of one call."""


class NoCase(Exception):
    """No ONNX file can be right or wrong here; the message is the reason."""


@dataclass(frozen=True)
class Case:
    """`make_inputs(seed, **sizes)` returns a call. `dims` are in the form of torch.export's `dynamic_shapes`."""

    name: str
    module: torch.nn.Module
    make_inputs: Callable[..., Call]
    dims: Any = None
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class Calls(torch.nn.Module):
    """Calls a function once for each sample, with the tensors of all samples as inputs and the rest fixed.

    ONNX has no complex tensors, so complex inputs and outputs are pairs of real numbers in a last dim of 2.
    """

    def __init__(self, function: Callable[..., Any], samples: Sequence[Call], finish: Sequence[Callable[..., Any]]):
        super().__init__()
        self.function = function
        self.finish = list(finish)
        self.trees = [tree_flatten(sample) for sample in samples]

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        given = iter(tensors)
        results: list[torch.Tensor] = []
        for (leaves, tree), finish in zip(self.trees, self.finish, strict=True):
            filled = [_from_pairs(leaf, next(given)) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            args, kwargs = tree_unflatten(filled, tree)
            results += list_tensors(finish(self.function(*args, **kwargs)))
        # A call without tensors still needs an input.
        return [*results, *(tensor + 1 for tensor in given)]


def flatten_samples(samples: Sequence[Call]) -> tuple[torch.Tensor, ...]:
    """Return the inputs of `Calls`."""
    leaves = [leaf for sample in samples for leaf in tree_flatten(sample)[0] if isinstance(leaf, torch.Tensor)]
    return tuple(_to_pairs(leaf) for leaf in leaves) or (torch.ones(2),)


def _to_pairs(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().clone(memory_format=torch.contiguous_format)
    return torch.view_as_real(tensor.resolve_conj()).clone() if tensor.is_complex() else tensor


def _from_pairs(original: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(given) if original.is_complex() else given


def list_tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a result, complex ones as pairs; numbers are tensors without dims."""
    found = []
    for leaf in tree_flatten(value)[0]:
        if isinstance(leaf, torch.Tensor):
            leaf = torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf
            # ONNX Runtime hands no bfloat16 to numpy.
            found.append(leaf.float() if leaf.dtype == torch.bfloat16 else leaf)
    return found
