"""Checkpoints: safetensors first, pickles as tensors only, anything that would run code only on the user's word."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fairway.errors import complain

SHOWN = 5
"""How many mismatches are listed."""


def load_checkpoint(model: torch.nn.Module, path: Path, trust: bool) -> None:
    """Loads every tensor into the model, or none and says what does not fit."""
    if not path.is_file():
        raise complain("FW104", str(path))
    state = _read(path, trust)
    own = model.state_dict()
    problems = [f"missing {name}" for name in own if name not in state]
    problems += [f"unexpected {name}" for name in state if name not in own]
    problems += [
        f"{name}: {list(state[name].shape)} in the file, {list(own[name].shape)} in the model"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    if problems:
        more = f"\n    and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        listed = "".join(f"\n    {problem}" for problem in problems[:SHOWN])
        raise complain("FW106", f"{path.name} differs from {type(model).__name__} in {len(problems)} places:{listed}{more}")
    model.load_state_dict(dict(state))


def _read(path: Path, trust: bool) -> Mapping[str, torch.Tensor]:
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    try:
        loaded: Any = torch.load(path, map_location="cpu", weights_only=not trust, mmap=_is_zip(path))
    except pickle.UnpicklingError as error:
        if "weights_only" in str(error).lower() or "Unsupported" in str(error):
            raise complain("FW107", f"{path.name}: {_what_it_runs(str(error))}") from error
        raise complain("FW105", f"{path.name}: {_first(error)}") from error
    except Exception as error:
        raise complain("FW105", f"{path.name}: {_first(error)}") from error
    return _state(loaded, path)


def _read_safetensors(path: Path) -> Mapping[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        state: Mapping[str, torch.Tensor] = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise complain("FW105", f"{path.name}: {_first(error)}") from error
    return state


def _state(loaded: Any, path: Path) -> Mapping[str, torch.Tensor]:
    """The state dict, also where a training script wrapped it under a key of its own."""
    if isinstance(loaded, torch.nn.Module):
        return loaded.state_dict()
    if isinstance(loaded, Mapping):
        if loaded and all(isinstance(v, torch.Tensor) for v in loaded.values()):
            return loaded
        for key in ("state_dict", "model_state_dict", "model"):
            inner = loaded.get(key)
            if isinstance(inner, Mapping) and all(isinstance(v, torch.Tensor) for v in inner.values()):
                return inner
    raise complain("FW105", f"{path.name} holds a {type(loaded).__name__}, not a state dict")


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _what_it_runs(text: str) -> str:
    import re

    found = re.search(r"GLOBAL (\S+)", text)
    return f"it names {found[1]}, which is not a tensor" if found else "it holds more than tensors"


def _first(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
