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
from fairway.deploy.serve.settings import ServerSettings, choose_http_status
from fairway.deploy.serve.tensors import read_request, refuse, write_answer
from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import UserError, complain

JSON_SIZE_HEADER = "inference-header-content-length"
OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")
"""Paths that need no token, because health probes have none."""
_log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


def make_app(service: Service) -> ASGIApp:
    """Make the ASGI application, which checks the token first if there is one."""
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
    handlers: Any = {
        UserError: _answer_user_error,
        HTTPException: _answer_http_error,
        ClientDisconnect: _answer_disconnect,
        Exception: _answer_bug,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app if service.settings.token is None else TokenGate(app, service.settings.token)


JSON_WHITESPACE = b" \t\r\n"


class TokenGate:
    """Refuses requests without the token, except for health."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            token = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(token, self._expected):
                finding = Finding(Code.NOT_ALLOWED, "the token is wrong" if token else "the token is missing")
                await make_problem(finding)(scope, receive, send)
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
        return JSONResponse(self._service.metadata(*_read_model_and_version(request)))

    async def model_ready(self, request: Request) -> Response:
        ready = self._service.model_ready(*_read_model_and_version(request))
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def infer(self, request: Request) -> Response:
        json_size = request.headers.get(JSON_SIZE_HEADER)
        if json_size is not None and not (json_size.isascii() and json_size.isdecimal() and len(json_size) < 20):
            refuse(f"{JSON_SIZE_HEADER} is {json_size!r:.40}, not a number")
        with self._service.body_budget.reserve() as reserve:
            body = await read_body(request, self._settings, reserve)
            parsed = read_request(body, None if json_size is None else int(json_size))
            answer = await self._service.infer(*_read_model_and_version(request), parsed, "http")
        text, size = write_answer(answer, parsed)
        if size is None:
            return Response(text, media_type="application/json")
        return Response(text, headers={JSON_SIZE_HEADER: str(size)}, media_type="application/octet-stream")

    async def index(self, request: Request) -> Response:
        ready = (await self._read_json(request)).get("ready", False)
        if not isinstance(ready, bool):
            refuse(f"ready is {ready!r:.40}, not true or false")
        rows = self._service.registry.index()
        return JSONResponse([row for row in rows if row["state"] == "READY"] if ready else rows)

    async def load(self, request: Request) -> Response:
        body = await self._read_json(request)
        parameters = body.get("parameters", {})
        if not isinstance(parameters, dict):
            refuse("parameters is not an object")
        await self._service.registry.load(request.path_params["model"], read_requested_version(parameters))
        return JSONResponse({})

    async def unload(self, request: Request) -> Response:
        await self._read_json(request)
        await self._service.registry.unload(request.path_params["model"])
        return JSONResponse({})

    async def metrics(self, request: Request) -> Response:
        return Response(self._service.metrics.text(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(describe_api(self._settings.token is not None))

    async def _read_json(self, request: Request) -> dict[str, object]:
        """Read a small JSON object, which may be left out."""
        body = await read_body(request, self._settings)
        try:
            content = json.loads(body) if body.strip(JSON_WHITESPACE) else {}
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            refuse("the body is not a JSON object")
        return content


def read_requested_version(parameters: dict[str, object]) -> str | None:
    """Return the version in `config`, which Triton's clients send as JSON text such as `{"version": "2"}`."""
    config = parameters.get("config")
    if config is None:
        if parameters:
            refuse(f"the parameter {next(iter(parameters))!r:.80} is not supported; use config")
        return None
    try:
        settings = json.loads(config) if isinstance(config, str) else None
    except (ValueError, RecursionError):
        settings = None
    if (
        not isinstance(settings, dict)
        or set(settings) - {"version"}
        or not isinstance(settings.get("version", ""), str)
    ):
        refuse('config: expected the text {"version": "…"}')
    return settings.get("version")


async def read_body(
    request: Request, settings: ServerSettings, reserve: Callable[[int], None] = lambda size: None
) -> bytes:
    """Read the body if it is small enough and arrives in time. Only bytes that arrived use memory."""
    if request.headers.get("content-encoding", "identity") != "identity":
        refuse("compressed bodies are not supported")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > settings.body:
        raise complain(Code.REQUEST_TOO_LARGE, f"the body has {length} bytes; at most {settings.body} are read")
    parts, size = [], 0
    try:
        async with asyncio.timeout(settings.timeout):
            async for part in request.stream():
                size += len(part)
                if size > settings.body:
                    raise complain(Code.REQUEST_TOO_LARGE, f"the body has more than {settings.body} bytes")
                reserve(len(part))
                parts.append(part)
    except TimeoutError:
        seen = f"after {settings.timeout:g} s {size} bytes of the body had arrived"
        raise complain(Code.OUT_OF_TIME, seen, status=408) from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _read_model_and_version(request: Request) -> tuple[str, str | None]:
    return request.path_params["model"], request.path_params.get("version")


def make_problem(finding: Finding) -> Response:
    """Make the response to a finding: the protocol's `error`, and the finding as JSON."""
    status = choose_http_status(finding)
    headers = {503: {"Retry-After": "1"}, 401: {"WWW-Authenticate": "Bearer"}}.get(status, {})
    if status in (408, 413):
        headers = {"Connection": "close"}  # the rest of the body is not read
    body = {"error": f"{finding.code}: {finding.title}: {finding.seen}", "finding": finding.as_dict()}
    return Response(json.dumps(body, default=str), status, headers, "application/json")


async def _answer_user_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, UserError)
    return make_problem(error.finding)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path[:200]}: {error.detail}"
    return JSONResponse({"error": message}, error.status_code, headers=error.headers)


async def _answer_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # the client is gone


async def _answer_bug(request: Request, error: Exception) -> Response:
    _log.error("a request could not be answered", exc_info=error)
    return make_problem(Finding(Code.BUG, type(error).__name__))
