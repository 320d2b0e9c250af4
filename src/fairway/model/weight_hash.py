"""The tensors that a model holds, of any kind: their bytes, and their fingerprint.

A model may hold sparse tensors, which have no bytes of their own, and its `state_dict` may hold what is no tensor.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from fairway.model.weight_mappings import Mappings

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


def parts_of(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the dense tensors that a tensor consists of: itself, or the indices and values of a sparse one."""
    if tensor.layout == torch.strided:
        return (tensor,)
    if tensor.layout == torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor.to_dense(),)


def bytes_of(tensor: torch.Tensor) -> int:
    return sum(part.nbytes for part in parts_of(tensor))


def bytes_held(*models: torch.nn.Module) -> int:
    """Return the bytes of all parameters and buffers."""
    return sum(bytes_of(tensor) for model in models for tensor in (*model.parameters(), *model.buffers()))


def hash_held(model: torch.nn.Module, large_bytes: int, hash_file: Callable[[str], str]) -> str:
    """Return a fingerprint of class, names, shapes and values of every parameter and buffer.

    Of a tensor that lies in a large checkpoint, its place there and the file's own hash are taken: the file is read
    once, and never through the model's memory.
    """
    digest = hashlib.sha256(f"{type(model).__module__}.{type(model).__qualname__}".encode())
    mappings = Mappings()
    for name, tensor in _entries(model):
        if tensor.layout != torch.strided or tensor.is_quantized:
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}{tensor.layout}".encode())
            for part in parts_of(tensor.dequantize() if tensor.is_quantized else tensor):
                digest.update(memoryview(_numbers(part)))
            continue
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        mapped = tensor.is_contiguous() and tensor.device.type == "cpu"
        span = mappings.find(tensor.data_ptr(), tensor.nbytes) if mapped else None
        if span is not None and os.path.getsize(span.path) >= large_bytes:
            digest.update(f"{hash_file(span.path)}{span.offset}{span.length}".encode())
        else:
            digest.update(memoryview(_numbers(tensor)))
    return digest.hexdigest()


def _entries(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of the model's state, by name, and plain values beside them as tensors of their text."""
    try:
        state = model.state_dict()
    except Exception:  # the user's own may do anything
        state = {}
    entries = list(_walk("", state))
    return iter(entries or [*model.named_parameters(), *model.named_buffers()])


def _walk(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _walk(f"{name}.{key}" if name else str(key), one)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _walk(f"{name}.{number}", one)
    else:
        # Of other objects the class is all that is the same in another process.
        text = repr(value) if isinstance(value, _PLAIN) else f"{type(value).__module__}.{type(value).__qualname__}"
        yield f"{name}={text}", torch.empty(0)


def _numbers(tensor: torch.Tensor) -> Any:
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return dense.reshape(-1).view(torch.uint8).numpy()
