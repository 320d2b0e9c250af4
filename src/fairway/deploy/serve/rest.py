"""The Open Inference Protocol over HTTP, with raw tensors, the model repository, metrics and OpenAPI."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fairway.deploy.serve.openapi import describe_api
from fairway.deploy.serve.service import Service
from fairway.deploy.serve.settings import ServerSettings, http_status
from fairway.deploy.serve.tensors import read_request, refuse, write_answer
from fairway.diagnostics import Finding
from fairway.diagnostics.errors import UserError, complain

JSON_SIZE = "inference-header-content-length"
OPEN = ("/v2/health/live", "/v2/health/ready")
"""What may be asked without the token: a probe has none."""
_log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


def make_app(service: Service) -> ASGIApp:
    """The application, behind its gate."""
    answers = RestMethods(service)
    model = "/v2/models/{model}"
    version = f"{model}/versions/{{version}}"
    repository = "/v2/repository"
    routes = [
        Route("/v2", answers.server),
        Route("/v2/health/live", answers.live),
        Route("/v2/health/ready", answers.ready),
        *(Route(base, answers.metadata) for base in (model, version)),
        *(Route(f"{base}/ready", answers.model_ready) for base in (model, version)),
        *(Route(f"{base}/infer", answers.infer, methods=["POST"]) for base in (model, version)),
        Route(f"{repository}/index", answers.index, methods=["POST"]),
        Route(f"{repository}/models/{{model}}/load", answers.load, methods=["POST"]),
        Route(f"{repository}/models/{{model}}/unload", answers.unload, methods=["POST"]),
        Route("/metrics", answers.metrics),
        Route("/openapi.json", answers.openapi),
    ]
    handlers: Any = {UserError: _refused, HTTPException: _no_page, ClientDisconnect: _gone, Exception: _bug}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app if service.settings.token is None else Gate(app, service.settings.token)


class Gate:
    """Lets nobody in without the token, except to ask for health."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._wanted):
                finding = Finding("FW819", "the token is missing" if not given else "the token is another one")
                await problem(finding)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class RestMethods:
    """One method for each path."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings = service.settings

    async def server(self, request: Request) -> Response:
        return JSONResponse(self._service.server_metadata())

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        return JSONResponse({"ready": self._service.ready}, 200 if self._service.ready else 503)

    async def metadata(self, request: Request) -> Response:
        return JSONResponse(self._service.metadata(*_which(request)))

    async def model_ready(self, request: Request) -> Response:
        ready = self._service.model_ready(*_which(request))
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def infer(self, request: Request) -> Response:
        said = request.headers.get(JSON_SIZE)
        if said is not None and not (said.isascii() and said.isdecimal() and len(said) < 20):
            refuse(f"{JSON_SIZE} is {said!r:.40}, no number")
        with self._service.room.taken() as take:
            body = await read_body(request, self._settings, take)
            asked = read_request(body, None if said is None else int(said))
            answered = await self._service.infer(*_which(request), asked, "http")
        text, size = write_answer(answered, asked)
        if size is None:
            return Response(text, media_type="application/json")
        return Response(text, headers={JSON_SIZE: str(size)}, media_type="application/octet-stream")

    async def index(self, request: Request) -> Response:
        ready = (await self._object(request)).get("ready", False)
        if not isinstance(ready, bool):
            refuse(f"ready is {ready!r:.40}, not true or false")
        rows = self._service.shelf.index()
        return JSONResponse([row for row in rows if row["state"] == "READY"] if ready else rows)

    async def load(self, request: Request) -> Response:
        told = await self._object(request)
        parameters = told.get("parameters", {})
        if not isinstance(parameters, dict):
            refuse("parameters is not an object")
        await self._service.shelf.load(request.path_params["model"], asked_version(parameters))
        return JSONResponse({})

    async def unload(self, request: Request) -> Response:
        await self._object(request)
        await self._service.shelf.unload(request.path_params["model"])
        return JSONResponse({})

    async def metrics(self, request: Request) -> Response:
        return Response(self._service.metrics.text(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(describe_api(self._settings.token is not None))

    async def _object(self, request: Request) -> dict[str, Any]:
        """A small JSON object, which may be left out."""
        body = await read_body(request, self._settings)
        try:
            told = json.loads(body) if body.strip() else {}
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict):
            refuse("the body is not a JSON object")
        return told


def asked_version(parameters: dict[str, Any]) -> str | None:
    """Triton's clients send a `config` along, which is JSON; `{"version": "2"}` there asks for a version."""
    config = parameters.get("config")
    if config is None:
        if parameters:
            refuse(f"the parameter {next(iter(parameters))!r:.80} is not offered here; there is config")
        return None
    try:
        told = json.loads(config) if isinstance(config, str) else None
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict) or set(told) - {"version"} or not isinstance(told.get("version", ""), str):
        refuse('config is not {"version": "…"}, as text')
    return told.get("version")


async def read_body(
    request: Request, settings: ServerSettings, take: Callable[[int], None] = lambda size: None
) -> bytes:
    """The body, if it is small enough and comes soon enough; a promised size takes no memory, only bytes that came."""
    if request.headers.get("content-encoding", "identity") != "identity":
        refuse("compressed bodies are not read")
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > settings.body:
        raise complain("FW817", f"the body has {said} bytes; at most {settings.body} are read")
    parts, size = [], 0
    try:
        async with asyncio.timeout(settings.timeout):
            async for part in request.stream():
                size += len(part)
                if size > settings.body:
                    raise complain("FW817", f"the body has more than {settings.body} bytes")
                take(len(part))
                parts.append(part)
    except TimeoutError:
        seen = f"after {settings.timeout:g} s {size} bytes of the body had come"
        raise complain("FW818", seen, status=408) from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _which(request: Request) -> tuple[str, str | None]:
    return request.path_params["model"], request.path_params.get("version")


def problem(finding: Finding) -> Response:
    """The protocol's `error`, and beside it the whole finding."""
    status = http_status(finding)
    headers = {503: {"Retry-After": "1"}, 401: {"WWW-Authenticate": "Bearer"}}.get(status, {})
    if status in (408, 413):
        headers = {"Connection": "close"}  # the rest of the body is not waited for
    body = {"error": f"{finding.code}: {finding.title}: {finding.seen}", "finding": finding.as_dict()}
    return Response(json.dumps(body, default=str), status, headers, "application/json")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, UserError)
    return problem(error.finding)


async def _no_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = f"{request.method} {request.url.path[:200]}: {error.detail}"
    return JSONResponse({"error": words}, error.status_code, headers=error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # nobody is there to read it


async def _bug(request: Request, error: Exception) -> Response:
    _log.error("a request could not be answered", exc_info=error)
    return problem(Finding("FW901", type(error).__name__))
