"""Messages between the server and its workers: a head in JSON, then the tensors' bytes one behind the other.

The batch is the first axis of nearly every input, so the bytes of several requests, sent one behind the other, are
those of one batch: merging costs no copy.
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
Tensors = list[tuple[str, Array]]


def pack(head: dict[str, Any], tensors: Iterable[tuple[str, str, list[int], list[Array]]] = ()) -> list[Any]:
    """The pieces to be sent. A tensor is its name, dtype, shape, and arrays that make it up along their first axis."""
    described, raw = [], []
    for name, dtype, shape, parts in tensors:
        described.append([name, dtype, shape])
        raw += [np.ascontiguousarray(part).reshape(-1).data.cast("B") for part in parts if part.size]
    text = json.dumps({**head, "tensors": described}).encode()
    return [_SIZES.pack(len(text), sum(len(one) for one in raw)) + text, *raw]


def _unpack(text: bytes, raw: bytes | bytearray) -> tuple[dict[str, Any], Tensors]:
    head = json.loads(text)
    found, at = [], 0
    for name, dtype, shape in head["tensors"]:
        array = np.frombuffer(raw, dtype, prod(shape), at).reshape(shape)
        found.append((name, array))
        at += array.nbytes
    return head, found


async def receive(reader: StreamReader) -> tuple[dict[str, Any], Tensors]:
    """The next message; IncompleteReadError where the other end is gone."""
    text, raw = _SIZES.unpack(await reader.readexactly(_SIZES.size))
    return _unpack(await reader.readexactly(text), await reader.readexactly(raw))


def receive_blocking(end: socket) -> tuple[dict[str, Any], Tensors] | None:
    """The next message; None where the other end is gone."""
    sizes = _exactly(end, _SIZES.size)
    if sizes is None:
        return None
    text, raw = (_exactly(end, size) for size in _SIZES.unpack(sizes))
    return None if text is None or raw is None else _unpack(bytes(text), raw)


def _exactly(end: socket, size: int) -> bytearray | None:
    whole = bytearray(size)
    view = memoryview(whole)
    while view:
        got = end.recv_into(view)
        if got == 0:
            return None
        view = view[got:]
    return whole
