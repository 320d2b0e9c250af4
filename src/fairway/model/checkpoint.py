"""Reads checkpoints: safetensors, or pickles with tensors alone. Code in a pickle runs only if the user trusts it."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch

from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import UserError, complain
from fairway.model.archive import PICKLE_MAGIC, ZIP_MAGIC, find_unpacking_risk, refuse_lfs_pointer, starts_with
from fairway.model.checkpoint_names import extract_state, fit_names
from fairway.model.memory_check import format_bytes, is_regular_file, read_memory_bytes
from fairway.model.meta_build import assign_state, find_tied_names
from fairway.model.shards import find_shards

SHOWN_MISMATCHES = 5
"""Mismatches that a message lists."""


def load_checkpoint(model: torch.nn.Module, path: Path, trust: bool, key: str | None = None) -> tuple[Finding, ...]:
    """Give the model every tensor of the checkpoint, or none and report what does not fit.

    `key` names the entry that holds the weights, or the prefix of their names. Returns notes on changes of names.

    `path` is a file, an index of shards, or a folder with one of these. Files are mapped instead of read if their
    format allows it; the model's tensors are then pages of the file.
    """
    shards = find_shards(path)
    state: dict[str, torch.Tensor] = {}
    for shard in shards.files:
        state.update(_read_file(shard, trust, key))
    problems = shards.find_problems(state)
    state, remarks = ({}, ()) if problems else fit_names(model, state, path, key)
    problems = problems or _find_mismatches(model, state)
    if problems:
        more = f"\n    and {len(problems) - SHOWN_MISMATCHES} more" if len(problems) > SHOWN_MISMATCHES else ""
        listed = "".join(f"\n    {problem}" for problem in problems[:SHOWN_MISMATCHES])
        count = "1 place" if len(problems) == 1 else f"{len(problems)} places"
        raise complain(
            Code.CHECKPOINT_MISMATCH, f"{path.name} differs from {type(model).__name__} in {count}:{listed}{more}"
        )
    assign_state(model, state)
    return remarks


def _find_mismatches(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> list[str]:
    own = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    present = {name for names in find_tied_names(model) if any(n in state for n in names) for name in names}
    problems = [f"missing {name}" for name in own if name not in state and name not in present]
    problems += [f"unexpected {name}" for name in state if name not in own]
    for name in own:
        if name in state and state[name].shape != own[name].shape:
            problems.append(f"{name}: {list(state[name].shape)} in the file, {list(own[name].shape)} in the model")
        elif name in state and _classify_dtype(state[name]) != _classify_dtype(own[name]):
            problems.append(f"{name}: {_name_dtype(state[name])} in the file, {_name_dtype(own[name])} in the model")
    return problems


def _classify_dtype(tensor: torch.Tensor) -> str:
    """Return the kind of number. Floats of one width are cast to another, as PyTorch does; other kinds are not."""
    return "float" if tensor.dtype.is_floating_point else "complex" if tensor.dtype.is_complex else str(tensor.dtype)


def _name_dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _read_file(path: Path, trust: bool, key: str | None) -> Mapping[str, torch.Tensor]:
    if not is_regular_file(path):
        raise complain(Code.CHECKPOINT_MISSING, str(path))
    refuse_lfs_pointer(path)
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if not starts_with(path, ZIP_MAGIC) and path.stat().st_size > read_memory_bytes():
        size, available = format_bytes(path.stat().st_size), format_bytes(read_memory_bytes())
        raise complain(Code.ASKS_TOO_MUCH, f"{path.name} has {size}; this machine has {available} of memory")
    if not trust and (problem := find_unpacking_risk(path)):
        raise complain(Code.CHECKPOINT_UNREADABLE, f"{path.name} ({path.stat().st_size} bytes): {problem}")
    try:
        with warnings.catch_warnings(action="ignore"):
            loaded: object = torch.load(
                path, map_location="cpu", weights_only=not trust, mmap=starts_with(path, ZIP_MAGIC)
            )
    except pickle.UnpicklingError as error:
        if starts_with(path, ZIP_MAGIC, PICKLE_MAGIC) and (
            "weights_only" in str(error).lower() or "Unsupported" in str(error)
        ):
            raise complain(Code.CHECKPOINT_RUNS_CODE, f"{path.name}: {describe_pickled_code(str(error))}") from error
        raise _make_error(path, error) from error
    except Exception as error:
        raise _make_error(path, error) from error
    return extract_state(loaded, path, key)


def _make_error(path: Path, error: Exception) -> UserError:
    size = f"{path.name} ({path.stat().st_size} bytes)"
    if isinstance(error, EOFError):
        return complain(Code.CHECKPOINT_UNREADABLE, f"{size} ends too early")
    if path.suffix != ".safetensors" and not starts_with(path, ZIP_MAGIC, PICKLE_MAGIC):
        return complain(
            Code.CHECKPOINT_UNREADABLE, f"{size} is neither a zip archive nor a pickle, as torch.save writes"
        )
    return complain(Code.CHECKPOINT_UNREADABLE, f"{size}: {_take_first_sentence(error)}")


def _read_safetensors(path: Path) -> Mapping[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        state: Mapping[str, torch.Tensor] = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise _make_error(path, error) from error
    return state


def describe_pickled_code(text: str) -> str:
    """Say what a pickle holds beside tensors, from the unpickler's error message."""
    match = re.search(r"GLOBAL (\S+)", text)
    return f"it names {match[1]}, which is not a tensor" if match else "it holds more than tensors"


def _take_first_sentence(error: BaseException) -> str:
    """Return the first sentence of a message. The advice in the rest of torch's messages does not apply."""
    text = str(error).strip()
    return text.splitlines()[0].split(". ")[0][:300] if text else type(error).__name__
