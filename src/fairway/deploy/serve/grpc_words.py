"""The messages of inference.proto, made when they are first needed.

protobuf cannot read `.proto` text, and code that protoc makes works with some versions of protobuf only. The file uses
few words of the language, so they are read here. The pool is our own: a client in the same process may have messages of
the same names.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

TEXT = Path(__file__).with_name("inference.proto")
PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

_FIELD = re.compile(r"(repeated )?([\w.]+) (\w+) = (\d+)")
_MAP = re.compile(r"map<(\w+), (\w+)> (\w+) = (\d+)")
_CALL = re.compile(r"rpc (\w+)\((\w+)\) returns \((\w+)\)")


@cache
def messages() -> dict[str, Any]:
    """The classes by name, nested ones as `Outer.Inner`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name=TEXT.name, package=PACKAGE, syntax="proto3")
    _read(_lines(), file)
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {}
    for outer in file.message_type:
        for name in (outer.name, *(f"{outer.name}.{inner.name}" for inner in outer.nested_type)):
            found[name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
    return found


def calls() -> dict[str, tuple[str, str]]:
    """What the service is asked with and answers with, by the call's name."""
    return {name: (asked, answered) for name, asked, answered in _CALL.findall(TEXT.read_text())}


def _lines() -> list[str]:
    text = re.sub(r"//.*", "", TEXT.read_text())
    return [line.strip().rstrip(";") for line in text.splitlines() if line.strip()]


def _read(lines: list[str], file: Any) -> None:
    """Fills the description in, a line at a time; `open` holds the messages that the line stands in."""
    opened: list[Any] = []
    choice: int | None = None
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "message":
            opened.append((opened[-1].nested_type if opened else file.message_type).add(name=rest.split()[0]))
        elif kind == "oneof":
            opened[-1].oneof_decl.add(name=rest.split()[0])
            choice = len(opened[-1].oneof_decl) - 1
        elif line == "}" and choice is not None:
            choice = None
        elif line == "}" and opened:
            opened.pop()
        elif found := _MAP.fullmatch(line):
            _add_map(opened, *found.groups())
        elif opened and (found := _FIELD.fullmatch(line)):
            field = _add(opened, found[2], found[3], int(found[4]), bool(found[1]))
            if choice is not None:
                field.oneof_index = choice


def _add(opened: list[Any], kind: str, name: str, number: int, repeated: bool) -> Any:
    field = opened[-1].field.add(name=name, number=number, label=3 if repeated else 1)
    wide = f"TYPE_{kind.upper()}"
    if wide in field.Type.keys():  # noqa: SIM118  # an enum of protobuf's, no dict
        field.type = field.Type.Value(wide)
    else:
        inner = [one.name for one in opened[-1].nested_type]
        path = [*(one.name for one in opened), kind] if kind in inner else [kind]
        field.type = field.Type.Value("TYPE_MESSAGE")
        field.type_name = f".{PACKAGE}.{'.'.join(path)}"
    return field


def _add_map(opened: list[Any], key: str, value: str, name: str, number: str) -> None:
    """A map is, underneath, a repeated message of its own."""
    entry = opened[-1].nested_type.add(name="".join(part.capitalize() for part in name.split("_")) + "Entry")
    entry.options.map_entry = True
    inside = [*opened, entry]
    _add(inside, key, "key", 1, False)
    _add(inside, value, "value", 2, False)
    _add(opened, entry.name, name, int(number), True)
