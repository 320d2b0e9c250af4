"""Read and write tensors of the Open Inference Protocol: JSON, and raw bytes after the JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn, TypeGuard

import numpy as np
import numpy.typing as npt
import orjson

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain

Array = npt.NDArray[Any]

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

MAX_DIMS = 32
MAX_NAME_CHARACTERS = 200
"""Characters of a name or an id that are read."""


@dataclass(frozen=True)
class InferRequest:
    """A request for inference, over HTTP or gRPC."""

    inputs: dict[str, Array]
    outputs: tuple[str, ...] | None = None
    """The requested outputs; None: all."""
    binary: Mapping[str, bool] | None = None
    """Outputs that the request names, and whether they are returned as raw bytes."""
    binary_default: bool = False
    id: str | None = None


@dataclass(frozen=True)
class InferAnswer:
    """The outputs of a model, and its version."""

    model: str
    version: str
    outputs: dict[str, Array]


def read_request(body: bytes, json_size: int | None) -> InferRequest:
    """Read the request in an HTTP body: `json_size` bytes of JSON, then the raw tensors that it announces."""
    if json_size is not None and not 0 <= json_size <= len(body):
        refuse(f"Inference-Header-Content-Length is {json_size}, the body has {len(body)} bytes")
    request = _read_object(_parse_json(body if json_size is None else body[:json_size]), "the body")
    raw = memoryview(b"" if json_size is None else body)[json_size or 0 :]
    inputs: dict[str, Array] = {}
    for item in _read_list(request.get("inputs"), "inputs"):
        entry = _read_object(item, "an input")
        name = _read_name(entry.get("name"), "an input's name")
        if name in inputs:
            refuse(f"{name} is given twice")
        size = _read_object(entry.get("parameters", {}), "parameters").get("binary_data_size")
        if size is None:
            inputs[name] = _read_json_tensor(entry, name)
            continue
        _check_supported(entry, name)
        if not _is_size(size) or size > len(raw) or "data" in entry:
            refuse(f"{name}: binary_data_size is {size!r:.40}, {len(raw)} bytes are left, and data cannot be given too")
        inputs[name] = read_tensor_bytes(name, entry.get("datatype"), entry.get("shape"), raw[:size])
        raw = raw[size:]
    if len(raw):
        refuse(f"{len(raw)} bytes are left over after the last input")
    default = _read_flag(_read_object(request.get("parameters", {}), "parameters"), "binary_data_output")
    outputs, binary = _read_outputs(request.get("outputs"))
    return InferRequest(inputs, outputs, binary, bool(default), _read_id(request.get("id")))


def read_tensor_bytes(name: str, datatype: object, shape: object, data: bytes | memoryview) -> Array:
    """Make a tensor from its raw bytes: little-endian, row by row."""
    dtype = np.dtype(_read_dtype(name, datatype))
    sizes = _read_shape(name, shape)
    if len(data) != prod(sizes) * dtype.itemsize:
        refuse(f"{name}: {datatype}{list(sizes)} has {prod(sizes) * dtype.itemsize} bytes, {len(data)} were sent")
    if dtype == np.bool_ and np.any(np.frombuffer(data, np.uint8) > 1):
        refuse(f"{name}: a BOOL is a byte of 0 or 1")
    return np.frombuffer(data, dtype).reshape(sizes)


def _read_json_tensor(entry: Mapping[str, object], name: str) -> Array:
    _check_supported(entry, name)
    dtype, sizes = _read_dtype(name, entry.get("datatype")), _read_shape(name, entry.get("shape"))
    data = _read_list(entry.get("data"), f"{name}: data")
    return read_tensor_numbers(name, dtype, sizes, data)


def read_tensor_numbers(name: str, dtype: str, sizes: tuple[int, ...], data: Sequence[object]) -> Array:
    """Make a tensor from numbers, flat or nested. A number that the dtype cannot hold is refused."""
    try:
        got = np.asarray(data) if len(data) else np.zeros(0, dtype)
    except (ValueError, OverflowError, TypeError):
        refuse(f"{name}: data is ragged or is not made of numbers")
    if got.size and got.shape not in (sizes, (prod(sizes),)):
        refuse(f"{name}: data has the shape {list(got.shape)}, the request says {list(sizes)}")
    if got.size != prod(sizes):
        refuse(f"{name}: data has {got.size} numbers, the shape {list(sizes)} has {prod(sizes)}")
    kinds = {"bool": "b", "float16": "iuf", "float32": "iuf", "float64": "iuf"}.get(dtype, "iu")
    if got.size and got.dtype.kind not in kinds:
        refuse(f"{name}: data holds something other than {DATATYPES[dtype]}")
    if np.dtype(dtype).kind in "iu" and got.size:
        ends = np.iinfo(dtype)
        if int(got.min()) < ends.min or int(got.max()) > ends.max:
            refuse(f"{name}: data holds a number that does not fit {DATATYPES[dtype]}")
    with np.errstate(over="ignore"):
        return got.astype(dtype).reshape(sizes)


def write_answer(answer: InferAnswer, request: InferRequest) -> tuple[bytes, int | None]:
    """Return the body of the response, and the size of its JSON if raw bytes follow."""
    outputs, raw = [], []
    for name, array in answer.outputs.items():
        entry: dict[str, object] = {"name": name, "datatype": DATATYPES[array.dtype.name], "shape": list(array.shape)}
        if (request.binary or {}).get(name, request.binary_default):
            entry["parameters"] = {"binary_data_size": array.nbytes}
            raw.append(to_bytes(array))
        else:
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                refuse(f"{name} holds NaN or infinity, which JSON cannot express; ask for binary data")
            entry["data"] = np.ascontiguousarray(array).reshape(-1)
        outputs.append(entry)
    content: dict[str, object] = {"model_name": answer.model, "model_version": answer.version, "outputs": outputs}
    if request.id is not None:
        content["id"] = request.id
    head = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return (head, None) if not raw else (b"".join([head, *raw]), len(head))


def to_bytes(array: Array) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def refuse(why: str) -> NoReturn:
    raise complain(Code.REQUEST_DOES_NOT_FIT, why)


def _parse_json(text: bytes) -> object:
    try:
        return orjson.loads(text)
    except ValueError as error:
        refuse(f"the body is not JSON: {error!s:.100}")


def _read_outputs(value: object) -> tuple[tuple[str, ...] | None, dict[str, bool]]:
    if value is None or value == []:
        return None, {}
    names, binary = [], {}
    for item in _read_list(value, "outputs"):
        entry = _read_object(item, "an output")
        name = _read_name(entry.get("name"), "an output's name")
        _check_supported(entry, name)
        names.append(name)
        is_binary = _read_flag(_read_object(entry.get("parameters", {}), "parameters"), "binary_data")
        if is_binary is not None:
            binary[name] = is_binary
    if len(set(names)) != len(names):
        refuse("an output is requested twice")
    return tuple(names), binary


def _check_supported(entry: Mapping[str, object], name: str) -> None:
    for key in _read_object(entry.get("parameters", {}), "parameters"):
        if key.startswith("shared_memory") or key == "classification":
            refuse(f"{name}: {key} is not supported")


def _read_flag(parameters: Mapping[str, object], key: str) -> bool | None:
    flag = parameters.get(key)
    if flag is not None and not isinstance(flag, bool):
        refuse(f"{key} is {flag!r:.40}, not true or false")
    return flag


def _read_id(value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or len(value) > MAX_NAME_CHARACTERS):
        refuse(f"id is {value!r:.40}, not a short text")
    return value


def _read_dtype(name: str, value: object) -> str:
    if not isinstance(value, str) or value not in DTYPES:
        refuse(f"{name}: datatype is {value!r:.40}; known are {', '.join(DTYPES)}")
    return DTYPES[value]


def _read_shape(name: str, value: object) -> tuple[int, ...]:
    sizes = _read_list(value, f"{name}: shape")
    if len(sizes) > MAX_DIMS or not all(_is_size(size) for size in sizes):
        refuse(f"{name}: shape is {value!r:.80}")
    return tuple(size for size in sizes if _is_size(size))


def _is_size(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40


def _read_name(value: object, what: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_CHARACTERS:
        refuse(f"{what} is {value!r:.40}")
    return value


def _read_object(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        refuse(f"{what} is {value!r:.40}, not an object")
    return value


def _read_list(value: object, what: str) -> list[object]:
    if not isinstance(value, list):
        refuse(f"{what} is {value!r:.40}, not a list")
    return value
