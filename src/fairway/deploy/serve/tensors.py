"""Tensors as the Open Inference Protocol writes them: JSON, and raw bytes behind the JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

import numpy as np
import orjson

from fairway.diagnostics.errors import complain

Array = np.ndarray[Any, Any]

DTYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}
"""The protocol's names and numpy's. BYTES and BF16 are left out: numpy has no such numbers."""
DATATYPES = {dtype: name for name, dtype in DTYPES.items()}

MOST_DIMS = 32
LONGEST = 200
"""Characters of a name or an id that are read."""


@dataclass(frozen=True)
class InferRequest:
    """A request for an answer, whichever way it came."""

    inputs: dict[str, Array]
    outputs: tuple[str, ...] | None = None
    """Those that are wanted; None: all."""
    binary: Mapping[str, bool] | None = None
    """Which outputs go back as raw bytes, where that was said for single ones."""
    binary_default: bool = False
    id: str | None = None


@dataclass(frozen=True)
class Answered:
    """What came out, of which version."""

    model: str
    version: str
    outputs: dict[str, Array]


def read_request(body: bytes, json_size: int | None) -> InferRequest:
    """The request in an HTTP body: JSON, and behind its first `json_size` bytes the raw tensors that it announces."""
    if json_size is not None and not 0 <= json_size <= len(body):
        refuse(f"Inference-Header-Content-Length is {json_size}, the body has {len(body)} bytes")
    told = _object(_parse(body if json_size is None else body[:json_size]), "the body")
    raw = memoryview(b"" if json_size is None else body)[json_size or 0 :]
    inputs: dict[str, Array] = {}
    for entry in _list(told.get("inputs"), "inputs"):
        one = _object(entry, "an input")
        name = _name(one.get("name"), "an input's name")
        if name in inputs:
            refuse(f"{name} is given twice")
        size = _object(one.get("parameters", {}), "parameters").get("binary_data_size")
        if size is None:
            inputs[name] = _from_json(one, name)
            continue
        _supported(one, name)
        if not _whole(size) or size > len(raw) or "data" in one:
            refuse(f"{name}: binary_data_size is {size!r:.40}, {len(raw)} bytes are left, and no data may stand beside")
        inputs[name] = from_bytes(name, one.get("datatype"), one.get("shape"), raw[:size])
        raw = raw[size:]
    if len(raw):
        refuse(f"{len(raw)} bytes are left over behind the last input")
    default = _flag(_object(told.get("parameters", {}), "parameters"), "binary_data_output")
    outputs, binary = _wanted(told.get("outputs"))
    return InferRequest(inputs, outputs, binary, bool(default), _id(told.get("id")))


def from_bytes(name: str, datatype: Any, shape: Any, data: bytes | memoryview) -> Array:
    """A tensor from its raw bytes: little-endian, row by row."""
    dtype = np.dtype(_dtype(name, datatype))
    sizes = _shape(name, shape)
    if len(data) != prod(sizes) * dtype.itemsize:
        refuse(f"{name}: {datatype}{list(sizes)} has {prod(sizes) * dtype.itemsize} bytes, {len(data)} were sent")
    if dtype == np.bool_ and np.any(np.frombuffer(data, np.uint8) > 1):
        refuse(f"{name}: a BOOL is a byte of 0 or 1")
    return np.frombuffer(data, dtype).reshape(sizes)


def _from_json(one: Mapping[str, Any], name: str) -> Array:
    _supported(one, name)
    dtype, sizes = _dtype(name, one.get("datatype")), _shape(name, one.get("shape"))
    data = _list(one.get("data"), f"{name}: data")
    return from_numbers(name, dtype, sizes, data)


def from_numbers(name: str, dtype: str, sizes: tuple[int, ...], data: Any) -> Array:
    """A tensor from numbers, flat or nested as the shape; a number that the dtype cannot hold is refused."""
    try:
        got = np.asarray(data) if len(data) else np.zeros(0, dtype)
    except (ValueError, OverflowError, TypeError):
        refuse(f"{name}: data is ragged, or no numbers")
    if got.size and got.shape not in (sizes, (prod(sizes),)):
        refuse(f"{name}: data has the shape {list(got.shape)}, said is {list(sizes)}")
    if got.size != prod(sizes):
        refuse(f"{name}: data has {got.size} numbers, the shape {list(sizes)} has {prod(sizes)}")
    kinds = {"bool": "b", "float16": "iuf", "float32": "iuf", "float64": "iuf"}.get(dtype, "iu")
    if got.size and got.dtype.kind not in kinds:
        refuse(f"{name}: data holds what is no {DATATYPES[dtype]}")
    if np.dtype(dtype).kind in "iu" and got.size:
        ends = np.iinfo(dtype)
        if int(got.min()) < ends.min or int(got.max()) > ends.max:
            refuse(f"{name}: data holds a number beyond {DATATYPES[dtype]}")
    with np.errstate(over="ignore"):
        return got.astype(dtype).reshape(sizes)


def write_answer(answered: Answered, asked: InferRequest) -> tuple[bytes, int | None]:
    """The body that answers, and the size of its JSON where raw bytes follow."""
    outputs, raw = [], []
    for name, array in answered.outputs.items():
        one: dict[str, Any] = {"name": name, "datatype": DATATYPES[array.dtype.name], "shape": list(array.shape)}
        if (asked.binary or {}).get(name, asked.binary_default):
            one["parameters"] = {"binary_data_size": array.nbytes}
            raw.append(to_bytes(array))
        else:
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                refuse(f"{name} holds NaN or infinity, which JSON has no word for; ask for binary data")
            one["data"] = np.ascontiguousarray(array).reshape(-1)
        outputs.append(one)
    whole: dict[str, Any] = {"model_name": answered.model, "model_version": answered.version, "outputs": outputs}
    if asked.id is not None:
        whole["id"] = asked.id
    head = orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY)
    return (head, None) if not raw else (b"".join([head, *raw]), len(head))


def to_bytes(array: Array) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def refuse(why: str) -> NoReturn:
    raise complain("FW812", why)


def _parse(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except ValueError as error:
        refuse(f"the body is not JSON: {error!s:.100}")


def _wanted(told: Any) -> tuple[tuple[str, ...] | None, dict[str, bool]]:
    if told is None or told == []:
        return None, {}
    names, binary = [], {}
    for entry in _list(told, "outputs"):
        one = _object(entry, "an output")
        name = _name(one.get("name"), "an output's name")
        _supported(one, name)
        names.append(name)
        said = _flag(_object(one.get("parameters", {}), "parameters"), "binary_data")
        if said is not None:
            binary[name] = said
    if len(set(names)) != len(names):
        refuse("an output is asked for twice")
    return tuple(names), binary


def _supported(one: Mapping[str, Any], name: str) -> None:
    for key in _object(one.get("parameters", {}), "parameters"):
        if key.startswith("shared_memory") or key == "classification":
            refuse(f"{name}: {key} is not offered here")


def _flag(told: Mapping[str, Any], key: str) -> bool | None:
    said = told.get(key)
    if said is not None and not isinstance(said, bool):
        refuse(f"{key} is {said!r:.40}, not true or false")
    return said


def _id(told: Any) -> str | None:
    if told is not None and (not isinstance(told, str) or len(told) > LONGEST):
        refuse(f"id is {told!r:.40}, not a short text")
    return told


def _dtype(name: str, told: Any) -> str:
    if not isinstance(told, str) or told not in DTYPES:
        refuse(f"{name}: datatype is {told!r:.40}; known are {', '.join(DTYPES)}")
    return DTYPES[told]


def _shape(name: str, told: Any) -> tuple[int, ...]:
    sizes = _list(told, f"{name}: shape")
    if len(sizes) > MOST_DIMS or not all(_whole(size) for size in sizes):
        refuse(f"{name}: shape is {told!r:.80}")
    return tuple(sizes)


def _whole(told: Any) -> bool:
    return isinstance(told, int) and not isinstance(told, bool) and 0 <= told < 2**40


def _name(told: Any, what: str) -> str:
    if not isinstance(told, str) or not 0 < len(told) <= LONGEST:
        refuse(f"{what} is {told!r:.40}")
    return told


def _object(told: Any, what: str) -> dict[str, Any]:
    if not isinstance(told, dict):
        refuse(f"{what} is {told!r:.40}, not an object")
    return told


def _list(told: Any, what: str) -> list[Any]:
    if not isinstance(told, list):
        refuse(f"{what} is {told!r:.40}, not a list")
    return told
