"""The state of a model: buffers, parameters, and numbers and tensors among the attributes of its modules.

A model that changes its state in forward and reads it again depends on its history, which an ONNX file does not have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeGuard

import torch

from fairway.diagnostics import Where
from fairway.judge.runtimes.operator_watch import OperatorWatch
from fairway.model.source import find_running_line
from fairway.torch_internals import count_writes, read_schema, replace_internal

MAX_COPIED_BYTES = 256 * 2**20
"""Tensors are copied up to this many bytes in total. Changes of the others are detected, but not undone."""
Container: TypeAlias = list[object] | dict[object, object] | deque[object]
_TABLES = ("_parameters", "_buffers")
_INTERNAL = ("training", "_modules", *_TABLES)


class ModelState:
    """A snapshot of the state, to compare with and to restore."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._room_bytes = MAX_COPIED_BYTES
        self._entries = {key: _Entry(value, self._copy(value)) for key, value in _list_values(model)}

    def _copy(self, value: object) -> torch.Tensor | None:
        """Copy a buffer's or attribute's content; return None for values that are only watched."""
        if isinstance(value, torch.nn.Parameter) or not isinstance(value, torch.Tensor):
            return None
        if type(value) is not torch.Tensor or value.layout != torch.strided or value.nbytes > self._room_bytes:
            return None
        self._room_bytes -= value.nbytes
        return value.detach().clone()

    def find_changes(self, containers: bool = False) -> list[str]:
        """Return the names of buffers, parameters and attributes that changed; lists and dicts only on demand."""
        now = dict(_list_values(self._model))
        changed = []
        for key in dict.fromkeys((*self._entries, *now)):
            before = self._entries.get(key)
            if _is_container(now.get(key, before and before.value)) and not containers:
                continue
            if before is None or key not in now or before.is_changed(now[key]):
                changed.append(_get_path(self._model, key))
        return changed

    def restore(self) -> bool:
        """Return the model to this state. The result is False if something changed that had not been copied."""
        for key, _ in list(_list_values(self._model)):
            if key not in self._entries:
                module, name, table = key
                (module.__dict__ if table is None else module.__dict__[table]).pop(name)
        for (module, name, table), entry in self._entries.items():
            entry.restore()
            (module.__dict__ if table is None else module.__dict__[table])[name] = entry.value
        return not self.find_changes()

    def name_tensors(self) -> dict[int | None, str]:
        """Return the names of all tensors of the state by the address of their storage."""
        names: dict[int | None, str] = {}
        for key, value in _list_values(self._model):
            address = _find_address(value)
            if address is not None:
                names[address] = _get_path(self._model, key)
        return names


class _Entry:
    """One value: the object, and its version or content."""

    def __init__(self, value: Any, copy: torch.Tensor | None) -> None:
        self.value = value
        self._copy = copy
        self._version = _read_version(value)
        self._content: list[Any] | None = None
        if _is_container(value):
            self._content = list(value.items() if isinstance(value, dict) else value)

    def is_changed(self, now: object) -> bool:
        if isinstance(now, torch.Tensor):
            if now is self.value and _read_version(now) == self._version:
                return False
            return self._copy is None or not _is_same(self._copy, now)
        if _is_container(now):
            content = list(now.items() if isinstance(now, dict) else now)
            return self._content is None or len(content) != len(self._content)
        if isinstance(now, int | float | None):
            return type(now) is not type(self.value) or now != self.value
        return False  # other objects are not compared

    def restore(self) -> None:
        if self._copy is not None and _read_version(self.value) != self._version:
            with torch.no_grad():
                self.value.copy_(self._copy)
            self._version = _read_version(self.value)
        if self._content is not None:
            self.value.clear()
            (self.value.update if isinstance(self.value, dict) else self.value.extend)(self._content)


StateKey: TypeAlias = tuple[torch.nn.Module, str, str | None]
"""A module, the name of a value in it, and the table that holds the value; None for plain attributes."""


def _list_values(model: torch.nn.Module) -> Iterator[tuple[StateKey, object]]:
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            continue  # its tables are not Python's
        for table in _TABLES:
            for name, tensor in module.__dict__[table].items():
                yield (module, name, table), tensor
        for name, value in module.__dict__.items():
            if name not in _INTERNAL:
                yield (module, name, None), value


def _is_container(value: object) -> TypeGuard[Container]:
    return type(value) in (list, dict, deque)


def _read_version(value: object) -> int:
    """Return how often a tensor was written to, or 0 for values that do not count writes."""
    try:
        return count_writes(value) if isinstance(value, torch.Tensor) else 0
    except RuntimeError:  # tensors made in inference mode
        return 0


def _find_address(value: object) -> int | None:
    """Return the address of a plain tensor's storage, which it shares with its views."""
    if not isinstance(value, torch.Tensor) or type(value) not in (torch.Tensor, torch.nn.Parameter):
        return None
    if value.layout != torch.strided or not value.nbytes:
        return None
    return int(value.untyped_storage().data_ptr())


def _is_same(before: torch.Tensor, now: torch.Tensor) -> bool:
    same_kind = before.shape == now.shape and before.dtype == now.dtype
    return same_kind and torch.equal(torch.nan_to_num(before), torch.nan_to_num(now))


def _get_path(model: torch.nn.Module, key: StateKey) -> str:
    path = next((name for name, module in model.named_modules() if module is key[0]), "")
    return f"{path}.{key[1]}" if path else key[1]


class RunWatch(OperatorWatch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Notes the user's lines that draw random numbers or write the model's state."""

    def __init__(self, state: ModelState) -> None:
        super().__init__()
        self.draws: list[Where] = []
        self.writes: dict[str, Where] = {}
        self._state = state
        self._tensors: Mapping[int | None, str] = {}

    @contextmanager
    def run(self, model: torch.nn.Module) -> Iterator[None]:
        """Watch the model's operators and attributes within the block."""
        self._tensors = self._state.name_tensors()
        paths = {id(module): path for path, module in model.named_modules()}
        plain = torch.nn.Module.__setattr__

        def note(module: torch.nn.Module, name: str, value: Any) -> None:
            if id(module) in paths:
                self._note(f"{paths[id(module)]}.{name}" if paths[id(module)] else name)
            plain(module, name, value)

        with replace_internal("module_setattr", note), self:
            yield

    def watch(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            frame = find_running_line()
            if frame is not None:
                self.draws.append(frame)
        if read_schema(func).is_mutable:
            declared = read_schema(func).arguments
            given = [*zip(declared, args, strict=False)]
            given += [(argument, kwargs[argument.name]) for argument in declared if argument.name in kwargs]
            for argument, value in given:
                written = argument.alias_info is not None and argument.alias_info.is_write
                address = _find_address(value) if written else None
                if address in self._tensors:
                    self._note(self._tensors[address])
        return func(*args, **kwargs)

    def _note(self, name: str) -> None:
        frame = find_running_line()
        if frame is not None:
            self.writes.setdefault(name, frame)
