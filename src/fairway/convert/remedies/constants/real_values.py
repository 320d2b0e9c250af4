"""The tensors that no input reaches, each with its real counterpart."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from fairway.torch_internals import (
    DisableTorchFunction,
    FakeTensor,
    FakeTensorMode,
    Untyped,
    count_writes,
    current_dispatch_modes,
    disable_current_modes,
    is_functional_tensor,
    is_functorch_wrapped_tensor,
    module_buffers,
    module_parameters,
    storage_address,
)

Origin = tuple[int, str]
"""A tensor of the model: the id of the module that holds it, and its name there."""

NOT_HELD: Origin = (0, "")
"""A tensor that no module holds by a name, such as a global or one in a list."""

QuestionSink = Callable[[frozenset[Origin] | None], None]
"""Called at each question about values: with the tensors of the model behind the answer, or None if there is none."""


@dataclass(eq=False)
class SharedMemory:
    """Tensors that share memory: a write into one is a write into all."""

    known: bool = True
    origins: frozenset[Origin] = frozenset()
    """The tensors of the model that its values come from."""
    roots: int = 1
    """The number of tensors of the model in it, each of which has a separate copy."""
    values: weakref.WeakSet[RealValue] = field(default_factory=weakref.WeakSet)

    def is_current(self) -> bool:
        return self.known and all(value.is_current() for value in self.values)

    def accept_write(self) -> None:
        """Note that a write was repeated on the real tensors."""
        self.known = self.known and self.roots == 1
        for value in self.values:
            value.version = value.version_now()


class RealValue:
    """The real counterpart of one tensor."""

    def __init__(self, tensor: torch.Tensor, real: torch.Tensor, group: SharedMemory, is_copied: bool) -> None:
        """Store the counterpart of a tensor. A tensor of the model is copied on first use and stays unchanged."""
        self._tensor = weakref.ref(tensor)
        self._real = real
        self._is_copied = is_copied
        self.group = group
        self.version = count_writes(tensor)
        group.values.add(self)

    @property
    def real(self) -> torch.Tensor:
        if not self._is_copied:
            with disable_current_modes(), DisableTorchFunction():
                self._real, self._is_copied = self._real.detach().clone(), True
        return self._real

    def version_now(self) -> int:
        tensor = self._tensor()
        return self.version if tensor is None else count_writes(tensor)

    def is_current(self) -> bool:
        """Return whether every write into the tensor was repeated on the real one."""
        return self.version_now() == self.version


class FollowedTensors:
    """The tensors that are followed from the start of a run of the model."""

    def __init__(self, model: torch.nn.Module, on_question: QuestionSink) -> None:
        self.on_question = on_question
        self._model = model
        self._values: Untyped = WeakTensorKeyDictionary()
        self._symbolic = False
        self._originals = {(id(module), name): tensor for module, name, tensor in _named_tensors(model)}

    def start(self) -> None:
        """Store the model's tensors as they are now, because a capture replaces them by tensors without values."""
        self._values.clear()
        self._symbolic = any(isinstance(mode, FakeTensorMode) for mode in current_dispatch_modes())
        groups: dict[int, SharedMemory] = {}
        known: set[int] = set()
        for module, name, tensor in _named_tensors(self._model):
            original = self._originals.get((id(module), name))
            if original is None or id(tensor) in known or not _is_plain(original):
                continue
            known.add(id(tensor))
            address = storage_address(original)
            group = groups.setdefault(address, SharedMemory(roots=0))
            group.roots += 1
            group.origins |= {(id(module), name)}
            self._values[tensor] = RealValue(tensor, original, group, is_copied=False)

    def value_of(self, tensor: torch.Tensor) -> RealValue | None:
        """Return the real counterpart of a tensor; None if an input may have reached it."""
        value: RealValue | None = self._values.get(tensor)
        # Values of inputs are fake tensors, and torch.export leaves tensors that no module holds as they are.
        if value is None and self._symbolic and not isinstance(tensor, FakeTensor) and _is_plain(tensor):
            value = self.add(tensor, tensor, SharedMemory(origins=frozenset({NOT_HELD})), is_copied=False)
        return value if value is not None and value.group.is_current() else None

    def group_of(self, tensor: torch.Tensor) -> SharedMemory | None:
        value = self._values.get(tensor)
        return None if value is None else value.group

    def add(self, tensor: torch.Tensor, real: torch.Tensor, group: SharedMemory, is_copied: bool = True) -> RealValue:
        value = self._values[tensor] = RealValue(tensor, real, group, is_copied)
        return value

    def note_answer(self, values: Sequence[RealValue]) -> None:
        self.on_question(frozenset().union(*(value.group.origins for value in values)))


def _named_tensors(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str, torch.Tensor]]:
    """Yield every tensor that a module of the model holds by a name."""
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            continue  # its tables are not Python's
        for table in (module_parameters(module), module_buffers(module), module.__dict__):
            for name, tensor in table.items():
                if isinstance(tensor, torch.Tensor):
                    yield module, name, tensor


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is an ordinary one on the CPU: no subclass, no wrapper of another tensor."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        return False
    wrapped = is_functorch_wrapped_tensor(tensor) or is_functional_tensor(tensor)
    return not wrapped and tensor.device.type == "cpu" and not tensor.is_inference() and not tensor.is_quantized
