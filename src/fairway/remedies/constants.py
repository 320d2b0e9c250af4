"""Follow the tensors that no input reaches, and compute their values for real while a model is captured.

A capture computes with tensors that have no values. Parameters, buffers and what `forward` creates from plain numbers
have values all the same, and so has everything computed from these alone. Each such tensor is followed beside its real
counterpart, on which every call is repeated. When the model asks for a value, the real one answers.

A tensor is followed only if every argument of every call behind it was. Sizes of inputs are symbols while torch.export
captures; a call that takes one is not followed. What is written into from outside is forgotten, with its views.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch._subclasses import FakeTensor, FakeTensorMode  # these seen to work in torch 2.9–2.13; no public counterpart
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack
from torch.utils.weak import WeakTensorKeyDictionary

from fairway.remedies.repeated import NotFollowed, is_written, property_name, repeat

LARGEST_ELEMENTS = 2**20
"""Elements of a tensor up to which calls on it are repeated."""

Origin = tuple[int, str]
"""A tensor of the model: the id of the module that holds it, and its name there."""

_READS = {
    "item", "tolist", "numpy", "equal", "allclose", "is_nonzero", "__array__", "__bool__", "__int__", "__float__",
    "__complex__", "__index__", "__contains__", "__format__",
}  # fmt: skip
"""Functions that hand values to Python."""
_PASSED_ON = {
    "__repr__", "__str__", "__hash__", "__deepcopy__", "__reduce_ex__", "__setstate__", "__dlpack__", "backward",
    "register_hook", "retain_grad", "requires_grad_", "share_memory_", "pin_memory", "record_stream",
}  # fmt: skip
"""Functions that are not repeated, since they compute nothing or have effects of their own."""
_PROPERTIES = {"T", "mT", "H", "mH", "data", "real", "imag"}
_PLAIN = (
    bool, int, float, complex, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout,
    torch.memory_format, np.generic,
)  # fmt: skip


@dataclass(eq=False)
class Group:
    """Tensors that share memory: a write into one is a write into all."""

    known: bool = True
    origins: frozenset[Origin] = frozenset()
    """The tensors of the model that its values come from."""
    roots: int = 1
    """Tensors of the model in it, each with a copy of its own."""
    values: weakref.WeakSet[Value] = field(default_factory=weakref.WeakSet)

    def is_current(self) -> bool:
        return self.known and all(value.is_current() for value in self.values)

    def accept_write(self) -> None:
        """Note that a write was repeated on the real tensors."""
        self.known = self.known and self.roots == 1
        for value in self.values:
            value.version = value.version_now()


class Value:
    """The real counterpart of one tensor."""

    def __init__(self, tensor: torch.Tensor, real: torch.Tensor, group: Group, is_copied: bool) -> None:
        """A tensor of the model's own is copied once it is needed: what is done to it here is not done to the model."""
        self._tensor = weakref.ref(tensor)
        self._real = real
        self._is_copied = is_copied
        self.group = group
        self.version = int(tensor._version)
        group.values.add(self)

    @property
    def real(self) -> torch.Tensor:
        if not self._is_copied:
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                self._real, self._is_copied = self._real.detach().clone(), True
        return self._real

    def version_now(self) -> int:
        tensor = self._tensor()
        return self.version if tensor is None else int(tensor._version)

    def is_current(self) -> bool:
        """Whether nothing was written into the tensor that was not repeated on the real one."""
        return self.version_now() == self.version


