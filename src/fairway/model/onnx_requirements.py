"""What an ONNX file asks for beyond its own bytes, memory and other files, is known and checked before it is given.

Nothing here reads a weight. A tensor must hold what its dims promise, or lie in a plain file inside the model's folder
that is long enough. A node that makes a tensor of a constant shape must make one that fits into memory. A shape that is
computed only when the model runs is not seen here; the judge's process has a memory limit for that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any

from fairway.diagnostics.errors import UserError, complain
from fairway.model.memory_check import amount, is_regular, room

_BITS = {
    "FLOAT": 32,
    "UINT8": 8,
    "INT8": 8,
    "UINT16": 16,
    "INT16": 16,
    "INT32": 32,
    "INT64": 64,
    "STRING": 0,
    "BOOL": 8,
    "FLOAT16": 16,
    "DOUBLE": 64,
    "UINT32": 32,
    "UINT64": 64,
    "COMPLEX64": 64,
    "COMPLEX128": 128,
    "BFLOAT16": 16,
    "FLOAT8E4M3FN": 8,
    "FLOAT8E4M3FNUZ": 8,
    "FLOAT8E5M2": 8,
    "FLOAT8E5M2FNUZ": 8,
    "FLOAT8E8M0": 8,
    "UINT4": 4,
    "INT4": 4,
    "FLOAT4E2M1": 4,
    "UINT2": 2,
    "INT2": 2,
}

_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")

_KEYS = re.compile(r"location|offset|length|checksum|prepacked\w*")

_SHAPED_BY = {
    "ConstantOfShape": 0,
    "Expand": 1,
    "Tile": 1,
    "Resize": 3,
    "OneHot": 1,
    "HannWindow": 0,
    "HammingWindow": 0,
    "BlackmanWindow": 0,
}
"""Which input says how large the output will be; a constant there is a size that can be known now."""


def find_all(proto: Any, wanted: str) -> Iterator[Any]:
    """Every message of one kind, in order, wherever it hides: subgraphs, functions, defaults, training graphs."""
    left = [proto]
    while left:
        message = left.pop()
        if message.DESCRIPTOR.name == wanted:
            yield message
        for field in reversed(_leading_to(message.DESCRIPTOR, wanted)):
            inner = getattr(message, field.name)
            if not hasattr(inner, "DESCRIPTOR"):  # a repeated field; protobuf's own words for that differ by version
                left.extend(inner[::-1])
            elif message.HasField(field.name):
                left.append(inner)


@cache
def _leading_to(descriptor: Any, wanted: str) -> tuple[Any, ...]:
    """The fields through which a message of the wanted kind can be reached."""

    def reaches(one: Any, seen: frozenset[str]) -> bool:
        if one.name == wanted:
            return True
        inner = (f.message_type for f in one.fields if f.message_type is not None and f.message_type.name not in seen)
        return any(reaches(each, seen | {one.name}) for each in inner)

    return tuple(f for f in descriptor.fields if f.message_type is not None and reaches(f.message_type, frozenset()))


def text(value: str | bytes) -> str:
    """A string of the file; UnicodeDecodeError where it is none, which protobuf hands over as bytes."""
    return value if isinstance(value, str) else value.decode()


def bits(dtype: int) -> int:
    """The width of one element; 0 where it has none of its own, or the type is not known."""
    import onnx

    try:
        return _BITS.get(onnx.TensorProto.DataType.Name(dtype), 0)
    except ValueError:
        return 0


def promised(tensor: Any) -> int:
    """The bytes that dims and dtype promise."""
    return int(prod(tensor.dims) * bits(tensor.data_type) + 7) // 8


def check_asks(path: Path, proto: Any) -> tuple[tuple[str, ...], int]:
    """The names of the data files and the bytes of all tensors together; refuses what cannot or must not be given."""
    needed: dict[str, int] = {}
    total = 0
    inside = cache(partial(_lies_inside, path))  # thousands of tensors lie in one file
    for tensor in find_all(proto, "TensorProto"):
        if any(size < 0 for size in tensor.dims):
            raise complain("FW110", f"{path.name}: {_name(tensor)} has a size below 0")
        total += promised(tensor)
        if tensor.external_data or tensor.data_location == tensor.EXTERNAL:
            location, end = _external(path, tensor, inside)
            needed[location] = max(needed.get(location, 0), end)
        else:
            _check_held(path, tensor)
    for location, end in needed.items():
        target = path.parent / location
        if not is_regular(target):
            raise complain("FW111", f"{path.name} needs {location}, which is not beside it")
        if target.stat().st_size < end:
            raise complain("FW111", f"{location} has {target.stat().st_size} bytes, {path.name} needs {end}")
    _check_made(path, proto)
    return tuple(needed), total


def _check_held(path: Path, tensor: Any) -> None:
    count, width = prod(tensor.dims), bits(tensor.data_type)
    if tensor.HasField("raw_data"):
        held = len(tensor.raw_data) * 8 // width if width else count
    else:
        held = max(len(getattr(tensor, field)) for field in _FIELDS) * (8 // width if 0 < width < 8 else 1)
    if held < count:
        raise complain("FW110", f"{path.name}: {_name(tensor)} promises {count} elements and holds {held}")


def _external(path: Path, tensor: Any, inside: Callable[[str], bool]) -> tuple[str, int]:
    """Where a tensor's values lie, and where they end there."""
    who = f"{path.name}: {_name(tensor)}"
    entries = {text(entry.key): text(entry.value) for entry in tensor.external_data}
    keys = [entry.key for entry in tensor.external_data]
    odd = [key for key in keys if not _KEYS.fullmatch(key) or keys.count(key) > 1]
    if odd:
        # Readers differ in which of two entries they take, and in what they make of a key of their own.
        raise complain("FW110", f"{who} says {odd[0]!r} of its external data, twice or against the standard")
    location = entries.get("location", "")
    if not inside(location):
        raise complain("FW112", f"{who} asks for {location!r}")
    offset = _number(who, entries.get("offset") or "0")
    length = _number(who, entries.get("length") or str(promised(tensor)))
    if length < promised(tensor):
        raise complain("FW110", f"{who} promises {promised(tensor)} bytes and gives a length of {length}")
    return location, offset + length


