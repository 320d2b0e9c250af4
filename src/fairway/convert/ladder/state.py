"""The state of a model: buffers, parameters, and numbers and tensors among the attributes of its modules.

A model that changes its state in forward and reads it again answers by its history, which an ONNX file does not have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from fairway.diagnostics import Where
from fairway.judge.runtimes.operator_watch import Watch
from fairway.model.source import running_line

MOST_COPIED_BYTES = 256 * 2**20
"""Tensors are copied up to this many bytes in all; a change of the others is seen, but not undone."""
_TABLES = ("_parameters", "_buffers")
_INTERNAL = ("training", "_modules", *_TABLES)


class ModelState:
    """The state as it is now, to compare with and to return to."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._room_bytes = MOST_COPIED_BYTES
        self._entries = {key: _Entry(value, self._copy(value)) for key, value in _walk(model)}

    def _copy(self, value: Any) -> Any:
        """A copy of a buffer's or attribute's content; None for what is only watched."""
        if isinstance(value, torch.nn.Parameter) or not isinstance(value, torch.Tensor):
            return None
        if type(value) is not torch.Tensor or value.layout != torch.strided or value.nbytes > self._room_bytes:
            return None
        self._room_bytes -= value.nbytes
        return value.detach().clone()

    def find_changes(self, containers: bool = False) -> list[str]:
        """Return the names of buffers, parameters and attributes that changed; lists and dicts only on demand."""
        now = dict(_walk(self._model))
        changed = []
        for key in dict.fromkeys((*self._entries, *now)):
            before = self._entries.get(key)
            if _is_container(now.get(key, before and before.value)) and not containers:
                continue
            if before is None or key not in now or before.is_changed(now[key]):
                changed.append(_name(self._model, key))
        return changed

    def restore(self) -> bool:
        """Return the model to this state; False if something that changed had not been copied."""
        for key, _ in list(_walk(self._model)):
            if key not in self._entries:
                module, name, table = key
                (module.__dict__ if table is None else module.__dict__[table]).pop(name)
        for (module, name, table), entry in self._entries.items():
            entry.restore()
            (module.__dict__ if table is None else module.__dict__[table])[name] = entry.value
        return not self.find_changes()

    def tensors(self) -> dict[int | None, str]:
        """Return the names of all tensors of the state by the address of their storage."""
        found: dict[int | None, str] = {}
        for key, value in _walk(self._model):
            address = _address(value)
            if address is not None:
                found[address] = _name(self._model, key)
        return found


class _Entry:
    """One value: the object itself, its version or content."""

    def __init__(self, value: Any, copy: torch.Tensor | None) -> None:
        self.value = value
        self._copy = copy
        self._version = _version(value)
        self._content = list(value.items() if isinstance(value, dict) else value) if _is_container(value) else None

    def is_changed(self, now: Any) -> bool:
        if isinstance(now, torch.Tensor):
            if now is self.value and _version(now) == self._version:
                return False
            return self._copy is None or not _is_same(self._copy, now)
        if _is_container(now):
            content = list(now.items() if isinstance(now, dict) else now)
            return self._content is None or len(content) != len(self._content)
        if isinstance(now, int | float | None):
            return type(now) is not type(self.value) or now != self.value
        return False  # other objects are not compared

    def restore(self) -> None:
        if self._copy is not None and _version(self.value) != self._version:
            with torch.no_grad():
                self.value.copy_(self._copy)
            self._version = _version(self.value)
        if self._content is not None:
            self.value.clear()
            (self.value.update if isinstance(self.value, dict) else self.value.extend)(self._content)


Key = tuple[torch.nn.Module, str, str | None]


def _walk(model: torch.nn.Module) -> Iterator[tuple[Key, Any]]:
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            continue  # its tables are not Python's
        for table in _TABLES:
            for name, tensor in module.__dict__[table].items():
                yield (module, name, table), tensor
        for name, value in module.__dict__.items():
            if name not in _INTERNAL:
                yield (module, name, None), value


def _is_container(value: Any) -> bool:
    return type(value) in (list, dict, deque)


def _version(value: Any) -> int:
    """How often a tensor was written into; 0 for what does not count it."""
    try:
        return int(value._version) if isinstance(value, torch.Tensor) else 0
    except RuntimeError:  # tensors made in inference mode
        return 0


def _address(value: Any) -> int | None:
    """Where a plain tensor's storage is in memory, which it shares with its views."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided or not value.nbytes:
        return None
    return int(value.untyped_storage().data_ptr())


def _is_same(before: torch.Tensor, now: torch.Tensor) -> bool:
    same_kind = before.shape == now.shape and before.dtype == now.dtype
    return same_kind and torch.equal(torch.nan_to_num(before), torch.nan_to_num(now))


def _name(model: torch.nn.Module, key: Key) -> str:
    path = next((name for name, module in model.named_modules() if module is key[0]), "")
    return f"{path}.{key[1]}" if path else key[1]


class RunWatch(Watch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Notes the user's lines at which random numbers are drawn and at which the model's state is written."""

    def __init__(self, state: ModelState) -> None:
        super().__init__()
        self.draws: list[Where] = []
        self.writes: dict[str, Where] = {}
        self._state = state
        self._tensors: Mapping[int | None, str] = {}

    @contextmanager
    def run(self, model: torch.nn.Module) -> Iterator[None]:
        """While inside, operators and attributes of the model are watched."""
        self._tensors = self._state.tensors()
        paths = {id(module): path for path, module in model.named_modules()}
        plain = torch.nn.Module.__setattr__

        def note(module: torch.nn.Module, name: str, value: Any) -> None:
            if id(module) in paths:
                self._note(f"{paths[id(module)]}.{name}" if paths[id(module)] else name)
            plain(module, name, value)

        torch.nn.Module.__setattr__ = note  # type: ignore[method-assign,assignment]
        try:
            with self:
                yield
        finally:
            torch.nn.Module.__setattr__ = plain  # type: ignore[method-assign]

    def watch(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            frame = running_line()
            if frame is not None:
                self.draws.append(frame)
        if func._schema.is_mutable:  # seen to work in torch 2.9–2.13; no public counterpart
            given = [*zip(func._schema.arguments, args, strict=False)]
            given += [(one, kwargs[one.name]) for one in func._schema.arguments if one.name in kwargs]
            for argument, value in given:
                written = argument.alias_info is not None and argument.alias_info.is_write
                address = _address(value) if written else None
                if address in self._tensors:
                    self._note(self._tensors[address])
        return func(*args, **kwargs)

    def _note(self, name: str) -> None:
        frame = running_line()
        if frame is not None:
            self.writes.setdefault(name, frame)
