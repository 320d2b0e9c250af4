"""Messages between the server and its workers: a head in JSON, then the bytes of the tensors.

The batch is the first axis of nearly every input. So the bytes of several requests, sent one after another, are those
of one batch: merging costs no copy.
"""

from __future__ import annotations

import json
import struct
from asyncio import StreamReader
from collections.abc import Iterable
from math import prod
from socket import socket
from typing import Any

import numpy as np

from fairway.deploy.serve.tensors import Array

_SIZES = struct.Struct("<IQ")
Head = dict[str, Any]
"""A JSON object: the number of a job and what to do."""
Tensors = list[tuple[str, Array]]


def pack(head: Head, tensors: Iterable[tuple[str, str, list[int], list[Array]]] = ()) -> list[bytes | memoryview]:
    """Return the buffers to send. A tensor is its name, dtype, shape, and the arrays to join along their first axis."""
    described, raw = [], []
    for name, dtype, shape, parts in tensors:
        described.append([name, dtype, shape])
        raw += [np.ascontiguousarray(part).reshape(-1).data.cast("B") for part in parts if part.size]
    text = json.dumps({**head, "tensors": described}).encode()
    return [_SIZES.pack(len(text), sum(len(buffer) for buffer in raw)) + text, *raw]


def _unpack(text: bytes, raw: bytes | bytearray) -> tuple[Head, Tensors]:
    head = json.loads(text)
    tensors, offset = [], 0
    for name, dtype, shape in head["tensors"]:
        array = np.frombuffer(raw, dtype, prod(shape), offset).reshape(shape)
        tensors.append((name, array))
        offset += array.nbytes
    return head, tensors


async def receive(reader: StreamReader) -> tuple[Head, Tensors]:
    """Return the next message. Raises IncompleteReadError if the other end is gone."""
    text, raw = _SIZES.unpack(await reader.readexactly(_SIZES.size))
    return _unpack(await reader.readexactly(text), await reader.readexactly(raw))


def receive_blocking(end: socket) -> tuple[Head, Tensors] | None:
    """Return the next message, or None if the other end is gone."""
    sizes = _receive_exactly(end, _SIZES.size)
    if sizes is None:
        return None
    text, raw = (_receive_exactly(end, size) for size in _SIZES.unpack(sizes))
    return None if text is None or raw is None else _unpack(bytes(text), raw)


def _receive_exactly(end: socket, size: int) -> bytearray | None:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        got = end.recv_into(view)
        if got == 0:
            return None
        view = view[got:]
    return data
