"""The same service on Ray Serve: each replica is a whole one behind Ray's proxy, so protocol and answers are the same.

Replicas load their models and answer the canary when they start, in whatever machine of the cluster that is; so places
must be reachable from there. Ray's proxy speaks HTTP here; gRPC is not offered.
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

from fairway.errors import complain
from fairway.extras import require
from fairway.serve.server import PACKAGES, Say, open_service
from fairway.serve.settings import Settings

APPLICATION = "fairway"


class Replica:
    """An ASGI application that opens its service at startup, where Ray put it."""

    def __init__(self, models: Sequence[str], routes: Sequence[str], settings: Settings) -> None:
        self._asked = (models, routes, settings)
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        await receive()
        async with contextlib.AsyncExitStack() as stack:
            try:
                from fairway.serve.rest import make_app

                service = await stack.enter_async_context(open_service(*self._asked))
                self._app = make_app(service)
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def serve_on_ray(models: Sequence[str], routes: Sequence[str], settings: Settings, say: Say) -> None:
    """Deploys on the cluster that RAY_ADDRESS names, or on one of this machine, until it is told to stop."""
    require("serve", "fairway serve", *PACKAGES)
    require("serve-cluster", "--on ray", "ray", "aiohttp_cors")
    if settings.certificate is not None:
        raise complain("FW006", "--on ray: Ray's proxy is without TLS here", todo=("Put TLS in front of it.",))
    import ray
    from ray import serve
    from ray.serve.config import HTTPOptions

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    try:
        port = settings.http_port or _free_port(settings.host)
        serve.start(http_options=HTTPOptions(host=settings.host, port=port))
        inside = replace(settings, workers=1, fixed=True)
        deployed: Any = serve.deployment(
            num_replicas=settings.workers or 1, max_ongoing_requests=settings.queue,
            ray_actor_options={"num_cpus": 1}, graceful_shutdown_timeout_s=settings.timeout,
        )(serve.ingress(Replica([_absolute(text) for text in models], routes, inside))(_Nothing))
        try:
            serve.run(deployed.bind(), name=APPLICATION, route_prefix="/")
        except RuntimeError as error:
            raise complain("FW815", f"Ray could not start it: {error!s:.500}") from error
        say(f"HTTP on http://{settings.host}:{port}, Ray Serve, {settings.workers or 1} replicas")
        asyncio.run(_until_told())
        serve.delete(APPLICATION)
    finally:
        if started:
            serve.shutdown()  # type: ignore[no-untyped-call]  # Ray's own
            ray.shutdown()


class _Nothing:
    """Ray wants a class to wrap; the application does everything."""


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
