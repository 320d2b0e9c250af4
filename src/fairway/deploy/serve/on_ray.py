"""Serve on Ray Serve. Each replica is a complete service behind Ray's proxy, so protocol and answers are the same.

Replicas load their models and test the canary when they start, on any machine of the cluster. So all machines must
be able to reach the places of the models.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairway.deploy.serve.grpc_messages import SERVICE_NAME, list_calls, load_message_classes
from fairway.deploy.serve.server import PACKAGES, LineSink, open_service
from fairway.deploy.serve.settings import ServerSettings
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.diagnostics.extras import require_extra

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from fairway.deploy.serve.service import Service

APPLICATION = "fairway"
SERVICER = "fairway.deploy.serve.on_ray.add_servicer"
_open_services: list[Service] = []
"""The service of this process if it is a replica."""


class Replica:
    """An ASGI application that opens its service at startup, on the machine that Ray chose."""

    def __init__(self, models: Sequence[str], routes: Sequence[str], settings: ServerSettings) -> None:
        self._arguments = (models, routes, settings)
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            assert self._app is not None
            await self._app(scope, receive, send)
            return
        await receive()
        async with contextlib.AsyncExitStack() as stack:
            try:
                from fairway.deploy.serve.rest import make_app

                service = await stack.enter_async_context(open_service(*self._arguments))
                _open_services[:] = [service]
                self._app = make_app(service)
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


class RayGrpcMethods:
    """The gRPC calls, which Ray finds by name on the class of the deployment. Messages are bytes."""


def _make_call(name: str) -> Any:
    async def answer(self: Any, request: bytes, grpc_context: Any) -> Any:
        from fairway.deploy.serve.rpc import GrpcMethods

        message = load_message_classes()[list_calls()[name][0]].FromString(request)
        return await GrpcMethods(_open_services[0]).guard(name)(message, RayContext(grpc_context))

    return answer


for _name in list_calls():
    setattr(RayGrpcMethods, _name, _make_call(_name))


class RayContext:
    """The part of gRPC's context that an answer needs, on top of Ray's, which only stores values."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.invocation_metadata = context.invocation_metadata

    def set_trailing_metadata(self, metadata: Sequence[tuple[str, str]]) -> None:
        self._context.set_trailing_metadata(list(metadata))  # Ray adds it to a list

    async def abort(self, status: Any, details: str) -> None:
        self._context.set_code(status)
        self._context.set_details(details)
        raise RuntimeError(details)


def add_servicer(servicer: Any, server: Any) -> None:
    """Add the calls to Ray's proxy. Requests stay bytes: messages made at run time cannot be sent between processes."""
    import grpc

    handlers = {name: grpc.unary_unary_rpc_method_handler(getattr(servicer, name)) for name in list_calls()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))


def serve_on_ray(models: Sequence[str], routes: Sequence[str], settings: ServerSettings, say: LineSink) -> None:
    """Serve on the cluster that RAY_ADDRESS names, or on one of this machine, until a signal stops it."""
    require_extra("serve", "fairway serve", *PACKAGES)
    require_extra("serve-cluster", "--on ray", "ray", "aiohttp_cors")
    if settings.certificate is not None:
        raise complain(
            Code.UNKNOWN_OPTION,
            "--on ray: --tls-cert and --tls-key are not supported, because Ray's proxy ends the connections",
            todo=("Put TLS in front of it.",),
        )
    import ray
    from ray import serve
    from ray.serve.config import HTTPOptions, gRPCOptions

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    try:
        port = settings.http_port or _find_free_port(settings.host)
        rpc = settings.grpc_port or _find_free_port(settings.host)
        serve.start(
            http_options=HTTPOptions(host=settings.host, port=port),
            grpc_options=gRPCOptions(port=rpc, grpc_servicer_functions=[SERVICER]),
        )
        inside = replace(settings, workers=1, fixed=True)
        deployed: Any = serve.deployment(
            num_replicas=settings.workers or 1,
            max_ongoing_requests=settings.queue,
            ray_actor_options={"num_cpus": 1},
            graceful_shutdown_timeout_s=settings.timeout,
        )(serve.ingress(Replica([_make_absolute(text) for text in models], routes, inside))(RayGrpcMethods))
        try:
            serve.run(deployed.bind(), name=APPLICATION, route_prefix="/")
        except RuntimeError as error:
            raise complain(Code.NOT_FIT_TO_SERVE, f"Ray could not start the service: {error!s:.500}") from error
        say(f"gRPC on {settings.format_address(rpc)}")
        say(f"HTTP on http://{settings.format_address(port)}, Ray Serve, {settings.workers or 1} replicas")
        asyncio.run(_wait_for_signal())
        serve.delete(APPLICATION)
    finally:
        if started:
            serve.shutdown()  # type: ignore[no-untyped-call]  # Ray's own
            ray.shutdown()


async def _wait_for_signal() -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()


def _make_absolute(text: str) -> str:
    """Make an existing path absolute, because a replica has another working folder."""
    name, equals, rest = text.partition("=")
    place = rest if equals else text
    bare, at, version = place.rpartition("@")
    for path, tail in ((place, ""), (bare, at + version)):
        if path and Path(path).exists():
            return f"{name}{equals}{Path(path).absolute()}{tail}" if equals else f"{Path(path).absolute()}{tail}"
    return text


def _find_free_port(host: str) -> int:
    with socket.socket() as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])
