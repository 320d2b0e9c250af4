"""Checks what an ONNX file requires beyond its own bytes, memory and other files, before a runtime grants it.

Nothing here reads a weight. A tensor must contain what its dims promise, or be in a regular file inside the model's
folder that is long enough. A node that makes a tensor of a constant shape must make one that fits into memory. A shape
that is computed only when the model runs is not checked here; the judge's process has a memory limit for that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.model.memory_check import format_bytes, is_regular_file, read_memory_bytes

if TYPE_CHECKING:
    import onnx

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
"""The input that gives the size of the output. If it is a constant, the size is known now."""


def find_all(proto: Any, kind: str) -> Iterator[Any]:
    """Yield every message of one kind, in order, also in subgraphs, functions, defaults and training graphs."""
    left = [proto]
    while left:
        message = left.pop()
        if message.DESCRIPTOR.name == kind:
            yield message
        for field in reversed(_find_leading_fields(message.DESCRIPTOR, kind)):
            inner = getattr(message, field.name)
            if not hasattr(inner, "DESCRIPTOR"):  # a repeated field; how protobuf tells it differs by version
                left.extend(inner[::-1])
            elif message.HasField(field.name):
                left.append(inner)


@cache
def _find_leading_fields(descriptor: Any, kind: str) -> tuple[Any, ...]:
    """Return the fields through which a message of this kind can be reached."""

    def reaches(descriptor: Any, seen: frozenset[str]) -> bool:
        if descriptor.name == kind:
            return True
        types = (f.message_type for f in descriptor.fields)
        return any(reaches(t, seen | {descriptor.name}) for t in types if t is not None and t.name not in seen)

    return tuple(f for f in descriptor.fields if f.message_type is not None and reaches(f.message_type, frozenset()))


def decode_text(value: str | bytes) -> str:
    """Return a string of the file. protobuf returns bytes for invalid text; decoding them raises UnicodeDecodeError."""
    return value if isinstance(value, str) else value.decode()


def count_bits(dtype: int) -> int:
    """Return the width of one element, or 0 if the type has no fixed width or is not known."""
    import onnx

    try:
        return _BITS.get(onnx.TensorProto.DataType.Name(dtype), 0)
    except ValueError:
        return 0


def count_promised_bytes(tensor: onnx.TensorProto) -> int:
    """Return the number of bytes that dims and dtype promise."""
    return int(prod(tensor.dims) * count_bits(tensor.data_type) + 7) // 8


def check_requirements(path: Path, proto: onnx.ModelProto) -> tuple[tuple[str, ...], int]:
    """Return the names of the data files and the bytes of all tensors; refuse what cannot or must not be granted."""
    needed: dict[str, int] = {}
    total = 0
    inside = cache(partial(_is_inside_folder, path))  # thousands of tensors are in one file
    for tensor in find_all(proto, "TensorProto"):
        if any(size < 0 for size in tensor.dims):
            raise complain(Code.NOT_ONNX, f"{path.name}: {_describe_tensor(tensor)} has a size below 0")
        total += count_promised_bytes(tensor)
        if tensor.external_data or tensor.data_location == tensor.EXTERNAL:
            location, end = _read_external_data(path, tensor, inside)
            needed[location] = max(needed.get(location, 0), end)
        else:
            _check_content(path, tensor)
    for location, end in needed.items():
        target = path.parent / location
        if not is_regular_file(target):
            raise complain(
                Code.EXTERNAL_DATA_MISSING,
                f"{path.name} needs {location}, which does not exist or is not a regular file",
            )
        if target.stat().st_size < end:
            raise complain(
                Code.EXTERNAL_DATA_MISSING, f"{location} has {target.stat().st_size} bytes, {path.name} needs {end}"
            )
    _check_node_outputs(path, proto)
    return tuple(needed), total


def _check_content(path: Path, tensor: onnx.TensorProto) -> None:
    count, width = prod(tensor.dims), count_bits(tensor.data_type)
    if tensor.HasField("raw_data"):
        present = len(tensor.raw_data) * 8 // width if width else count
    else:
        present = max(len(getattr(tensor, field)) for field in _FIELDS) * (8 // width if 0 < width < 8 else 1)
    if present < count:
        raise complain(
            Code.NOT_ONNX, f"{path.name}: {_describe_tensor(tensor)} declares {count} elements and contains {present}"
        )


def _read_external_data(path: Path, tensor: onnx.TensorProto, inside: Callable[[str], bool]) -> tuple[str, int]:
    """Return the file that contains a tensor's values, and where they end in it."""
    who = f"{path.name}: {_describe_tensor(tensor)}"
    entries = {decode_text(entry.key): decode_text(entry.value) for entry in tensor.external_data}
    keys = [entry.key for entry in tensor.external_data]
    odd = [key for key in keys if not _KEYS.fullmatch(key) or keys.count(key) > 1]
    if odd:
        # Readers differ in which of two entries they take, and in how they treat unknown keys.
        raise complain(Code.NOT_ONNX, f"{who} has {odd[0]!r} in its external data, which is unknown or repeated")
    location = entries.get("location", "")
    if not inside(location):
        raise complain(Code.EXTERNAL_DATA_OUTSIDE, f"{who} refers to {location!r}")
    offset = _parse_number(who, entries.get("offset") or "0")
    length = _parse_number(who, entries.get("length") or str(count_promised_bytes(tensor)))
    if length < count_promised_bytes(tensor):
        raise complain(
            Code.NOT_ONNX, f"{who} declares {count_promised_bytes(tensor)} bytes and has a length of {length}"
        )
    return location, offset + length


