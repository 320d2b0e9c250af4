"""The server put together: workers, models, both protocols; and its end, at which nobody's answer is lost."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fairway.deploy.serve.settings import ServerSettings
from fairway.diagnostics.errors import complain
from fairway.diagnostics.extras import require

PACKAGES = ("starlette", "uvicorn", "httptools", "grpc", "orjson", "prometheus_client")
KEEP_ALIVE = 75
"""Seconds that a connection may idle between two requests."""
BACKLOG = 2048
Say = Callable[[str], None]


@contextlib.asynccontextmanager
async def open_service(models: Sequence[str], routes: Sequence[str], settings: ServerSettings) -> AsyncIterator[Any]:
    """The service without sockets: every model loaded, its canary answered."""
    from fairway.deploy.serve.aliases import parse_route
    from fairway.deploy.serve.batcher import Desk
    from fairway.deploy.serve.metrics import Metrics
    from fairway.deploy.serve.model_registry import ModelRegistry
    from fairway.deploy.serve.model_sources import parse_source
    from fairway.deploy.serve.pool import Pool, default_shape
    from fairway.deploy.serve.service import Service

    seen: dict[str, int] = {}
    sources = [parse_source(text, seen) for text in models]
    named = dict(parse_route(text) for text in routes)
    metrics = Metrics()
    desk = Desk(settings.timeout, metrics.batch)
    desk.pool = Pool(*default_shape(settings.workers), desk.wake)
    with tempfile.TemporaryDirectory(prefix="fairway-serve-") as scratch:
        shelf = ModelRegistry(sources, named, desk, desk.pool, Path(scratch), settings)
        service = Service(shelf, desk, settings, metrics)
        metrics.watch("fairway_waiting", "Requests that wait for a worker.", lambda: desk.waiting)
        metrics.watch("fairway_workers", "Workers that are up.", lambda: len(desk.pool.hands))
        metrics.watch("fairway_workers_died", "Workers that died and were replaced.", lambda: desk.pool.deaths)
        try:
            await desk.pool.open()
            service.lines = await shelf.load_all()
            service.ready = True
            yield service
        finally:
            service.ready = False
            await desk.pool.close()


def serve(models: Sequence[str], routes: Sequence[str], settings: ServerSettings, say: Say) -> None:
    """Serves until it is told to stop. `say` gets a line for each model and each port."""
    require("serve", "fairway serve", *PACKAGES)
    _allow_files()
    asyncio.run(_serve(models, routes, settings, say))


async def _serve(models: Sequence[str], routes: Sequence[str], settings: ServerSettings, say: Say) -> None:
    import uvicorn

    from fairway.deploy.serve.rest import make_app
    from fairway.deploy.serve.rpc import listen

    with _http_socket(settings) as listener:
        async with open_service(models, routes, settings) as service:
            for line in service.lines:
                say(line)
            config = uvicorn.Config(
                make_app(service),
                http=_patient(settings.timeout),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=round(settings.timeout) + 5,
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.key,
                proxy_headers=False,
            )
            front = uvicorn.Server(config)
            scheme = "http" if settings.certificate is None else "https"
            rpc = None
            if settings.grpc_port is not None:
                rpc, port = await listen(service, settings)
                say(f"gRPC on {settings.at(port)}")
            listener.listen(BACKLOG)
            say(f"HTTP on {scheme}://{settings.at(listener.getsockname()[1])}")
            with _stopping(front):
                # Without its own signal handlers, which would raise the signal again at the end.
                await front._serve(sockets=[listener])
            service.ready = False
            if rpc is not None:
                await rpc.stop(settings.timeout)


@contextlib.contextmanager
def _stopping(front: Any) -> Iterator[None]:
    """SIGTERM and Ctrl-C end the server politely; a second Ctrl-C, at once."""
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        front.force_exit = front.should_exit and number == signal.SIGINT
        front.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _http_socket(settings: ServerSettings) -> socket.socket:
    """A listener whose connections end when the other side is gone or reads no more."""
    try:
        family = socket.getaddrinfo(settings.host, None)[0][0]
        # asyncio turns Nagle's delay off only where the protocol is said; without it each answer waits 40 ms.
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 60), ("TCP_USER_TIMEOUT", round(settings.timeout * 1000))):
            if hasattr(socket, option):  # Linux; elsewhere the system's own patience holds
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        made.bind((settings.host, settings.http_port))
    except OSError as error:
        where = settings.at(settings.http_port)
        raise complain("FW821", f"HTTP cannot listen on {where}: {error.strerror or error}") from error
    return made


def _patient(seconds: float) -> Any:
    """uvicorn's protocol, but it waits for no client that does not finish the head of its request, or its farewell."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Patient(HttpToolsProtocol):
        _cut: asyncio.TimerHandle | None = None

        def _wait(self) -> None:
            self._go_on()
            self._cut = self.loop.call_later(seconds, self.transport.abort)

        def _go_on(self) -> None:
            if self._cut is not None:
                self._cut.cancel()
                self._cut = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._go_on()
            super().connection_lost(exc)

        def shutdown(self) -> None:
            """An idle TLS client may leave the end of the connection unanswered; that is not waited for."""
            idle = self.cycle is None or self.cycle.response_complete
            if idle and self.transport.get_write_buffer_size() == 0:
                self.transport.abort()
            else:
                super().shutdown()

        def on_message_begin(self) -> None:
            self._wait()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._go_on()
            super().on_headers_complete()

    return Patient


def _allow_files() -> None:
    """As many open connections as the system allows this user."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