class Constants(torch.overrides.TorchFunctionMode):
    """While entered, questions about values that no input reaches are answered inside `model`'s forward."""

    def __init__(
        self,
        model: torch.nn.Module,
        answered: Callable[[frozenset[Origin]], None] = lambda origins: None,
    ) -> None:
        """`answered` is called before each answer, with the tensors of the model that it comes from."""
        super().__init__()
        self._model, self._answered = model, answered
        self._values: Any = WeakTensorKeyDictionary()
        self._depth = 0
        self._symbolic = False
        self._originals: dict[Origin, torch.Tensor] = {}

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow the model's calls from here on."""
        self._originals = {(id(module), name): tensor for module, name, tensor in _held(self._model)}
        hooks = (
            self._model.register_forward_pre_hook(lambda *_: self._begin()),
            self._model.register_forward_hook(lambda *_: self._end(), always_call=True),
        )
        try:
            with self:
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _begin(self) -> None:
        """Take the model's tensors as they are now: a capture replaces them by ones without values."""
        if self._depth == 0:
            with torch._C.DisableTorchFunction():
                self._take_tensors()
        self._depth += 1

    def _take_tensors(self) -> None:
        self._values.clear()
        self._symbolic = any(isinstance(mode, FakeTensorMode) for mode in _get_current_dispatch_mode_stack())
        groups: dict[int, Group] = {}
        known: set[int] = set()
        for module, name, tensor in _held(self._model):
            original = self._originals.get((id(module), name))
            if original is None or id(tensor) in known or not _is_plain(original):
                continue
            known.add(id(tensor))
            address = original.untyped_storage()._cdata
            group = groups.setdefault(address, Group(roots=0))
            group.roots += 1
            group.origins |= {(id(module), name)}
            self._values[tensor] = Value(tensor, original, group, is_copied=False)

    def _end(self) -> None:
        self._depth -= 1

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Strict capture and torch.cond run Dynamo, which would read this as part of the model.
        if torch.compiler.is_dynamo_compiling() or not self._depth or _is_passed_on(func):
            return func(*args, **kwargs)
        call = _Call(self, func, args, kwargs)
        if call.is_answered:
            return call.answer
        result = func(*call.args, **call.kwargs)
        call.finish(result)
        return result

    def value_of(self, tensor: torch.Tensor) -> Value | None:
        """Return the real counterpart of a tensor; None if an input may have reached it."""
        value: Value | None = self._values.get(tensor)
        if value is None and self._symbolic and not isinstance(tensor, FakeTensor) and _is_plain(tensor):
            value = self.add(tensor, tensor, Group(), is_copied=False)  # a tensor that torch.export did not replace
        return value if value is not None and value.group.is_current() else None

    def group_of(self, tensor: torch.Tensor) -> Group | None:
        value = self._values.get(tensor)
        return None if value is None else value.group

    def add(self, tensor: torch.Tensor, real: torch.Tensor, group: Group, is_copied: bool = True) -> Value:
        value = self._values[tensor] = Value(tensor, real, group, is_copied)
        return value

    def note_answer(self, values: Sequence[Value]) -> None:
        self._answered(frozenset().union(*(value.group.origins for value in values)))


