"""Counts the bytes of a model's tensors of any kind, and hashes them.

A model may contain sparse tensors, whose bytes are those of their parts, and its `state_dict` more than tensors.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch

from fairway.model.weight_mappings import Mappings
from fairway.torch_internals import read_sparse_parts

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


def split_into_dense(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the dense tensors that a tensor consists of: itself, or the indices and values of a sparse one."""
    if tensor.layout == torch.strided:
        return (tensor,)
    if tensor.layout == torch.sparse_coo:
        return read_sparse_parts(tensor)
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor.to_dense(),)


def count_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor of any layout."""
    return sum(part.nbytes for part in split_into_dense(tensor))


def count_held_bytes(*models: torch.nn.Module) -> int:
    """Return the bytes of all parameters and buffers."""
    return sum(count_bytes(tensor) for model in models for tensor in (*model.parameters(), *model.buffers()))


def hash_weights(model: torch.nn.Module, large_bytes: int, hash_file: Callable[[str], str]) -> str:
    """Return a hash of class, names, shapes and values of every parameter and buffer.

    For a tensor in a large checkpoint, its place there and the file's own hash are used: the file is read once, and
    never through the model's memory.
    """
    digest = hashlib.sha256(f"{type(model).__module__}.{type(model).__qualname__}".encode())
    mappings = Mappings()
    for name, tensor in _list_tensors(model):
        if tensor.layout != torch.strided or tensor.is_quantized:
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}{tensor.layout}".encode())
            for part in split_into_dense(tensor.dequantize() if tensor.is_quantized else tensor):
                digest.update(_view_bytes(part))
            continue
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        mapped = tensor.is_contiguous() and tensor.device.type == "cpu"
        span = mappings.find(tensor.data_ptr(), tensor.nbytes) if mapped else None
        if span is not None and os.path.getsize(span.path) >= large_bytes:
            digest.update(f"{hash_file(span.path)}{span.offset}{span.length}".encode())
        else:
            digest.update(_view_bytes(tensor))
    return digest.hexdigest()


def _list_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Return the tensors of the model's state, by name. Plain values become part of the name of an empty tensor."""
    try:
        state = model.state_dict()
    except Exception:  # the user's own state_dict may do anything
        state = {}
    entries = list(_find_tensors("", state))
    return iter(entries or [*model.named_parameters(), *model.named_buffers()])


def _find_tensors(name: str, value: object) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _find_tensors(f"{name}.{key}" if name else str(key), item)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _find_tensors(f"{name}.{number}", item)
    else:
        # For other objects, only the class is the same in another process.
        text = repr(value) if isinstance(value, _PLAIN) else f"{type(value).__module__}.{type(value).__qualname__}"
        yield f"{name}={text}", torch.empty(0)


def _view_bytes(tensor: torch.Tensor) -> memoryview:
    """Return a dense tensor's bytes."""
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    array: npt.NDArray[np.uint8] = dense.reshape(-1).view(torch.uint8).numpy()
    return array.data
