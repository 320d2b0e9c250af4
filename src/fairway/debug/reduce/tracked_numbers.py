"""Numbers that know which variable they are, so that Python's use of them becomes a part of the program."""

from __future__ import annotations

from typing import Protocol

import torch

from fairway.debug.reduce.program import BRANCH_PREFIX, COMPARISONS, OPERATORS, UNARY, Ref, Value
from fairway.torch_internals import CHECK


class CallNotes(Protocol):
    """Records what is done with a number."""

    def note(self, name: str, args: Value, kwargs: Value, result: Value) -> Value: ...


class Tracked:
    """A number, its variable, and its plain value."""

    ref: Ref
    notes: CallNotes
    bare: Value

    def _compare(self, name: str, other: Value) -> Value:
        if isinstance(other, torch.Tensor):
            return NotImplemented  # the tensor compares itself, and the number stays a variable
        got = OPERATORS[name][0](self.bare, unwrap_number(other))
        if isinstance(other, int | float | Tracked):
            return self._note_comparison(name, other, got)
        return got

    def _note_comparison(self, name: str, other: Value, got: Value) -> Value:
        self.notes.note(BRANCH_PREFIX + name, (self, other), {}, got)
        return got

    def _compute(self, name: str, left: Value, other: Value) -> Value:
        if isinstance(left, torch.Tensor) or isinstance(other, torch.Tensor):
            return NotImplemented
        if isinstance(left, list | tuple | str) or isinstance(other, list | tuple | str):
            return OPERATORS[name][0](*(self._take_value() if item is self else item for item in (left, other)))
        got = OPERATORS[name][0](unwrap_number(left), unwrap_number(other))
        return self.notes.note(name, (left, other), {}, got) if type(got) in (int, float) else got

    def _take_value(self) -> Value:
        """Return the plain number. From here on its variable is lost."""
        return self.bare

    def __bool__(self) -> bool:
        return bool(self._compare("ne", 0))


def _make_comparison(name: str) -> Value:
    return lambda self, other: self._compare(name, other)


def _make_operator(name: str) -> Value:
    return lambda self, other: self._compute(name, self, other)


def _make_reflected_operator(name: str) -> Value:
    return lambda self, other: self._compute(name, other, self)


def _make_unary(name: str) -> Value:
    return lambda self: self.notes.note(name, (self,), {}, UNARY[name][0](self.bare))


for _name in UNARY:
    setattr(Tracked, f"__{_name}__", _make_unary(_name))

for _name in OPERATORS:
    if _name in COMPARISONS:
        setattr(Tracked, f"__{_name}__", _make_comparison(_name))
    else:
        setattr(Tracked, f"__{_name}__", _make_operator(_name))
        setattr(Tracked, f"__r{_name}__", _make_reflected_operator(_name))


class TrackedSize(Tracked, int):
    """A size, or an integer computed from sizes."""

    def __hash__(self) -> int:
        return int.__hash__(self)


class TrackedFraction(Tracked, float):
    """A float computed from sizes."""

    def __hash__(self) -> int:
        return float.__hash__(self)


class TrackedRead(Tracked):
    """A number read from a tensor. It is an object of this class, so that every use of it is recorded.

    It cannot be a subclass of `int`: a list would not call its `__index__`.
    """

    def _note_comparison(self, name: str, other: Value, got: Value) -> Value:
        return self.notes.note(name, (self, other), {}, got)

    def _take_value(self, by: str = "index") -> Value:
        self.notes.note(by, (self,), {}, self.bare)
        return self.bare

    def __bool__(self) -> bool:
        self.notes.note("bool", (self,), {}, bool(self.bare))
        return bool(self.bare)

    def __int__(self) -> int:
        return int(self._take_value("int"))

    def __float__(self) -> float:
        return float(self._take_value("float"))

    def __round__(self, digits: int | None = None) -> Value:
        return round(self._take_value("float"), digits)

    def __hash__(self) -> int:
        self.notes.note("hash", (self,), {}, hash(self.bare))
        return hash(self.bare)

    def __repr__(self) -> str:
        return repr(self.bare)

    def __format__(self, spec: str) -> str:
        return format(self.bare, spec)

    def expect_true(self, file: str, line: int) -> bool:
        """Answer the check that torch makes on the `node` of a symbolic number. It decides nothing."""
        self.notes.note(CHECK, (self,), {}, None)
        return bool(self.bare)


class TrackedInt(TrackedRead, torch.SymInt):
    def __index__(self) -> int:
        return int(self._take_value())

    __hash__ = TrackedRead.__hash__


class TrackedFloat(TrackedRead, torch.SymFloat):
    __hash__ = TrackedRead.__hash__


class TrackedBool(TrackedRead, torch.SymBool):
    __hash__ = TrackedRead.__hash__


SIZES: dict[type, type[Value]] = {int: TrackedSize, float: TrackedFraction}
READS: dict[type, type[Value]] = {int: TrackedInt, float: TrackedFloat, bool: TrackedBool}


def track_number(number: Value, ref: Ref, notes: CallNotes, read: bool) -> Value:
    """Return the number as a variable, or unchanged if its type is not tracked."""
    kind = (READS if read else SIZES).get(type(number))
    if kind is None:
        return number
    made = kind(None if read else number)
    made.ref, made.notes, made.bare = ref, notes, number
    if read:
        made.node = made
    return made


def unwrap_number(item: Value) -> Value:
    """Replace variables by Python's own numbers, in slices too."""
    if isinstance(item, slice):
        return slice(*(unwrap_number(part) for part in (item.start, item.stop, item.step)))
    return item.bare if isinstance(item, Tracked) else item


def release_numbers(model: torch.nn.Module) -> None:
    """Replace tracked numbers that a module kept by plain ones, after the recording."""
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, Tracked):
                vars(module)[name] = value.bare
