"""Numbers that know which variable they are: what Python does with them becomes a part of the program."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from fairway.debug.reduce.program import BRANCH, COMPARES, OPERATORS, UNARY, Ref


class Notes(Protocol):
    """Who writes down what is done with a number."""

    def note(self, name: str, args: Any, kwargs: Any, result: Any) -> Any: ...


class Tracked:
    """A number, the variable that it is, and how it looks to Python when nobody watches."""

    ref: Ref
    notes: Notes
    bare: Any

    def _ask(self, name: str, other: Any) -> Any:
        if isinstance(other, torch.Tensor):
            return NotImplemented  # the tensor compares itself, and the number stays a variable
        got = OPERATORS[name][0](self.bare, bare(other))
        if isinstance(other, int | float | Tracked):
            return self._asked(name, other, got)
        return got

    def _asked(self, name: str, other: Any, got: Any) -> Any:
        self.notes.note(BRANCH + name, (self, other), {}, got)
        return got

    def _do(self, name: str, one: Any, other: Any) -> Any:
        if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
            return NotImplemented
        if isinstance(one, list | tuple | str) or isinstance(other, list | tuple | str):
            return OPERATORS[name][0](*(self._taken() if item is self else item for item in (one, other)))
        got = OPERATORS[name][0](bare(one), bare(other))
        return self.notes.note(name, (one, other), {}, got) if type(got) in (int, float) else got

    def _taken(self) -> Any:
        """The number for good: what it was read from can no longer be told from what Python makes of it."""
        return self.bare

    def __bool__(self) -> bool:
        return bool(self._ask("ne", 0))


def _asks(name: str) -> Any:
    return lambda self, other: self._ask(name, other)


def _does(name: str) -> Any:
    return lambda self, other: self._do(name, self, other)


def _done_to(name: str) -> Any:
    return lambda self, other: self._do(name, other, self)


def _becomes(name: str) -> Any:
    return lambda self: self.notes.note(name, (self,), {}, UNARY[name][0](self.bare))


for _name in UNARY:
    setattr(Tracked, f"__{_name}__", _becomes(_name))

for _name in OPERATORS:
    if _name in COMPARES:
        setattr(Tracked, f"__{_name}__", _asks(_name))
    else:
        setattr(Tracked, f"__{_name}__", _does(_name))
        setattr(Tracked, f"__r{_name}__", _done_to(_name))


class Sized(Tracked, int):
    """A size, or what was reckoned from sizes."""

    def __hash__(self) -> int:
        return int.__hash__(self)


class Share(Tracked, float):
    """What was reckoned from sizes and is no whole number."""

    def __hash__(self) -> int:
        return float.__hash__(self)


class Read(Tracked):
    """A number read from a tensor. Like an exporter's it is none of Python's own, so that nothing takes it unseen.

    Python's own `int` cannot be used for that: a list asks it for no `__index__`.
    """

    def _asked(self, name: str, other: Any, got: Any) -> Any:
        return self.notes.note(name, (self, other), {}, got)

    def _taken(self, by: str = "index") -> Any:
        self.notes.note(by, (self,), {}, self.bare)
        return self.bare

    def __bool__(self) -> bool:
        self.notes.note("bool", (self,), {}, bool(self.bare))
        return bool(self.bare)

    def __int__(self) -> int:
        return int(self._taken("int"))

    def __float__(self) -> float:
        return float(self._taken("float"))

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._taken("float"), digits)

    def __hash__(self) -> int:
        self.notes.note("hash", (self,), {}, hash(self.bare))
        return hash(self.bare)

    def __repr__(self) -> str:
        return repr(self.bare)

    def __format__(self, spec: str) -> str:
        return format(self.bare, spec)

    def expect_true(self, file: str, line: int) -> bool:
        """What `torch._check` asks of the `node` of an exporter's number. It decides nothing."""
        self.notes.note("torch._check", (self,), {}, None)
        return bool(self.bare)


class TrackedInt(Read, torch.SymInt):
    def __index__(self) -> int:
        return int(self._taken())

    __hash__ = Read.__hash__


class Real(Read, torch.SymFloat):
    __hash__ = Read.__hash__


class TrackedBool(Read, torch.SymBool):
    __hash__ = Read.__hash__


SIZES: dict[type, type[Any]] = {int: Sized, float: Share}
READS: dict[type, type[Any]] = {int: TrackedInt, float: Real, bool: TrackedBool}


def tracked(number: Any, ref: Ref, notes: Notes, read: bool) -> Any:
    """The number as a variable; as it is where it is of another type."""
    kind = (READS if read else SIZES).get(type(number))
    if kind is None:
        return number
    made = kind(None if read else number)
    made.ref, made.notes, made.bare = ref, notes, number
    if read:
        made.node = made
    return made


def bare(item: Any) -> Any:
    """Python's own number in place of a variable, in slices too."""
    if isinstance(item, slice):
        return slice(*(bare(part) for part in (item.start, item.stop, item.step)))
    return item.bare if isinstance(item, Tracked) else item


def let_go(model: torch.nn.Module) -> None:
    """A module may keep a number that it was shown. After the recording that is a plain one again."""
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, Tracked):
                vars(module)[name] = value.bare
