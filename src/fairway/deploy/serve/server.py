"""Run a server: workers, models and both protocols. Requests that were accepted are answered before it ends."""

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
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.diagnostics.extras import require_extra

PACKAGES = ("starlette", "uvicorn", "httptools", "grpc", "orjson", "prometheus_client")
KEEP_ALIVE_SECONDS = 75
"""Seconds that a connection may be idle between two requests."""
BACKLOG_CONNECTIONS = 2048
LineSink = Callable[[str], None]


@contextlib.asynccontextmanager
async def open_service(models: Sequence[str], routes: Sequence[str], settings: ServerSettings) -> AsyncIterator[Any]:
    """Open the service without sockets: all models are loaded and their canaries tested."""
    from fairway.deploy.serve.aliases import parse_route
    from fairway.deploy.serve.batcher import BatchQueue
    from fairway.deploy.serve.metrics import Metrics
    from fairway.deploy.serve.model_registry import ModelRegistry
    from fairway.deploy.serve.model_sources import parse_source
    from fairway.deploy.serve.pool import WorkerPool, choose_pool_size
    from fairway.deploy.serve.service import Service

    file_counts: dict[str, int] = {}
    sources = [parse_source(text, file_counts) for text in models]
    aliases = dict(parse_route(text) for text in routes)
    metrics = Metrics()
    queue = BatchQueue(settings.timeout, metrics.observe_batch)
    queue.pool = WorkerPool(*choose_pool_size(settings.workers), queue.wake)
    with tempfile.TemporaryDirectory(prefix="fairway-serve-") as scratch:
        registry = ModelRegistry(sources, aliases, queue, queue.pool, Path(scratch), settings)
        service = Service(registry, queue, settings, metrics)
        metrics.watch("fairway_waiting", "Requests that wait for a worker.", lambda: queue.waiting_count)
        metrics.watch("fairway_workers", "Workers that are up.", lambda: len(queue.pool.workers))
        metrics.watch("fairway_workers_died", "Workers that died and were replaced.", lambda: queue.pool.deaths)
        try:
            await queue.pool.open()
            service.lines = await registry.load_all()
            service.ready = True
            yield service
        finally:
            service.ready = False
            await queue.pool.close()


def serve(models: Sequence[str], routes: Sequence[str], settings: ServerSettings, say: LineSink) -> None:
    """Serve until a signal stops it. `say` gets a line for each model and each port."""
    require_extra("serve", "fairway serve", *PACKAGES)
    _raise_file_limit()
    asyncio.run(_run_server(models, routes, settings, say))


async def _run_server(models: Sequence[str], routes: Sequence[str], settings: ServerSettings, say: LineSink) -> None:
    import uvicorn

    from fairway.deploy.serve.rest import make_app
    from fairway.deploy.serve.rpc import start_grpc_server

    with _open_http_socket(settings) as listener:
        async with open_service(models, routes, settings) as service:
            for line in service.lines:
                say(line)
            config = uvicorn.Config(
                make_app(service),
                http=_make_http_protocol(settings.timeout),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=round(settings.timeout) + 5,
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.key,
                proxy_headers=False,
            )
            http_server = uvicorn.Server(config)
            scheme = "http" if settings.certificate is None else "https"
            grpc_server = None
            if settings.grpc_port is not None:
                grpc_server, port = await start_grpc_server(service, settings)
                say(f"gRPC on {settings.format_address(port)}")
            listener.listen(BACKLOG_CONNECTIONS)
            say(f"HTTP on {scheme}://{settings.format_address(listener.getsockname()[1])}")
            with _stop_on_signals(http_server):
                # `serve` would install signal handlers, which raise the signal again at the end.
                await http_server._serve(sockets=[listener])
            service.ready = False
            if grpc_server is not None:
                await grpc_server.stop(settings.timeout)


@contextlib.contextmanager
def _stop_on_signals(http_server: Any) -> Iterator[None]:
    """On SIGTERM or Ctrl-C let the server finish its requests. A second Ctrl-C ends it at once."""
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        http_server.force_exit = http_server.should_exit and number == signal.SIGINT
        http_server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _open_http_socket(settings: ServerSettings) -> socket.socket:
    """Open a listener whose connections end when the client is gone or no longer reads."""
    try:
        family = socket.getaddrinfo(settings.host, None)[0][0]
        # asyncio turns Nagle's delay off only if the protocol is given; with the delay each answer takes 40 ms more.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 60), ("TCP_USER_TIMEOUT", round(settings.timeout * 1000))):
            if hasattr(socket, option):  # Linux; other systems use their own timeouts
                listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        listener.bind((settings.host, settings.http_port))
    except OSError as error:
        address = settings.format_address(settings.http_port)
        raise complain(Code.CANNOT_LISTEN, f"HTTP cannot listen on {address}: {error.strerror or error}") from error
    return listener


def _make_http_protocol(seconds: float) -> Any:
    """Return uvicorn's protocol with a time limit for the head of a request and for closing a connection."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class TimedProtocol(HttpToolsProtocol):
        _timer: asyncio.TimerHandle | None = None

        def _start_timer(self) -> None:
            self._stop_timer()
            self._timer = self.loop.call_later(seconds, self.transport.abort)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._start_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def shutdown(self) -> None:
            """Do not wait for idle TLS clients, which may never confirm the end of the connection."""
            idle = self.cycle is None or self.cycle.response_complete
            if idle and self.transport.get_write_buffer_size() == 0:
                self.transport.abort()
            else:
                super().shutdown()

        def on_message_begin(self) -> None:
            self._start_timer()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._stop_timer()
            super().on_headers_complete()

    return TimedProtocol


def _raise_file_limit() -> None:
    """Allow as many open connections as the system permits."""
    _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))
