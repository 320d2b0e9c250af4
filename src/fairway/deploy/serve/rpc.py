"""The Open Inference Protocol over gRPC."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from fairway.deploy.serve.grpc_words import SERVICE, calls, messages
from fairway.deploy.serve.rest import asked_version
from fairway.deploy.serve.service import Service
from fairway.deploy.serve.settings import GRPC_STATUS, ServerSettings, http_status
from fairway.deploy.serve.tensors import (
    DATATYPES,
    DTYPES,
    Array,
    InferRequest,
    from_bytes,
    from_numbers,
    refuse,
    to_bytes,
)
from fairway.diagnostics import Finding
from fairway.diagnostics.errors import UserError, complain

CONTENTS = {
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
OPEN = ("ServerLive", "ServerReady")
TRAILER = "fairway-finding"
_log = logging.getLogger(__name__)


async def listen(service: Service, settings: ServerSettings) -> tuple[Any, int]:
    """A started server, and its port."""
    options = [
        ("grpc.max_receive_message_length", settings.body),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=settings.queue)
    answers, words = GrpcMethods(service), messages()
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            answers.guarded(name), words[asked].FromString, words[answered].SerializeToString
        )
        for name, (asked, answered) in calls().items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    address = settings.at(settings.grpc_port)
    try:
        if settings.certificate is not None and settings.key is not None:
            pair = (settings.key.read_bytes(), settings.certificate.read_bytes())
            port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        else:
            port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise complain("FW821", f"gRPC cannot listen on {address}: {error!s:.200}") from error
    await server.start()
    return server, int(port)


class GrpcMethods:
    """One method for each call."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._words = messages()

    def guarded(self, name: str) -> Callable[[Any, Any], Awaitable[Any]]:
        """The call behind the token; a finding becomes a status, and goes along whole in the trailer."""
        call = getattr(self, name)

        async def answer(request: Any, context: Any) -> Any:
            try:
                if name not in OPEN:
                    self._admit(context)
                return await call(request)
            except UserError as error:
                finding = error.finding
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                _log.error("a call could not be answered", exc_info=error)
                finding = Finding("FW901", type(error).__name__)
            told = {"code": finding.code, "title": finding.title, "seen": finding.seen[:1000], "data": finding.data}
            context.set_trailing_metadata(((TRAILER, json.dumps(told, default=str)),))
            status = getattr(grpc.StatusCode, GRPC_STATUS.get(http_status(finding), "UNKNOWN"))
            await context.abort(status, f"{finding.code}: {finding.title}: {finding.seen}")

        return answer

    def _admit(self, context: Any) -> None:
        token = self._service.settings.token
        if token is None:
            return
        given = dict(context.invocation_metadata()).get("authorization", "")
        if not hmac.compare_digest(str(given).encode(), f"Bearer {token}".encode()):
            raise complain("FW819", "the token is missing" if not given else "the token is another one")

    async def ServerLive(self, request: Any) -> Any:
        return self._words["ServerLiveResponse"](live=True)

    async def ServerReady(self, request: Any) -> Any:
        return self._words["ServerReadyResponse"](ready=self._service.ready)

    async def ModelReady(self, request: Any) -> Any:
        try:
            ready = self._service.model_ready(request.name, request.version or None)
        except UserError:
            ready = False
        return self._words["ModelReadyResponse"](ready=ready)

    async def ServerMetadata(self, request: Any) -> Any:
        return self._words["ServerMetadataResponse"](**self._service.server_metadata())

    async def ModelMetadata(self, request: Any) -> Any:
        told = self._service.metadata(request.name, request.version or None)
        del told["parameters"]
        return self._words["ModelMetadataResponse"](**told)

    async def ModelInfer(self, request: Any) -> Any:
        outputs = tuple(one.name for one in request.outputs) or None
        if outputs and len(set(outputs)) != len(outputs):
            refuse("an output is asked for twice")
        asked = InferRequest(_inputs(request), outputs)
        answered = await self._service.infer(request.model_name, request.model_version or None, asked, "grpc")
        response = self._words["ModelInferResponse"](
            model_name=answered.model, model_version=answered.version, id=request.id
        )
        for name, array in answered.outputs.items():
            response.outputs.add(name=name, datatype=DATATYPES[array.dtype.name], shape=array.shape)
            response.raw_output_contents.append(to_bytes(array))
        return response

    async def RepositoryIndex(self, request: Any) -> Any:
        rows = self._service.shelf.index()
        wanted = [row for row in rows if row["state"] == "READY" or not request.ready]
        return self._words["RepositoryIndexResponse"](models=wanted)

    async def RepositoryModelLoad(self, request: Any) -> Any:
        told = {key: one.string_param for key, one in request.parameters.items()}
        await self._service.shelf.load(request.model_name, asked_version(told))
        return self._words["RepositoryModelLoadResponse"]()

    async def RepositoryModelUnload(self, request: Any) -> Any:
        await self._service.shelf.unload(request.model_name)
        return self._words["RepositoryModelUnloadResponse"]()


def _inputs(request: Any) -> dict[str, Array]:
    """The tensors, from raw bytes in the inputs' order or from typed numbers; not from both at once."""
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        refuse(f"{len(raw)} raw tensors for {len(request.inputs)} inputs")
    found: dict[str, Array] = {}
    for number, one in enumerate(request.inputs):
        if one.name in found:
            refuse(f"{one.name!r:.80} is given twice")
        for key in (*one.parameters, *request.parameters):
            if key.startswith("shared_memory") or key.startswith("sequence"):
                refuse(f"{one.name}: {key} is not offered here")
        shape = list(one.shape)
        if raw:
            found[one.name] = from_bytes(one.name, one.datatype, shape, raw[number])
            continue
        if one.datatype not in CONTENTS or any(size < 0 for size in shape):
            refuse(f"{one.name}: {one.datatype!r:.40}{shape} cannot be written as numbers")
        numbers = getattr(one.contents, CONTENTS[one.datatype])
        found[one.name] = from_numbers(one.name, DTYPES[one.datatype], tuple(shape), list(numbers))
    return found
