"""The user's own tensors, from .npz, .safetensors or .pt files."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import IO

import numpy as np
import torch

from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.model.archive import ZIP_MAGIC, find_unpacking_risk, starts_with
from fairway.model.checkpoint import describe_pickled_code
from fairway.model.example import read_sizes
from fairway.model.memory_check import format_bytes, is_regular_file, read_memory_bytes
from fairway.model.subject import Subject


def read_data(subject: Subject, path: Path) -> list[list[torch.Tensor]]:
    """Return the samples in a file: a tensor for each input, in the spec's order, checked against the spec."""
    if not is_regular_file(path):
        raise complain(Code.DATA_UNREADABLE, f"{path} {'is not a regular file' if path.exists() else 'does not exist'}")
    if path.stat().st_size > read_memory_bytes():
        size, available = format_bytes(path.stat().st_size), format_bytes(read_memory_bytes())
        raise complain(Code.ASKS_TOO_MUCH, f"{path.name} has {size}; this machine has {available} of memory")
    return [check_sample(subject, _read_file(path), path.name)]


def check_sample(subject: Subject, arrays: Mapping[str, torch.Tensor], whose: str) -> list[torch.Tensor]:
    """Return the tensors in the spec's order; refuse names, dtypes and shapes other than the spec's."""
    missing = [name for name in subject.input_names if name not in arrays]
    if missing:
        raise complain(
            Code.DATA_UNREADABLE, f"{whose} lacks {', '.join(missing)}; it holds {', '.join(arrays) or 'nothing'}"
        )
    tensors = [arrays[name] for name in subject.input_names]
    for spec, tensor in zip(subject.spec, tensors, strict=True):
        if str(tensor.dtype).removeprefix("torch.") != spec.dtype or tensor.dim() != len(spec.shape):
            raise complain(
                Code.DATA_UNREADABLE, f"{whose}: {spec.name} is {_describe_tensor(tensor)}, the spec says {spec}"
            )
    try:
        point = read_sizes(subject.spec, tensors)
    except UserError as error:
        raise complain(Code.DATA_UNREADABLE, f"{whose}: {error.finding.seen}") from error
    for spec, tensor in zip(subject.spec, tensors, strict=True):
        known = [(s.at(point), n) for s, n in zip(spec.shape, tensor.shape, strict=True) if set(s.names) <= set(point)]
        if any(expected != size for expected, size in known):
            raise complain(
                Code.DATA_UNREADABLE, f"{whose}: {spec.name} is {_describe_tensor(tensor)}, the spec says {spec}"
            )
    outside = [f"{k}={v}" for k, v in point.items() if v not in subject.domain[k].sizes]
    if outside:
        raise complain(Code.DATA_UNREADABLE, f"{whose}: {', '.join(outside)} is outside the domain {subject.domain}")
    return tensors


def _describe_tensor(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _read_file(path: Path) -> Mapping[str, torch.Tensor]:
    try:
        if path.suffix == ".npz":
            return _read_npz(path)
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            loaded: object = load_file(path)
        elif path.suffix in (".pt", ".pth"):
            if problem := find_unpacking_risk(path):
                raise complain(Code.DATA_UNREADABLE, f"{path.name}: {problem}")
            with warnings.catch_warnings(action="ignore"):
                loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=starts_with(path, ZIP_MAGIC))
        else:
            raise complain(Code.DATA_UNREADABLE, f"{path.name}: expected a .npz, .safetensors or .pt file")
    except UserError:
        raise
    except pickle.UnpicklingError as error:
        raise complain(
            Code.DATA_UNREADABLE, f"{path.name}: {describe_pickled_code(str(error))}; it was not loaded"
        ) from error
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "allow_pickle" in first:
            first = "it holds pickled objects, which can run code; it was not loaded"
        raise complain(Code.DATA_UNREADABLE, f"{path.name}: {first[:300]}") from error
    if not isinstance(loaded, Mapping) or not all(isinstance(v, torch.Tensor) for v in loaded.values()):
        raise complain(Code.DATA_UNREADABLE, f"{path.name} does not hold one tensor per input name")
    return loaded


def _read_npz(path: Path) -> dict[str, torch.Tensor]:
    """Read every array, after checking from the headers that the file is complete and the arrays fit into memory."""
    with zipfile.ZipFile(path) as file:
        members = [member for member in file.infolist() if member.filename.endswith(".npy")]
        total = sum(member.file_size for member in members)
        if total > read_memory_bytes():
            needed, available = format_bytes(total), format_bytes(read_memory_bytes())
            raise complain(Code.ASKS_TOO_MUCH, f"{path.name} needs {needed}; this machine has {available} of memory")
        for member in members:
            with file.open(member) as stream:
                promised = _count_promised_bytes(stream)
            if promised > member.file_size:
                held = format_bytes(member.file_size)
                seen = f"{member.filename} declares {format_bytes(promised)} and holds {held}"
                raise complain(Code.DATA_UNREADABLE, f"{path.name}: {seen}")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def _count_promised_bytes(stream: IO[bytes]) -> int:
    """Return the number of bytes that an array's header declares."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return int(prod(shape) * dtype.itemsize)
