"""The functions by which rewritten code reads, changes and hands on the attributes that modules keep over time."""

from __future__ import annotations

import torch

from fairway.convert.rewrite.scalars import RuntimeValue, Unrewritable

PATH, CALLS, STATES = "_fairway_path", "_fairway_calls", "_fairway_states"
"""What a module has while a rewrite is installed: its path, the lifted forms of its methods, and the modules below it
with the attributes of each that are carried."""

State = dict[str, RuntimeValue]
"""The values of attributes by the path of their module and their name."""


def open_state(owner: RuntimeValue) -> State:
    """Return the attributes as they are when a loop begins. Those that do not exist yet appear with the first step."""
    state: State = {}
    for module, names in getattr(owner, STATES):
        for name in names:
            if hasattr(module, name):
                state[_make_key(module, name)] = getattr(module, name)
    return state


def close_state(owner: RuntimeValue, state: State) -> None:
    """Give the modules their attributes back as the loop left them."""
    for module, names in getattr(owner, STATES):
        for name in names:
            key = _make_key(module, name)
            if key in state and state[key] is not getattr(module, name, None):
                setattr(module, name, state[key])


def fork(state: State) -> State:
    """Return a copy to change, so that the two sides of a branch do not see each other's changes."""
    return dict(state)


def _make_key(module: RuntimeValue, name: str) -> str:
    return f"{getattr(module, PATH)}.{name}"


def read_attribute(state: State, module: RuntimeValue, name: str) -> RuntimeValue:
    if isinstance(module, torch.nn.Module) and hasattr(module, PATH):
        key = _make_key(module, name)
        if key in state:
            return state[key]
    return getattr(module, name)


def write_attribute(state: State, module: RuntimeValue, name: str, value: RuntimeValue) -> None:
    if not isinstance(module, torch.nn.Module) or not hasattr(module, PATH):
        raise Unrewritable(f"the loop writes the attribute `{name}` of something that is not a module")
    state[_make_key(module, name)] = value


def call_method(
    state: State, owner: RuntimeValue, name: str, *args: RuntimeValue, **named: RuntimeValue
) -> RuntimeValue:
    calls = getattr(owner, CALLS, {})
    if name not in calls:
        return getattr(owner, name)(*args, **named)
    result, after = calls[name](owner, state, *args, **named)
    state.update(after)
    return result


def call_module(state: State, module: RuntimeValue, *args: RuntimeValue, **named: RuntimeValue) -> RuntimeValue:
    if not isinstance(module, torch.nn.Module) or not hasattr(module, CALLS):
        return module(*args, **named)
    return call_method(state, module, "forward", *args, **named)


def run_sequence(module: RuntimeValue, state: State, value: RuntimeValue) -> tuple[RuntimeValue, State]:
    """Do what the forward of `torch.nn.Sequential` does."""
    state = fork(state)
    for child in module:
        value = call_module(state, child, value)
    return value, state
