"""The gRPC messages of the Open Inference Protocol, built from a serialized descriptor.

Code that protoc makes works with some versions of protobuf only, and protobuf cannot read `.proto` text. So
`tools/compile_proto.py` writes `inference.binpb` from `inference.proto`, and the classes are built from it here. They
are in a separate descriptor pool, because a client in the same process may have messages of the same names.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

DESCRIPTOR_FILE = Path(__file__).with_name("inference.binpb")
SERVICE_NAME = "inference.GRPCInferenceService"


@cache
def _read_descriptor() -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    return FileDescriptorProto.FromString(DESCRIPTOR_FILE.read_bytes())


@cache
def load_message_classes() -> dict[str, Any]:
    """Return the message classes by name, nested ones as `Outer.Inner`."""
    from google.protobuf import descriptor_pool, message_factory

    file = _read_descriptor()
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = [
        name
        for outer in file.message_type
        for name in (outer.name, *(f"{outer.name}.{inner.name}" for inner in outer.nested_type))
    ]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{name}")) for name in names
    }


def list_calls() -> dict[str, tuple[str, str]]:
    """Return the message names of request and response for each call of the service."""
    (service,) = _read_descriptor().service
    return {call.name: (_get_short_name(call.input_type), _get_short_name(call.output_type)) for call in service.method}


def _get_short_name(full_name: str) -> str:
    return full_name.rpartition(".")[2]
