"""Recognizes a graph's constants as the model's own weights, or views of them, by the address of their bytes."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import torch


@dataclass(frozen=True)
class KnownWeight:
    """A parameter or buffer, or a view of it, such as a transposed one."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    offset: int
    """The position of the view's first element in the weight, in elements."""

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the same view of another tensor of the same shape."""
        return torch.as_strided(tensor, self.shape, self.strides, tensor.storage_offset() + self.offset)


class WeightAddresses:
    """The weights of a model by the addresses of their bytes."""

    def __init__(self, model: torch.nn.Module) -> None:
        named = [*model.named_parameters(), *model.named_buffers()]
        self.tensors = {name: tensor.detach() for name, tensor in named if tensor.layout == torch.strided}
        rows = sorted((t.data_ptr(), -t.nbytes, name) for name, t in self.tensors.items() if t.nbytes)
        self._starts = [start for start, _, _ in rows]
        self._names = [name for _, _, name in rows]

    def find(self, tensor: object) -> KnownWeight | None:
        """Return the weight that contains this constant's bytes, or None."""
        memory = _find_memory(tensor)
        if memory is None:
            return None
        address, width, shape, strides = memory
        i = bisect.bisect_right(self._starts, address) - 1
        if i < 0:
            return None
        # The largest of those that start at the same address comes first.
        name = self._names[bisect.bisect_left(self._starts, self._starts[i])]
        own = self.tensors[name]
        end = address + width * (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)))
        if own.element_size() != width or not own.data_ptr() <= address < end <= own.data_ptr() + own.nbytes:
            return None
        if not own.is_contiguous():
            return None
        return KnownWeight(name, shape, strides, (address - own.data_ptr()) // width)


def _find_memory(tensor: object) -> tuple[int, int, tuple[int, ...], tuple[int, ...]] | None:
    """Return address, bytes per element, shape and strides of a constant in memory, without reading it."""
    raw = getattr(tensor, "raw", None)
    if isinstance(raw, torch.Tensor):
        if raw.layout != torch.strided or raw.device.type != "cpu" or not raw.numel():
            return None
        return raw.data_ptr(), raw.element_size(), tuple(raw.shape), raw.stride()
    if isinstance(raw, np.ndarray) and raw.size and all(s >= 0 and s % raw.itemsize == 0 for s in raw.strides):
        strides = tuple(s // raw.itemsize for s in raw.strides)
        return raw.__array_interface__["data"][0], raw.itemsize, raw.shape, strides
    return None


def make_constant(tensor: torch.Tensor, name: str) -> ir.TensorProtocol:
    """Return a torch tensor as a constant of a graph; its bytes are read when the graph is saved."""
    from onnx_ir.tensor_adapters import TorchTensor

    return TorchTensor(tensor.detach(), name=name)
