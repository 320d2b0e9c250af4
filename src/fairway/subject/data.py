"""The user's own tensors, from .npz, .safetensors or .pt files."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairway.errors import UserError, complain
from fairway.subject.checkpoint import what_it_runs
from fairway.subject.example import read_sizes
from fairway.subject.subject import Subject


def read_data(subject: Subject, path: Path) -> list[list[torch.Tensor]]:
    """One sample: a tensor for each input, in the spec's order. Names and shapes are checked against the spec."""
    if not path.is_file():
        raise complain("FW113", f"{path} does not exist")
    arrays = _read(path)
    missing = [name for name in subject.input_names if name not in arrays]
    if missing:
        raise complain("FW113", f"{path.name} lacks {', '.join(missing)}; it holds {', '.join(arrays) or 'nothing'}")
    tensors = [arrays[name] for name in subject.input_names]
    for spec, tensor in zip(subject.spec, tensors, strict=True):
        if str(tensor.dtype).removeprefix("torch.") != spec.dtype or tensor.dim() != len(spec.shape):
            raise complain("FW113", f"{path.name}: {spec.name} is {_shown(tensor)}, the spec says {spec}")
    try:
        point = read_sizes(subject.spec, tensors)
    except UserError as error:
        raise complain("FW113", f"{path.name}: {error.finding.seen}") from error
    for spec, tensor in zip(subject.spec, tensors, strict=True):
        known = [(s.at(point), n) for s, n in zip(spec.shape, tensor.shape, strict=True) if set(s.names) <= set(point)]
        if any(wanted != got for wanted, got in known):
            raise complain("FW113", f"{path.name}: {spec.name} is {_shown(tensor)}, the spec says {spec}")
    outside = [f"{k}={v}" for k, v in point.items() if v not in subject.domain[k].sizes]
    if outside:
        raise complain("FW113", f"{path.name}: {', '.join(outside)} lies outside the domain {subject.domain}")
    return [tensors]


def _shown(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _read(path: Path) -> Mapping[str, torch.Tensor]:
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return {name: torch.from_numpy(file[name]) for name in file.files}
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            loaded: Any = load_file(path)
        elif path.suffix in (".pt", ".pth"):
            loaded = torch.load(path, map_location="cpu", weights_only=True)
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
