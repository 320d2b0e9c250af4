"""Write the serialized descriptor of `inference.proto`, which `fairway serve` builds its gRPC messages from.

    python tools/compile_proto.py

protoc is not needed: the file uses few words of the language, and they are read here. A test compares the result with
the committed descriptor.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2

SOURCE = Path(__file__).parents[1] / "src/fairway/deploy/serve/inference.proto"
TARGET = SOURCE.with_suffix(".binpb")

_PACKAGE = re.compile(r"package (\w+)")
_FIELD = re.compile(r"(repeated )?([\w.]+) (\w+) = (\d+)")
_MAP = re.compile(r"map<(\w+), (\w+)> (\w+) = (\d+)")
_CALL = re.compile(r"rpc (\w+)\((\w+)\) returns \((\w+)\)")


def compile_proto(text: str, name: str) -> bytes:
    """Return the serialized FileDescriptorProto of a proto3 file."""
    lines = [line.strip().rstrip(";") for line in re.sub(r"//.*", "", text).splitlines() if line.strip()]
    package = next(match[1] for line in lines if (match := _PACKAGE.fullmatch(line)))
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    _Reader(file).read(lines)
    return file.SerializeToString(deterministic=True)


class _Reader:
    """Fills a file descriptor in, a line at a time."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._messages: list[Any] = []
        """The messages that the line is inside of, outermost first."""
        self._oneof: int | None = None

    def read(self, lines: list[str]) -> None:
        for line in lines:
            kind, _, rest = line.partition(" ")
            if kind == "message":
                siblings = self._messages[-1].nested_type if self._messages else self._file.message_type
                self._messages.append(siblings.add(name=rest.split()[0]))
            elif kind == "oneof":
                self._messages[-1].oneof_decl.add(name=rest.split()[0])
                self._oneof = len(self._messages[-1].oneof_decl) - 1
            elif kind == "service":
                self._file.service.add(name=rest.split()[0])
            elif match := _CALL.match(line):
                request, response = (f".{self._file.package}.{message}" for message in match.groups()[1:])
                self._file.service[-1].method.add(name=match[1], input_type=request, output_type=response)
            elif line == "}" and self._oneof is not None:
                self._oneof = None
            elif line == "}" and self._messages:
                self._messages.pop()
            elif match := _MAP.fullmatch(line):
                self._add_map(*match.groups())
            elif self._messages and (match := _FIELD.fullmatch(line)):
                self._add_field(self._messages, match[2], match[3], int(match[4]), bool(match[1]))

    def _add_field(self, messages: list[Any], kind: str, name: str, number: int, repeated: bool) -> None:
        field = messages[-1].field.add(name=name, number=number, label=3 if repeated else 1)
        if self._oneof is not None:
            field.oneof_index = self._oneof
        scalar = f"TYPE_{kind.upper()}"
        if scalar in field.Type.keys():  # noqa: SIM118  # an enum of protobuf, not a dict
            field.type = field.Type.Value(scalar)
            return
        is_nested = kind in [message.name for message in messages[-1].nested_type]
        path = [*(message.name for message in messages), kind] if is_nested else [kind]
        field.type = field.Type.Value("TYPE_MESSAGE")
        field.type_name = f".{self._file.package}.{'.'.join(path)}"

    def _add_map(self, key: str, value: str, name: str, number: str) -> None:
        """A map is a repeated message with a key and a value."""
        entry = self._messages[-1].nested_type.add(name="".join(map(str.capitalize, name.split("_"))) + "Entry")
        entry.options.map_entry = True
        inside = [*self._messages, entry]
        self._add_field(inside, key, "key", 1, False)
        self._add_field(inside, value, "value", 2, False)
        self._add_field(self._messages, entry.name, name, int(number), True)


if __name__ == "__main__":
    TARGET.write_bytes(compile_proto(SOURCE.read_text(), SOURCE.name))
