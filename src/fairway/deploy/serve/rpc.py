"""The Open Inference Protocol over gRPC."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from fairway.deploy.serve.grpc_messages import SERVICE_NAME, list_calls, load_message_classes
from fairway.deploy.serve.rest import read_requested_version
from fairway.deploy.serve.service import Service
from fairway.deploy.serve.settings import GRPC_STATUS, ServerSettings, choose_http_status
from fairway.deploy.serve.tensors import (
    DATATYPES,
    DTYPES,
    Array,
    InferRequest,
    read_tensor_bytes,
    read_tensor_numbers,
    refuse,
    to_bytes,
)
from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import UserError, complain

CONTENT_FIELDS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
OPEN_CALLS = ("ServerLive", "ServerReady")
FINDING_TRAILER = "fairway-finding"
Message = Any
"""A protobuf message of a class that is made at run time."""
GrpcContext = Any
"""The context of a call, of gRPC or of Ray."""
_log = logging.getLogger(__name__)


async def start_grpc_server(service: Service, settings: ServerSettings) -> tuple[Any, int]:
    """Start the gRPC server, and return it with its port."""
    options = [
        ("grpc.max_receive_message_length", settings.body),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=settings.queue)
    methods, messages = GrpcMethods(service), load_message_classes()
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            methods.guard(name), messages[request].FromString, messages[response].SerializeToString
        )
        for name, (request, response) in list_calls().items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))
    address = settings.format_address(settings.grpc_port)
    try:
        if settings.certificate is not None and settings.key is not None:
            pair = (settings.key.read_bytes(), settings.certificate.read_bytes())
            port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        else:
            port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise complain(Code.CANNOT_LISTEN, f"gRPC cannot listen on {address}: {error!s:.200}") from error
    await server.start()
    return server, int(port)


class GrpcMethods:
    """One method for each call."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._messages = load_message_classes()

    def guard(self, name: str) -> Callable[[Message, GrpcContext], Awaitable[Message]]:
        """Return a call that checks the token. A finding becomes a status, with the whole finding in the trailer."""
        call = getattr(self, name)

        async def answer(request: Message, context: GrpcContext) -> Message:
            try:
                if name not in OPEN_CALLS:
                    self._check_token(context)
                return await call(request)
            except UserError as error:
                finding = error.finding
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                _log.error("a call could not be answered", exc_info=error)
                finding = Finding(Code.BUG, type(error).__name__)
            trailer = {"code": finding.code, "title": finding.title, "seen": finding.seen[:1000], "data": finding.data}
            context.set_trailing_metadata(((FINDING_TRAILER, json.dumps(trailer, default=str)),))
            status = getattr(grpc.StatusCode, GRPC_STATUS.get(choose_http_status(finding), "UNKNOWN"))
            await context.abort(status, f"{finding.code}: {finding.title}: {finding.seen}")

        return answer

    def _check_token(self, context: GrpcContext) -> None:
        token = self._service.settings.token
        if token is None:
            return
        header = dict(context.invocation_metadata()).get("authorization", "")
        if not hmac.compare_digest(str(header).encode(), f"Bearer {token}".encode()):
            raise complain(Code.NOT_ALLOWED, "the token is wrong" if header else "the token is missing")

    async def ServerLive(self, request: Message) -> Message:
        return self._messages["ServerLiveResponse"](live=True)

    async def ServerReady(self, request: Message) -> Message:
        return self._messages["ServerReadyResponse"](ready=self._service.ready)

    async def ModelReady(self, request: Message) -> Message:
        try:
            ready = self._service.model_ready(request.name, request.version or None)
        except UserError:
            ready = False
        return self._messages["ModelReadyResponse"](ready=ready)

    async def ServerMetadata(self, request: Message) -> Message:
        return self._messages["ServerMetadataResponse"](**self._service.server_metadata())

    async def ModelMetadata(self, request: Message) -> Message:
        metadata = self._service.metadata(request.name, request.version or None)
        del metadata["parameters"]
        return self._messages["ModelMetadataResponse"](**metadata)

    async def ModelInfer(self, request: Message) -> Message:
        outputs = tuple(output.name for output in request.outputs) or None
        if outputs and len(set(outputs)) != len(outputs):
            refuse("an output is requested twice")
        parsed = InferRequest(_read_inputs(request), outputs)
        answer = await self._service.infer(request.model_name, request.model_version or None, parsed, "grpc")
        response = self._messages["ModelInferResponse"](
            model_name=answer.model, model_version=answer.version, id=request.id
        )
        for name, array in answer.outputs.items():
            response.outputs.add(name=name, datatype=DATATYPES[array.dtype.name], shape=array.shape)
            response.raw_output_contents.append(to_bytes(array))
        return response

    async def RepositoryIndex(self, request: Message) -> Message:
        rows = self._service.registry.index()
        models = [row for row in rows if row["state"] == "READY" or not request.ready]
        return self._messages["RepositoryIndexResponse"](models=models)

    async def RepositoryModelLoad(self, request: Message) -> Message:
        parameters = {key: value.string_param for key, value in request.parameters.items()}
        await self._service.registry.load(request.model_name, read_requested_version(parameters))
        return self._messages["RepositoryModelLoadResponse"]()

    async def RepositoryModelUnload(self, request: Message) -> Message:
        await self._service.registry.unload(request.model_name)
        return self._messages["RepositoryModelUnloadResponse"]()


def _read_inputs(request: Message) -> dict[str, Array]:
    """Read the tensors, either all from raw bytes in the order of the inputs, or all from typed numbers."""
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        refuse(f"{len(raw)} raw tensors for {len(request.inputs)} inputs")
    tensors: dict[str, Array] = {}
    for number, entry in enumerate(request.inputs):
        if entry.name in tensors:
            refuse(f"{entry.name!r:.80} is given twice")
        for key in (*entry.parameters, *request.parameters):
            if key.startswith("shared_memory") or key.startswith("sequence"):
                refuse(f"{entry.name}: {key} is not supported")
        shape = list(entry.shape)
        if raw:
            tensors[entry.name] = read_tensor_bytes(entry.name, entry.datatype, shape, raw[number])
            continue
        if entry.datatype not in CONTENT_FIELDS or any(size < 0 for size in shape):
            refuse(f"{entry.name}: {entry.datatype!r:.40}{shape} cannot be written as numbers")
        numbers = getattr(entry.contents, CONTENT_FIELDS[entry.datatype])
        tensors[entry.name] = read_tensor_numbers(entry.name, DTYPES[entry.datatype], tuple(shape), list(numbers))
    return tensors
