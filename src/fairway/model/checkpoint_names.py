"""Finds a model's weights in a checkpoint: the entry that holds them, and the prefix that training put before names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import complain
from fairway.model.meta_build import find_tied_names

_USUAL_ENTRIES = ("state_dict", "model_state_dict", "model")
"""Entries in which training scripts keep the weights; the first that is there is taken."""

_COMPILED = "_orig_mod."
"""The part that torch.compile adds to the name of a compiled module, at any place."""

State = Mapping[str, torch.Tensor]


def extract_state(loaded: object, path: Path, key: str | None = None) -> dict[str, torch.Tensor]:
    """Return the weights under a key, or those at the place where training scripts usually keep them."""
    usual = _find_usual_state(loaded)
    if key is not None and isinstance(loaded, Mapping):
        state = _select_tensors(_follow_key(loaded, key))
        if state:
            return state
        if any(name.startswith(key) for name in usual):
            return usual  # the key is a prefix of names
        known = ", ".join(_list_entries(loaded)) or "none"
        raise complain(
            Code.CHECKPOINT_UNREADABLE,
            f"{path.name} has no weights under the key {key!r:.100}; the entries with weights are: {known}",
            todo=("Pass one of these entries as --checkpoint-key, or leave the option out.",),
        )
    if usual:
        return usual
    if entries := _list_entries(loaded):
        raise complain(
            Code.CHECKPOINT_UNREADABLE,
            f"{path.name} holds weights under several keys: {', '.join(entries)}",
            todo=(f"Choose one: --checkpoint-key {entries[0]}, or checkpoint_key= in the recipe.",),
        )
    held = f"a {type(loaded).__name__}"
    if isinstance(loaded, Mapping):
        held += f" of {', '.join(map(str, loaded))}" if loaded else " of nothing"
    raise complain(
        Code.CHECKPOINT_UNREADABLE,
        f"{path.name} holds {held}, not a state dict",
        todo=("Save model.state_dict(), alone or in a dict under 'state_dict', 'model_state_dict' or 'model'.",),
    )


def _find_usual_state(loaded: object) -> dict[str, torch.Tensor]:
    """Return the tensors of the object itself, of a usual entry, or of the only entry with any; else nothing."""
    state = _select_tensors(loaded)
    if state or not isinstance(loaded, Mapping):
        return state
    entries = [name for name in loaded if _select_tensors(loaded[name])]
    usual = [name for name in _USUAL_ENTRIES if name in entries]
    return _select_tensors(loaded[(usual or entries)[0]]) if usual or len(entries) == 1 else {}


def _follow_key(loaded: Mapping[object, object], key: str) -> object:
    """Return the entry at a key, which may go through several levels: `weights.best`."""
    entry: object = loaded
    for part in (key,) if key in loaded else key.split("."):
        entry = entry.get(part) if isinstance(entry, Mapping) else None
    return entry


def _select_tensors(entry: object) -> dict[str, torch.Tensor]:
    """Return the tensors of a state dict or of a pickled module. Some libraries store settings with the tensors."""
    entry = entry.state_dict() if isinstance(entry, torch.nn.Module) else entry
    pairs = entry.items() if isinstance(entry, Mapping) else ()
    return {str(name): value for name, value in pairs if isinstance(value, torch.Tensor)}


def _list_entries(loaded: object) -> list[str]:
    if not isinstance(loaded, Mapping):
        return []
    names = [str(name) for name, entry in loaded.items() if _select_tensors(entry)]
    nested = [(name, entry) for name, entry in loaded.items() if isinstance(entry, Mapping) and str(name) not in names]
    return names + [f"{name}.{inner}" for name, entry in nested for inner in entry if _select_tensors(entry[inner])]


def fit_names(
    model: torch.nn.Module, state: State, path: Path, key: str | None = None
) -> tuple[dict[str, torch.Tensor], tuple[Finding, ...]]:
    """Return the state under the model's own names, with a note if a prefix was removed or added.

    If no prefix makes all names and shapes fit, the state is returned as it is.
    """
    own = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    tied = find_tied_names(model)
    if not own or _covers(own, state, tied):
        return dict(state), ()
    plain = {name.replace(_COMPILED, ""): value for name, value in state.items()}
    chosen = [key] if key is not None and any(name.startswith(key) for name in plain) else []
    fitting = [prefix for prefix in chosen or _list_prefixes(own, plain) if _covers(own, _strip(plain, prefix), tied)]
    if len(fitting) > 1:
        raise complain(
            Code.CHECKPOINT_MISMATCH,
            f"{path.name} holds weights for {type(model).__name__} under several prefixes: {', '.join(fitting)}",
            todo=(f"Choose one: --checkpoint-key {fitting[0]}, or checkpoint_key= in the recipe.",),
        )
    if fitting:
        prefix = fitting[0]
        taken = _strip(plain, prefix)
        return taken, (_describe_prefix(path, state, plain, prefix, len(taken)),)
    for prefix in _list_prefixes(state, own):
        longer = {prefix + name: value for name, value in state.items()}
        if _covers(own, longer, tied) and set(longer) <= set(own):
            seen = f"{path.name} lacks the prefix {prefix!r} of the model's names, which was added"
            return longer, (Finding(Code.CHECKPOINT_PREFIX, seen),)
    return dict(state), ()


def _describe_prefix(path: Path, state: State, plain: State, prefix: str, taken: int) -> Finding:
    removed = [part for part in (_COMPILED if set(plain) != set(state) else "", prefix) if part]
    left = len(plain) - taken
    rest = f"; {left} tensors without it were left out" if left else ""
    return Finding(Code.CHECKPOINT_PREFIX, f"{' and '.join(map(repr, removed))} was removed from {path.name}{rest}")


def _strip(state: State, prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _list_prefixes(short: Iterable[str], long: Iterable[str]) -> list[str]:
    """Return what stands before the first of the short names in the long ones, and the empty prefix."""
    first = next(iter(short), "")
    ends = [name.removesuffix(first) for name in long if name.endswith(f".{first}") or name == first]
    return list(dict.fromkeys(ends))


def _covers(own: State, state: State, tied: list[list[str]]) -> bool:
    """Return whether every tensor of the model, or one that it shares its memory with, is there in its shape."""
    shared = {name: names for names in tied for name in names}
    return all(
        any(other in state and state[other].shape == value.shape for other in shared.get(name, [name]))
        for name, value in own.items()
    ) and all(name in own for name in state)
