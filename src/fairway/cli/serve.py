"""fairway serve MODEL…"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli.options import parse_memory, parse_time
from fairway.diagnostics.errors import complain
from fairway.diagnostics.render import printable

TOKEN = "FAIRWAY_SERVE_TOKEN"


def serve(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL…", help="[NAME=]PLACE[@VERSION]: a .onnx file, or where it was published."),
    ],
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="0.0.0.0 for all.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option("--http-port", metavar="N", help="0 takes a free one.")] = 8000,
    grpc_port: Annotated[int, typer.Option("--grpc-port", metavar="N", help="0 takes a free one.")] = 8001,
    workers: Annotated[int | None, typer.Option("--workers", metavar="N", help="Processes; else one per core.")] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", metavar="N", help="Samples at once; else what was verified.")
    ] = None,
    route: Annotated[
        list[str] | None,
        typer.Option("--route", metavar="ROUTE", help="prod=net@2, or net=net@1:9,net@2:1. Repeatable."),
    ] = None,
    timeout: Annotated[str, typer.Option("--timeout", metavar="TIME", help="For a request, and its answer.")] = "30s",
    queue: Annotated[int, typer.Option("--queue", metavar="N", help="Requests taken in at a time.")] = 256,
    body: Annotated[str, typer.Option("--max-body", metavar="SIZE", help="Of a request.")] = "64M",
    cache: Annotated[str | None, typer.Option("--cache", metavar="SIZE", help="Keep answers; else none.")] = None,
    certificate: Annotated[Path | None, typer.Option("--tls-cert", metavar="F", help="With --tls-key: TLS.")] = None,
    key: Annotated[Path | None, typer.Option("--tls-key", metavar="F", help="The certificate's key.")] = None,
    emit: Annotated[
        str | None, typer.Option("--emit", metavar="docker|kserve|triton", help="Write manifests, and do not serve.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="A new folder for the manifests.")
    ] = None,
    on: Annotated[str | None, typer.Option("--on", metavar="ray", help="On Ray Serve; --workers are replicas.")] = None,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Also unverified files, and inputs outside the domain.")
    ] = False,
) -> int:
    """Serve verified files over the Open Inference Protocol v2, REST and gRPC.

    Needs the extra `serve`. Where FAIRWAY_SERVE_TOKEN is set, clients must send it as a bearer token.
    """
    from fairway.deploy.serve.server import serve as serve_models
    from fairway.deploy.serve.settings import ServerSettings

    if (emit is None) != (out is None):
        raise complain("FW006", "--emit and -o go together")
    if on not in (None, "ray"):
        raise complain("FW006", f"--on {on!r:.40}: there is ray")
    for name, number in (("workers", workers), ("batch", batch), ("queue", queue)):
        if number is not None and number < 1:
            raise complain("FW006", f"--{name} {number}: at least 1")
    for path in (certificate, key):
        if path is not None and not path.is_file():
            raise complain("FW006", f"{path} is not there")
    if (certificate is None) != (key is None):
        raise complain("FW006", "--tls-cert and --tls-key go together")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    settings = ServerSettings(
        host,
        http_port,
        grpc_port,
        workers,
        batch,
        parse_time("--timeout", timeout),
        queue,
        parse_memory(body),
        parse_memory(cache),
        os.environ.get(TOKEN) or None,
        certificate,
        key,
        unverified,
    )
    if emit is not None and out is not None:
        from fairway.deploy.serve.emit import emit as emit_manifests

        for name in emit_manifests(emit, models, route or [], settings, out):
            print(printable(f"wrote  {out / name}"))
        return 0
    if on == "ray":
        from fairway.deploy.serve.on_ray import serve_on_ray as serve_models
    serve_models(models, route or [], settings, lambda line: print(printable(line), flush=True))
    return 0
