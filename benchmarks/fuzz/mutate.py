"""Changes inputs so that most still look like what they were: bytes, words of a grammar, JSON, protobuf fields."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

Mutate = Callable[[bytes, random.Random], bytes]

NUMBERS = (
    0,
    1,
    2,
    7,
    8,
    63,
    64,
    127,
    128,
    255,
    256,
    2**15,
    2**16,
    2**31 - 1,
    2**31,
    2**32,
    2**40,
    2**53,
    2**63 - 1,
    2**63,
    2**64 - 1,
    10**9,
    10**18,
)


def bytewise(words: Sequence[bytes], longest: int = 4096) -> Mutate:
    """One to six small changes: a byte, a slice, or a word of the target's own."""

    def mutate(data: bytes, rng: random.Random) -> bytes:
        out = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
            at = rng.randrange(len(out) + 1)
            match rng.randrange(8):
                case 0 if out:
                    out[at % len(out)] ^= 1 << rng.randrange(8)
                case 1 if out:
                    out[at % len(out)] = rng.randrange(256)
                case 2:
                    del out[at : at + rng.choice((1, 2, 8, 64))]
                case 3:
                    out[at:at] = out[at : at + rng.choice((1, 4, 16, 64))] * rng.choice((1, 2, 20))
                case 4:
                    other = rng.randrange(len(out) + 1)
                    out[at:at] = out[other : other + rng.choice((1, 4, 16, 64))]
                case 5 if out:
                    out[at % len(out) :] = b""
                case 6:
                    out[at:at] = str(rng.choice(NUMBERS)).encode()
                case _:
                    out[at : at + rng.choice((0, 0, 1, 4))] = rng.choice(words)
        return bytes(out[:longest])

    return mutate


def jsonwise(words: Sequence[bytes]) -> Mutate:
    """One value somewhere in the tree becomes another; now and then the text itself is damaged."""
    plain = bytewise(words)
    odd: tuple[Any, ...] = (
        None,
        True,
        False,
        0,
        -1,
        1.5,
        1e300,
        2**64,
        10**60,
        "",
        "x",
        "\x1b[2J",
        "a" * 300,
        [],
        {},
        [[]],
        {"": {}},
        "verified",
        "0" * 64,
        "..",
        "a/b",
        "\ud800",
        float("nan"),
        float("inf"),
    )

    def change(value: Any, rng: random.Random) -> Any:
        if isinstance(value, dict) and value and rng.random() < 0.8:
            key = rng.choice(list(value))
            if rng.random() < 0.1:
                return {k: v for k, v in value.items() if k != key}
            return {**value, key: change(value[key], rng)}
        if isinstance(value, list) and value and rng.random() < 0.8:
            at = rng.randrange(len(value))
            return [*value[:at], change(value[at], rng), *value[at + 1 :]]
        return rng.choice(odd)

    def mutate(data: bytes, rng: random.Random) -> bytes:
        if rng.random() < 0.3:
            return plain(data, rng)
        try:
            tree = json.loads(data)
        except (ValueError, RecursionError):
            return plain(data, rng)
        for _ in range(rng.choice((1, 1, 2, 4))):
            tree = change(tree, rng)
        return json.dumps(tree).encode(errors="surrogatepass")

    return mutate


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return number, at
        shift += 7


def read_fields(data: bytes) -> list[list[Any]] | None:
    """[number, wire type, payload] of each field; None where the bytes are no message."""
    fields: list[list[Any]] = []
    at = 0
    try:
        while at < len(data):
            tag, at = read_varint(data, at)
            number, wire = tag >> 3, tag & 7
            if wire == 0:
                payload, at = read_varint(data, at)
            elif wire in (1, 5):
                width = 8 if wire == 1 else 4
                payload, at = data[at : at + width], at + width
            elif wire == 2:
                size, at = read_varint(data, at)
                payload, at = data[at : at + size], at + size
            else:
                return None
            if number == 0 or at > len(data):
                return None
            fields.append([number, wire, payload])
    except IndexError:
        return None
    return fields


def write_fields(fields: list[list[Any]]) -> bytes:
    out = bytearray()
    for number, wire, payload in fields:
        out += _varint(number << 3 | wire)
        if wire == 0:
            out += _varint(payload)
        else:
            out += _varint(len(payload)) + payload if wire == 2 else payload
    return bytes(out)


def protobufwise(words: Sequence[bytes], deepest: int = 40) -> Mutate:
    """Walks into nested messages and changes one field there: another value, twice, gone, elsewhere, inside itself."""
    plain = bytewise(words, 1 << 16)

    def change(data: bytes, rng: random.Random, depth: int) -> bytes:
        fields = read_fields(data) if depth < deepest else None
        if not fields:
            return rng.choice(words) if rng.random() < 0.5 else plain(data, rng)
        at = rng.randrange(len(fields))
        number, wire, payload = fields[at]
        choice = rng.random()
        if wire == 2 and choice < 0.7:
            fields[at] = [number, wire, change(payload, rng, depth + 1)]
        elif wire == 0 and choice < 0.7:
            fields[at] = [number, wire, rng.choice(NUMBERS)]
        elif choice < 0.78:
            del fields[at]
        elif choice < 0.86:
            fields.insert(at, fields[at])
        elif choice < 0.92:
            fields[at] = [rng.randrange(1, 30), wire, payload]
        elif choice < 0.96 and len(data) < 4096:
            fields.append([number, 2, data])  # a message inside itself: deep nesting in a few rounds
        else:
            fields.append(rng.choice(fields))
        return write_fields(fields)

    def mutate(data: bytes, rng: random.Random) -> bytes:
        if rng.random() < 0.15:
            return plain(data, rng)
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = change(data, rng, 0)
        return data[: 1 << 16]

    return mutate
