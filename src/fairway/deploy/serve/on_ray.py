"""The same service on Ray Serve: each replica is a whole one behind Ray's proxy, so protocol and answers are the same.

Replicas load their models and answer the canary when they start, in whatever machine of the cluster that is; so places
must be reachable from there.
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
from typing import Any

from fairway.deploy.serve.grpc_words import SERVICE, calls, messages
from fairway.deploy.serve.server import PACKAGES, Say, open_service
from fairway.deploy.serve.settings import ServerSettings
from fairway.diagnostics.errors import complain
from fairway.diagnostics.extras import require

APPLICATION = "fairway"
SERVICER = "fairway.deploy.serve.on_ray.add_servicer"
_opened: list[Any] = []
"""The service of this process, where it is a replica."""


class Replica:
    """An ASGI application that opens its service at startup, where Ray put it."""

    def __init__(self, models: Sequence[str], routes: Sequence[str], settings: ServerSettings) -> None:
        self._asked = (models, routes, settings)
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        await receive()
        async with contextlib.AsyncExitStack() as stack:
            try:
                from fairway.deploy.serve.rest import make_app

                service = await stack.enter_async_context(open_service(*self._asked))
                _opened[:] = [service]
                self._app = make_app(service)
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


class RayGrpcMethods:
    """gRPC's calls, which Ray finds by their names on the deployment's class; they come and go as bytes."""


def _call(name: str) -> Any:
    async def answer(self: Any, request: bytes, grpc_context: Any) -> Any:
        from fairway.deploy.serve.rpc import GrpcMethods

        message = messages()[calls()[name][0]].FromString(request)
        return await GrpcMethods(_opened[0]).guarded(name)(message, Context(grpc_context))

    return answer


for _name in calls():
    setattr(RayGrpcMethods, _name, _call(_name))


class Context:
    """What of gRPC's own context an answer needs, on top of Ray's, which only takes notes."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.invocation_metadata = context.invocation_metadata

    def set_trailing_metadata(self, told: Sequence[tuple[str, str]]) -> None:
        self._context.set_trailing_metadata(list(told))  # Ray adds it to a list

    async def abort(self, status: Any, words: str) -> None:
        self._context.set_code(status)
        self._context.set_details(words)
        raise RuntimeError(words)


def add_servicer(servicer: Any, server: Any) -> None:
    """Called by Ray's proxy. Requests stay bytes: messages made at run time cannot be sent between processes."""
    import grpc

    handlers = {name: grpc.unary_unary_rpc_method_handler(getattr(servicer, name)) for name in calls()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


def serve_on_ray(models: Sequence[str], routes: Sequence[str], settings: ServerSettings, say: Say) -> None:
    """Deploys on the cluster that RAY_ADDRESS names, or on one of this machine, until it is told to stop."""
    require("serve", "fairway serve", *PACKAGES)
    require("serve-cluster", "--on ray", "ray", "aiohttp_cors")
    if settings.certificate is not None:
        raise complain("FW006", "--on ray: Ray's proxy is without TLS here", todo=("Put TLS in front of it.",))
    import ray
    from ray import serve
    from ray.serve.config import HTTPOptions, gRPCOptions

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    try:
        port = settings.http_port or _free_port(settings.host)
        rpc = settings.grpc_port or _free_port(settings.host)
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
        )(serve.ingress(Replica([_absolute(text) for text in models], routes, inside))(RayGrpcMethods))
        try:
            serve.run(deployed.bind(), name=APPLICATION, route_prefix="/")
        except RuntimeError as error:
            raise complain("FW815", f"Ray could not start it: {error!s:.500}") from error
        say(f"gRPC on {settings.at(rpc)}")
        say(f"HTTP on http://{settings.at(port)}, Ray Serve, {settings.workers or 1} replicas")
        asyncio.run(_until_told())
        serve.delete(APPLICATION)
    finally:
        if started:
            serve.shutdown()  # type: ignore[no-untyped-call]  # Ray's own
            ray.shutdown()


async def _until_told() -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    await told.wait()


def _absolute(text: str) -> str:
    """A replica has another working folder, so a path that is there is written out."""
    name, equals, rest = text.partition("=")
    place = rest if equals else text
    bare, at, version = place.rpartition("@")
    for path, tail in ((place, ""), (bare, at + version)):
        if path and Path(path).exists():
            return f"{name}{equals}{Path(path).absolute()}{tail}" if equals else f"{Path(path).absolute()}{tail}"
    return text


def _free_port(host: str) -> int:
    with socket.socket() as one:
        one.bind((host, 0))
        return int(one.getsockname()[1])
