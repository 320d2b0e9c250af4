"""The user's own tensors, from .npz, .safetensors or .pt files."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from fairway.diagnostics.errors import UserError, complain
from fairway.model.archive import ZIP, starts, what_swells
from fairway.model.checkpoint import what_it_runs
from fairway.model.example import read_sizes
from fairway.model.memory_check import amount, is_regular, room
from fairway.model.subject import Subject


def read_data(subject: Subject, path: Path) -> list[list[torch.Tensor]]:
    """One sample: a tensor for each input, in the spec's order. Names and shapes are checked against the spec."""
    if not is_regular(path):
        raise complain("FW113", f"{path} {'is no plain file' if path.exists() else 'does not exist'}")
    if path.stat().st_size > room():
        raise complain("FW114", f"{path.name} has {amount(path.stat().st_size)}; this machine has {amount(room())}")
    return [check_sample(subject, _read(path), path.name)]


def check_sample(subject: Subject, arrays: Mapping[str, torch.Tensor], whose: str) -> list[torch.Tensor]:
    """The tensors in the spec's order, once names, dtypes and shapes are those of the spec."""
    missing = [name for name in subject.input_names if name not in arrays]
    if missing:
        raise complain("FW113", f"{whose} lacks {', '.join(missing)}; it holds {', '.join(arrays) or 'nothing'}")
    tensors = [arrays[name] for name in subject.input_names]
    for spec, tensor in zip(subject.spec, tensors, strict=True):
        if str(tensor.dtype).removeprefix("torch.") != spec.dtype or tensor.dim() != len(spec.shape):
            raise complain("FW113", f"{whose}: {spec.name} is {_shown(tensor)}, the spec says {spec}")
    try:
        point = read_sizes(subject.spec, tensors)
    except UserError as error:
        raise complain("FW113", f"{whose}: {error.finding.seen}") from error
    for spec, tensor in zip(subject.spec, tensors, strict=True):
        known = [(s.at(point), n) for s, n in zip(spec.shape, tensor.shape, strict=True) if set(s.names) <= set(point)]
        if any(wanted != got for wanted, got in known):
            raise complain("FW113", f"{whose}: {spec.name} is {_shown(tensor)}, the spec says {spec}")
    outside = [f"{k}={v}" for k, v in point.items() if v not in subject.domain[k].sizes]
    if outside:
        raise complain("FW113", f"{whose}: {', '.join(outside)} lies outside the domain {subject.domain}")
    return tensors


def _shown(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _read(path: Path) -> Mapping[str, torch.Tensor]:
    try:
        if path.suffix == ".npz":
            return _read_npz(path)
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            loaded: Any = load_file(path)
        elif path.suffix in (".pt", ".pth"):
            if problem := what_swells(path):
                raise complain("FW113", f"{path.name}: {problem}")
            with warnings.catch_warnings(action="ignore"):
                loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=starts(path, ZIP))
        else:
            raise complain("FW113", f"{path.name} is none of .npz, .safetensors, .pt")
    except UserError:
        raise
    except pickle.UnpicklingError as error:
        raise complain("FW113", f"{path.name}: {what_it_runs(str(error))}; it was not loaded") from error
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "allow_pickle" in first:
            first = "it holds pickled objects, which can run code; it was not loaded"
        raise complain("FW113", f"{path.name}: {first[:300]}") from error
    if not isinstance(loaded, Mapping) or not all(isinstance(v, torch.Tensor) for v in loaded.values()):
        raise complain("FW113", f"{path.name} does not hold one tensor per input name")
    return loaded


def _read_npz(path: Path) -> dict[str, torch.Tensor]:
    """Every array, once the headers have shown that they hold what they promise, and that it fits into memory."""
    with zipfile.ZipFile(path) as file:
        members = [one for one in file.infolist() if one.filename.endswith(".npy")]
        total = sum(one.file_size for one in members)
        if total > room():
            raise complain("FW114", f"{path.name} asks for {amount(total)}; this machine has {amount(room())}")
        for one in members:
            with file.open(one) as stream:
                asked = _promised(stream)
            if asked > one.file_size:
                seen = f"{one.filename} promises {amount(asked)} and holds {amount(one.file_size)}"
                raise complain("FW113", f"{path.name}: {seen}")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def _promised(stream: IO[bytes]) -> int:
    """The bytes that an array's header promises."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return int(prod(shape) * dtype.itemsize)
