"""The spec language: `acc: float32[batch, time, 3]`, `ids: int64[batch, seq] < 30522`, `mask: bool[b, s] = padding`.

A limit may be a size: `edges: int64[2, links] < nodes`. Integers are fixed, names vary. If a line does not parse, the
error message has a caret under the place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import isfinite
from typing import NoReturn

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.dims import Point, Size, parse_size

DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
)

MAX_LINE_CHARACTERS = 2000
"""Characters in a line. Every error message quotes the line, and int() refuses numbers of more than 4300 digits."""

MASKS = ("padding", "padding-left", "padding-right", "keep", "keep-left-padded", "keep-right-padded")
"""Kinds of mask. `padding` is True for padding, `keep` for real elements. Every row has at least one real element."""


@dataclass(frozen=True)
class Values:
    """The legal values: integers below a number or a size, a range, a mask, or row lengths up to a dim."""

    below: int | None = None
    low: float | None = None
    high: float | None = None
    mask: str | None = None
    lengths: Size | None = None
    under: Size | None = None

    def __str__(self) -> str:
        if self.below is not None:
            return f" < {self.below}"
        if self.under is not None:
            return f" < {self.under}"
        if self.low is not None:
            return f" in {self.low:g}..{self.high:g}"
        if self.mask:
            return f" = {self.mask}"
        return f" = lengths({self.lengths})" if self.lengths else ""


@dataclass(frozen=True)
class TensorSpec:
    """One input tensor: its name (a path such as `past.0.key` when nested), dtype, shape, legal values."""

    name: str
    dtype: str
    shape: tuple[Size, ...]
    values: Values = Values()

    def sizes(self, point: Point) -> tuple[int, ...]:
        return tuple(size.at(point) for size in self.shape)

    @property
    def dims(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for size in self.shape for name in size.names))

    @property
    def in_file(self) -> TensorSpec:
        """The same input as an ONNX file declares it: complex numbers are pairs of floats on one more axis."""
        if self.dtype != "complex64":
            return self
        return replace(self, dtype="float32", shape=(*self.shape, parse_size("2")))

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]{self.values}"


_NAME = re.compile(r"\s*([A-Za-z_]\w*(?:\.\w+)*)\s*")
_DTYPE = re.compile(r"\s*(\w+)\s*")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_BELOW = re.compile(r"\s*<\s*(\d+)\s*$")
_UNDER = re.compile(r"\s*<\s*(\S.*?)\s*$")
_RANGE = re.compile(rf"\s*in\s+({_NUMBER})\s*\.\.\s*({_NUMBER})\s*$")
_KIND = re.compile(r"\s*=\s*([\w-]+)(?:\(([^)]*)\))?\s*$")
_DIM = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:=\s*(-?\d+)\s*\.\.\s*(-?\d+)\s*)?(?:%\s*(\d+)\s*)?$")


def parse_input(line: str) -> TensorSpec:
    """Parse one spec line."""
    _refuse_long(line)
    name = _NAME.match(line)
    if name is None:
        _refuse_line(line, 0, "an input's name belongs here")
    at = name.end()
    if line[at : at + 1] != ":":
        _refuse_line(line, at, "a colon belongs here, after the input's name")
    dtype = _DTYPE.match(line, at + 1)
    if dtype is None or dtype[1] not in DTYPES:
        _refuse_line(line, at + 1 + _count_blanks(line, at + 1), "a dtype belongs here: " + ", ".join(DTYPES))
    at = dtype.end()
    if line[at : at + 1] != "[":
        _refuse_line(line, at, "the shape belongs here, in brackets")
    close = line.find("]", at)
    if close < 0:
        _refuse_line(line, len(line), "the shape's closing bracket is missing")
    shape = _parse_shape(line, at + 1, close)
    return TensorSpec(name[1], dtype[1], shape, _parse_values(line, close + 1, dtype[1], shape))


def parse_dim(text: str) -> tuple[str, tuple[int, int] | None, int | None]:
    """Return (name, bounds, multiple) from `time=10..2000`, `seq%8` or both."""
    _refuse_long(text)
    match = _DIM.match(text)
    if match is None or (match[2] is None and match[4] is None):
        stem = re.match(r"\s*[A-Za-z_]\w*\s*", text)
        _refuse_line(text, stem.end() if stem else 0, "a dim is written name=low..high, name%multiple, or both")
    if match[4] is not None and int(match[4]) == 0:
        _refuse_line(text, match.start(4), "a multiple is at least 1")
    bounds = None if match[2] is None else (int(match[2]), int(match[3]))
    return match[1], bounds, None if match[4] is None else int(match[4])


def _parse_shape(line: str, start: int, end: int) -> tuple[Size, ...]:
    sizes: list[Size] = []
    at = start
    if not line[start:end].strip():
        return ()
    for part in line[start:end].split(","):
        try:
            sizes.append(parse_size(part))
        except ValueError:
            _refuse_line(line, at + _count_blanks(part, 0), "a size belongs here: a number, a name, or 2*name+1")
        at += len(part) + 1
    return tuple(sizes)


def _parse_values(line: str, at: int, dtype: str, shape: tuple[Size, ...]) -> Values:
    rest = line[at:]
    if not rest.strip():
        return Values()
    place = at + _count_blanks(rest, 0)
    if match := _BELOW.match(rest):
        if "int" not in dtype or int(match[1]) < 1:
            _refuse_line(line, place, "`< N` is for whole numbers, with N at least 1")
        _check_fits(line, place, dtype, 0, int(match[1]) - 1)
        return Values(below=int(match[1]))
    if (match := _UNDER.match(rest)) and "int" in dtype:
        return Values(under=_parse_limit(line, at + match.start(1), match[1]))
    if match := _RANGE.match(rest):
        low, high = float(match[1]), float(match[2])
        if not (isfinite(low) and isfinite(high)):
            _refuse_line(line, place, "the ends of a range are finite")
        if low > high:
            _refuse_line(line, place, f"the range {low:g}..{high:g} is empty")
        if dtype == "bool":
            _refuse_line(line, place, "`in low..high` is for numbers")
        if "int" in dtype and not (low.is_integer() and high.is_integer()):
            _refuse_line(line, place, f"{dtype} holds whole numbers; write the range with whole numbers")
        _check_fits(line, place, dtype, low, high)
        return Values(low=low, high=high)
    if match := _KIND.match(rest):
        if match[1] == "lengths" and match[2]:
            return Values(lengths=_parse_lengths(line, at + match.start(2), match[2]))
        if match[1] in MASKS and shape:
            return Values(mask=match[1])
    _refuse_line(
        line,
        place,
        "the legal values belong here: `< N`, `in low..high`, `= lengths(dim)`, or `=` and one of " + ", ".join(MASKS),
    )


def _parse_lengths(line: str, at: int, text: str) -> Size:
    try:
        return parse_size(text)
    except ValueError:
        _refuse_line(line, at + _count_blanks(text, 0), "a dim's name belongs here")


def _parse_limit(line: str, at: int, text: str) -> Size:
    """Parse the size that indices stay below, such as the number of rows that they point into."""
    try:
        return parse_size(text)
    except ValueError:
        _refuse_line(line, at, "a number or a size belongs here: whole numbers, names, + - * //")


def _check_fits(line: str, at: int, dtype: str, low: float, high: float) -> None:
    match = re.fullmatch(r"(u?)int(\d+)", dtype)
    if match is None:
        return
    span = 2 ** int(match[2])
    least, most = (0, span - 1) if match[1] else (-span // 2, span // 2 - 1)
    if low < least or high > most:
        _refuse_line(line, at, f"{dtype} holds {least}..{most} only")


def _count_blanks(text: str, at: int) -> int:
    return len(text[at:]) - len(text[at:].lstrip())


def _refuse_long(line: str) -> None:
    if len(line) > MAX_LINE_CHARACTERS:
        raise complain(
            Code.SPEC_SYNTAX,
            f"the line has {len(line)} characters, at most {MAX_LINE_CHARACTERS} are read: {line[:40]!r}…",
        )


def _refuse_line(line: str, at: int, what: str) -> NoReturn:
    raise complain(Code.SPEC_SYNTAX, f"{what}\n    {line}\n    {' ' * at}^")