class _Call:
    """One call: repeated on real tensors if all of its arguments are followed."""

    def __init__(self, constants: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._constants, self._func = constants, func
        self.args, self.kwargs = args, kwargs
        self.is_answered, self.answer = False, None
        self._real: Any = None
        self._is_repeated = False
        self._values: list[Value] = []
        given = [leaf for leaf in _leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        # Every one is looked at, so that a write into a tensor met here for the first time is noticed.
        followed = [t for t in given if constants.value_of(t) is not None]
        self._versions = [(t, int(t._version)) for t in followed]
        real = self._all_real((args, kwargs))
        if real is not _UNKNOWN and given:
            self._repeat(*real)
        elif real is _UNKNOWN:
            self._index_by_numbers()
        self._given, self._arguments = given, real

    def _all_real(self, item: Any) -> Any:
        """Return the arguments with real tensors, or `_UNKNOWN` if one of them is not followed."""
        if isinstance(item, torch.Tensor):
            value = self._constants.value_of(item)
            if value is None or item.numel() > LARGEST_ELEMENTS:
                return _UNKNOWN
            self._values.append(value)
            return value.real
        if isinstance(item, list | tuple):
            items = [self._all_real(one) for one in item]
            if any(one is _UNKNOWN for one in items):
                return _UNKNOWN
            return items if isinstance(item, list) else tuple(items)
        if isinstance(item, Mapping):
            pairs = {key: self._all_real(one) for key, one in item.items()}
            return _UNKNOWN if any(one is _UNKNOWN for one in pairs.values()) else pairs
        if isinstance(item, slice):
            ends = [self._all_real(one) for one in (item.start, item.stop, item.step)]
            return _UNKNOWN if any(one is _UNKNOWN for one in ends) else slice(*ends)
        if isinstance(item, np.ndarray):
            return item if item.dtype != object else _UNKNOWN
        return item if isinstance(item, _PLAIN) else _UNKNOWN

    def _repeat(self, args: Any, kwargs: Any) -> None:
        before = [value.real._version for value in self._values]
        try:
            self._real, asks = repeat(self._func, args, kwargs)
        except NotFollowed:
            return
        self._is_repeated = True
        wrote = before != [value.real._version for value in self._values]
        if (asks or self._func.__name__ in _READS) and not wrote:
            self._constants.note_answer(self._values)
            self.answer, self.is_answered = self._handed_out(self._real), True

    def _handed_out(self, real: Any) -> Any:
        """Return real tensors as constants of the captured program, followed in their turn."""
        if isinstance(real, torch.Tensor):
            with _disable_current_modes():
                constant = real.clone()
            self._constants.add(constant, real, Group(origins=self._origins()))
            return constant
        if type(real) in (list, tuple):
            return type(real)(self._handed_out(one) for one in real)
        return real

    def _origins(self) -> frozenset[Origin]:
        return frozenset().union(*(value.group.origins for value in self._values))

    def _index_by_numbers(self) -> None:
        """Replace masks that are followed by the places that they pick: how many these are is then known."""
        if self._func is torch.Tensor.__getitem__ or self._func is torch.Tensor.__setitem__:
            items = self.args[1] if isinstance(self.args[1], tuple) else (self.args[1],)
            numbers = tuple(itertools.chain.from_iterable(self._places(item) for item in items))
            if len(numbers) != len(items) or any(a is not b for a, b in zip(numbers, items, strict=True)):
                self.args = (self.args[0], numbers, *self.args[2:])
        elif getattr(self._func, "__name__", "") == "repeat_interleave" and len(self.args) + len(self.kwargs) >= 2:
            self._select_repeated()

    def _places(self, item: Any) -> Sequence[Any]:
        if not isinstance(item, torch.Tensor) or item.dtype not in (torch.bool, torch.uint8) or item.dim() == 0:
            return (item,)
        value = self._constants.value_of(item)
        if value is None or item.numel() > LARGEST_ELEMENTS:
            return (item,)
        self._constants.note_answer([value])
        with _disable_current_modes():
            return value.real.bool().nonzero().unbind(1)

    def _select_repeated(self) -> None:
        named = dict(zip(("input", "repeats", "dim"), self.args, strict=False)) | dict(self.kwargs)
        repeats, dim, tensor = named.get("repeats"), named.get("dim"), named.get("input", named.get("self"))
        if not isinstance(repeats, torch.Tensor) or not isinstance(dim, int) or tensor is None or repeats.dim() != 1:
            return
        value = self._constants.value_of(repeats)
        if value is None or len(repeats) < 2:
            return
        self._constants.note_answer([value])
        with _disable_current_modes():
            places = torch.repeat_interleave(torch.arange(len(repeats)), value.real)
        self._func_replaced(tensor, dim, places)

    def _func_replaced(self, tensor: torch.Tensor, dim: int, places: torch.Tensor) -> None:
        self.answer, self.is_answered = torch.index_select(tensor, dim, places), True

    def finish(self, result: Any) -> None:
        """Follow the result, and forget what the call wrote into, unless the write was repeated."""
        if self._arguments is not _UNKNOWN and not self._given and _is_small(result):
            self._repeat(*self._arguments)  # it creates a tensor from plain numbers
        written = [t for t, version in self._versions if int(t._version) != version]
        if self._is_repeated:
            for tensor in written:
                group = self._constants.group_of(tensor)
                if group is not None:
                    group.accept_write()
            self._pair(result, self._real, {})
            return
        written += [t for t in is_written(self._func, self.args, self.kwargs) if isinstance(t, torch.Tensor)]
        for tensor in written:
            group = self._constants.group_of(tensor)
            if group is not None:
                group.known = False

    def _pair(self, result: Any, real: Any, created: dict[int, Group]) -> None:
        if isinstance(result, torch.Tensor) and isinstance(real, torch.Tensor):
            same = (result.shape, result.dtype) == (real.shape, real.dtype)
            if same and real.layout == torch.strided and result.stride() == real.stride():
                self._constants.add(result, real, self._group_for(real, created))
        elif isinstance(result, list | tuple) and isinstance(real, list | tuple) and len(result) == len(real):
            for one, other in zip(result, real, strict=True):
                self._pair(one, other, created)

    def _group_for(self, real: torch.Tensor, created: dict[int, Group]) -> Group:
        address = real.untyped_storage()._cdata
        for value in self._values:
            if value.real.untyped_storage()._cdata == address:
                return value.group
        return created.setdefault(address, Group(origins=self._origins()))


_UNKNOWN: Any = object()


def _is_passed_on(func: Any) -> bool:
    name = property_name(func)
    return name not in _PROPERTIES if name is not None else getattr(func, "__name__", "") in _PASSED_ON


def _is_small(result: Any) -> bool:
    leaves = list(_leaves(result))
    return bool(leaves) and all(
        isinstance(leaf, torch.Tensor) and all(isinstance(size, int) for size in leaf.shape)
        and leaf.numel() <= LARGEST_ELEMENTS
        for leaf in leaves
    )  # fmt: skip


def _leaves(item: Any) -> Iterator[Any]:
    if isinstance(item, list | tuple):
        for one in item:
            yield from _leaves(one)
    elif isinstance(item, Mapping):
        for one in item.values():
            yield from _leaves(one)
    elif isinstance(item, slice):
        yield from (item.start, item.stop, item.step)
    else:
        yield item


def _held(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str, torch.Tensor]]:
    """Yield every tensor that a module of the model holds by a name."""
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            continue  # its tables are not Python's
        for table in (module._parameters, module._buffers, module.__dict__):
            for name, tensor in table.items():
                if isinstance(tensor, torch.Tensor):
                    yield module, name, tensor


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of numbers in memory: no wrapper of another, and of no kind of its own."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        return False
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor) or torch._is_functional_tensor(tensor)
    return not wrapped and tensor.device.type == "cpu" and not tensor.is_inference() and not tensor.is_quantized