def _lies_inside(path: Path, location: str) -> bool:
    """In the folder, through no link that leaves it, by a name that every engine reads alike.

    Engines differ on `..` after a link, on a model that is a link itself, and ONNX Runtime takes names of the form
    `*/…/*` for an address in memory.
    """
    name = Path(location)
    if not location or name.is_absolute() or ".." in name.parts or "*" in location:
        return False
    try:
        folder = path.parent.resolve()
        return path.resolve().parent == folder and (folder / location).resolve().is_relative_to(folder)
    except (OSError, RuntimeError, ValueError):
        return False


def _number(who: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise complain("FW110", f"{who} has an offset or length that is no number")
    if int(text) < 0:
        raise complain("FW110", f"{who} has an offset or length below 0")
    return int(text)


def _check_made(path: Path, proto: Any) -> None:
    """Tensors that nodes make out of nothing, and sparse ones, which the runtime fills up with zeros."""
    for sparse in find_all(proto, "SparseTensorProto"):
        asked = prod(sparse.dims) * bits(sparse.values.data_type) // 8
        if asked > room():
            raise _too_much(path, f"the sparse tensor {_name(sparse.values)}", asked)
    constants: dict[str, list[int]] | None = None
    for node in find_all(proto, "NodeProto"):
        if node.op_type in ("RandomNormal", "RandomUniform"):
            shape = [n for attribute in node.attribute if attribute.name == "shape" for n in attribute.ints]
        elif node.op_type in _SHAPED_BY or node.op_type in ("Range", "Pad"):
            constants = _constants(proto) if constants is None else constants
            shape = _made_shape(node, constants)
        else:
            continue
        # One byte for each element at the least.
        if prod(max(abs(n), 1) for n in shape) > room():
            raise _too_much(path, f"the {node.op_type} node {node.name or node.output[:1]}", prod(map(abs, shape)))


def _made_shape(node: Any, constants: dict[str, list[int]]) -> list[int]:
    given = [constants.get(name, []) for name in node.input]
    if node.op_type == "Range":
        ends = [values[0] for values in given if len(values) == 1]
        return [(ends[1] - ends[0]) // (ends[2] or 1)] if len(ends) == 3 else []
    if node.op_type == "Pad":
        return [sum(map(abs, given[1]))] if len(given) > 1 else []
    place = _SHAPED_BY[node.op_type]
    return given[place] if place < len(given) else []


def _constants(proto: Any) -> dict[str, list[int]]:
    """Small whole-number constants by name. Of two with one name, in different subgraphs, the larger counts."""
    found: dict[str, list[int]] = {}

    def add(name: str, values: list[int]) -> None:
        if prod(map(abs, values)) >= prod(map(abs, found.get(name, [0]))):
            found[name] = values

    for graph in find_all(proto, "GraphProto"):
        for tensor in graph.initializer:
            add(tensor.name, _whole_numbers(tensor))
    for node in find_all(proto, "NodeProto"):
        if node.op_type == "Constant" and len(node.output) == 1:
            for attribute in node.attribute:
                if attribute.name == "value":
                    add(node.output[0], _whole_numbers(attribute.t))
                elif attribute.name in ("value_int", "value_ints"):
                    add(node.output[0], list(attribute.ints) or [attribute.i])
    return found


def _whole_numbers(tensor: Any) -> list[int]:
    width = {tensor.INT64: 8, tensor.INT32: 4}.get(tensor.data_type)
    if width is None or prod(tensor.dims) > 64 or tensor.external_data:
        return []
    raw = tensor.raw_data
    if raw:
        return [int.from_bytes(raw[i : i + width], "little", signed=True) for i in range(0, len(raw), width)]
    return list(tensor.int64_data) or list(tensor.int32_data)


def _too_much(path: Path, what: str, asked: int) -> UserError:
    return complain("FW114", f"{path.name}: {what} asks for {amount(asked)}; this machine has {amount(room())}")


def _name(tensor: Any) -> str:
    return text(tensor.name) or "a tensor without a name"