def _is_inside_folder(path: Path, location: str) -> bool:
    """Return whether a file is in the model's folder, without links out of it and under an unambiguous name.

    Runtimes differ on `..` after a link, and on a model that is a link itself. ONNX Runtime reads names of the form
    `*/…/*` as an address in memory.
    """
    name = Path(location)
    if not location or name.is_absolute() or ".." in name.parts or "*" in location:
        return False
    try:
        folder = path.parent.resolve()
        return path.resolve().parent == folder and (folder / location).resolve().is_relative_to(folder)
    except (OSError, RuntimeError, ValueError):
        return False


def _parse_number(who: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise complain(Code.NOT_ONNX, f"{who} has an offset or length that is not a number")
    if int(text) < 0:
        raise complain(Code.NOT_ONNX, f"{who} has an offset or length below 0")
    return int(text)


def _check_node_outputs(path: Path, proto: onnx.ModelProto) -> None:
    """Refuse large tensors that nodes make from a constant shape, and sparse ones, which runtimes fill with zeros."""
    for sparse in find_all(proto, "SparseTensorProto"):
        needed = prod(sparse.dims) * count_bits(sparse.values.data_type) // 8
        if needed > read_memory_bytes():
            raise _make_memory_error(path, f"the sparse tensor {_describe_tensor(sparse.values)}", needed)
    constants: dict[str, list[int]] | None = None
    for node in find_all(proto, "NodeProto"):
        if node.op_type in ("RandomNormal", "RandomUniform"):
            shape = [n for attribute in node.attribute if attribute.name == "shape" for n in attribute.ints]
        elif node.op_type in _SHAPED_BY or node.op_type in ("Range", "Pad"):
            constants = _find_constants(proto) if constants is None else constants
            shape = _read_output_shape(node, constants)
        else:
            continue
        # Each element needs at least one byte.
        if prod(max(abs(n), 1) for n in shape) > read_memory_bytes():
            raise _make_memory_error(
                path, f"the {node.op_type} node {node.name or node.output[:1]}", prod(map(abs, shape))
            )


def _read_output_shape(node: onnx.NodeProto, constants: dict[str, list[int]]) -> list[int]:
    inputs = [constants.get(name, []) for name in node.input]
    if node.op_type == "Range":
        ends = [values[0] for values in inputs if len(values) == 1]
        return [(ends[1] - ends[0]) // (ends[2] or 1)] if len(ends) == 3 else []
    if node.op_type == "Pad":
        return [sum(map(abs, inputs[1]))] if len(inputs) > 1 else []
    place = _SHAPED_BY[node.op_type]
    return inputs[place] if place < len(inputs) else []


def _find_constants(proto: onnx.ModelProto) -> dict[str, list[int]]:
    """Return small integer constants by name. Of two with the same name, in different subgraphs, the larger counts."""
    constants: dict[str, list[int]] = {}

    def add(name: str, values: list[int]) -> None:
        if prod(map(abs, values)) >= prod(map(abs, constants.get(name, [0]))):
            constants[name] = values

    for graph in find_all(proto, "GraphProto"):
        for tensor in graph.initializer:
            add(tensor.name, _read_integers(tensor))
    for node in find_all(proto, "NodeProto"):
        if node.op_type == "Constant" and len(node.output) == 1:
            for attribute in node.attribute:
                if attribute.name == "value":
                    add(node.output[0], _read_integers(attribute.t))
                elif attribute.name in ("value_int", "value_ints"):
                    add(node.output[0], list(attribute.ints) or [attribute.i])
    return constants


def _read_integers(tensor: onnx.TensorProto) -> list[int]:
    width = {tensor.INT64: 8, tensor.INT32: 4}.get(tensor.data_type)
    if width is None or prod(tensor.dims) > 64 or tensor.external_data:
        return []
    raw = tensor.raw_data
    if raw:
        return [int.from_bytes(raw[i : i + width], "little", signed=True) for i in range(0, len(raw), width)]
    return list(tensor.int64_data) or list(tensor.int32_data)


def _make_memory_error(path: Path, what: str, needed: int) -> UserError:
    available = format_bytes(read_memory_bytes())
    return complain(
        Code.ASKS_TOO_MUCH, f"{path.name}: {what} needs {format_bytes(needed)}; this machine has {available} of memory"
    )


def _describe_tensor(tensor: onnx.TensorProto) -> str:
    return decode_text(tensor.name) or "a tensor without a name"
