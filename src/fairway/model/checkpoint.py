"""Checkpoints: safetensors first, pickles as tensors only, anything that would run code only on the user's word."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fairway.diagnostics.errors import UserError, complain
from fairway.model.archive import PICKLE, ZIP, starts, what_swells
from fairway.model.memory_check import amount, is_regular, room
from fairway.model.meta_build import assign, tied
from fairway.model.shards import find_shards

SHOWN = 5
"""How many mismatches are listed."""


def load_checkpoint(model: torch.nn.Module, path: Path, trust: bool) -> None:
    """Gives the model every tensor of the checkpoint, or none and says what does not fit.

    `path` is a file, an index of shards, or a folder with one of these. Files are mapped, not read, where their format
    allows it: the model's tensors are then pages of the file.
    """
    shards = find_shards(path)
    state: dict[str, torch.Tensor] = {}
    for shard in shards.files:
        state.update(_read(shard, trust))
    problems = shards.problems(state) or _misfits(model, state)
    if problems:
        more = f"\n    and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        listed = "".join(f"\n    {problem}" for problem in problems[:SHOWN])
        count = "1 place" if len(problems) == 1 else f"{len(problems)} places"
        raise complain("FW106", f"{path.name} differs from {type(model).__name__} in {count}:{listed}{more}")
    assign(model, state)


def _misfits(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> list[str]:
    own = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    present = {name for names in tied(model) if any(n in state for n in names) for name in names}
    problems = [f"missing {name}" for name in own if name not in state and name not in present]
    problems += [f"unexpected {name}" for name in state if name not in own]
    for name in own:
        if name in state and state[name].shape != own[name].shape:
            problems.append(f"{name}: {list(state[name].shape)} in the file, {list(own[name].shape)} in the model")
        elif name in state and _kind(state[name]) != _kind(own[name]):
            problems.append(f"{name}: {_dtype(state[name])} in the file, {_dtype(own[name])} in the model")
    return problems


def _kind(tensor: torch.Tensor) -> str:
    """Floats of one width are cast to another, as PyTorch does; numbers of another kind are no such weights."""
    return "float" if tensor.dtype.is_floating_point else "complex" if tensor.dtype.is_complex else str(tensor.dtype)


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _read(path: Path, trust: bool) -> Mapping[str, torch.Tensor]:
    if not is_regular(path):
        raise complain("FW104", str(path))
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if not starts(path, ZIP) and path.stat().st_size > room():
        raise complain("FW114", f"{path.name} has {amount(path.stat().st_size)}; this machine has {amount(room())}")
    if not trust and (problem := what_swells(path)):
        raise complain("FW105", f"{path.name} ({path.stat().st_size} bytes): {problem}")
    try:
        with warnings.catch_warnings(action="ignore"):
            loaded: Any = torch.load(path, map_location="cpu", weights_only=not trust, mmap=starts(path, ZIP))
    except pickle.UnpicklingError as error:
        if starts(path, ZIP, PICKLE) and ("weights_only" in str(error).lower() or "Unsupported" in str(error)):
            raise complain("FW107", f"{path.name}: {what_it_runs(str(error))}") from error
        raise _unreadable(path, error) from error
    except Exception as error:
        raise _unreadable(path, error) from error
    return _state(loaded, path)


def _unreadable(path: Path, error: Exception) -> UserError:
    size = f"{path.name} ({path.stat().st_size} bytes)"
    if isinstance(error, EOFError):
        return complain("FW105", f"{size} ends too early")
    if path.suffix != ".safetensors" and not starts(path, ZIP, PICKLE):
        return complain("FW105", f"{size} is neither a zip archive nor a pickle, as torch.save writes")
    return complain("FW105", f"{size}: {_first(error)}")


def _read_safetensors(path: Path) -> Mapping[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        state: Mapping[str, torch.Tensor] = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return state


def _state(loaded: Any, path: Path) -> Mapping[str, torch.Tensor]:
    """The state dict, also where a training script wrapped it under a key of its own."""
    if isinstance(loaded, torch.nn.Module):
        return {name: value for name, value in loaded.state_dict().items() if isinstance(value, torch.Tensor)}
    if isinstance(loaded, Mapping):
        for inner in (loaded, *(loaded.get(key) for key in ("state_dict", "model_state_dict", "model"))):
            # Some libraries put settings beside the tensors.
            pairs = inner.items() if isinstance(inner, Mapping) else ()
            state = {name: value for name, value in pairs if isinstance(value, torch.Tensor)}
            if state:
                return state
    held = f"a {type(loaded).__name__}"
    if isinstance(loaded, Mapping):
        held += f" of {', '.join(map(str, loaded))}" if loaded else " of nothing"
    raise complain(
        "FW105",
        f"{path.name} holds {held}, not a state dict",
        todo=("Save model.state_dict(), alone or in a dict under 'state_dict', 'model_state_dict' or 'model'.",),
    )


def what_it_runs(text: str) -> str:
    """What an unpickler that refuses all but tensors stumbled over, from its words."""
    found = re.search(r"GLOBAL (\S+)", text)
    return f"it names {found[1]}, which is not a tensor" if found else "it holds more than tensors"


def _first(error: BaseException) -> str:
    """The first sentence: torch's errors go on with advice that does not fit."""
    text = str(error).strip()
    return text.splitlines()[0].split(". ")[0][:300] if text else type(error).__name__
