"""fairway serve MODEL…"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli.options import check_choice, check_model, check_positive, parse_duration, parse_memory
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.diagnostics.render import make_printable

TOKEN_VARIABLE = "FAIRWAY_SERVE_TOKEN"


ModelsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...",
        help="[NAME=]PLACE[@VERSION]: a .onnx file, or where it was published.",
        callback=check_model,
    ),
]
HostOption = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on; 0.0.0.0 means all.")
]
HttpPortOption = Annotated[int, typer.Option("--http-port", metavar="N", help="The REST port; 0 means a free one.")]
GrpcPortOption = Annotated[int, typer.Option("--grpc-port", metavar="N", help="The gRPC port; 0 means a free one.")]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", metavar="N", help="Worker processes. Default: one per core.")
]
BatchOption = Annotated[
    int | None,
    typer.Option("--batch", metavar="N", help="Samples in one call. Default: the largest verified batch."),
]
RouteOption = Annotated[
    list[str] | None,
    typer.Option(
        "--traffic", metavar="NAME=MODELS", help="Route requests: prod=net@2, or net=net@1:9,net@2:1. Repeatable."
    ),
]
TimeoutOption = Annotated[str, typer.Option("--timeout", metavar="TIME", help="Time limit of each request: 30s, 2m.")]
CacheOption = Annotated[
    str | None, typer.Option("--cache-size", metavar="SIZE", help="Memory for cached outputs. Default: no cache.")
]
CertificateOption = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="The TLS certificate; needs --tls-key.")
]
KeyOption = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of the TLS certificate.")]
EmitOption = Annotated[
    str | None, typer.Option("--emit", metavar="docker|kserve|triton", help="Write manifests instead of serving.")
]
OutOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="A new folder for the manifests.")
]
OnOption = Annotated[
    str | None, typer.Option("--on", metavar="ray", help="Serve on Ray Serve; --workers is the number of replicas.")
]
UnverifiedOption = Annotated[
    bool, typer.Option("--unverified", help="Also serve unverified files, and inputs outside the domain.")
]


def serve(
    models: ModelsArgument,
    host: HostOption = "127.0.0.1",
    http_port: HttpPortOption = 8000,
    grpc_port: GrpcPortOption = 8001,
    workers: WorkersOption = None,
    batch: BatchOption = None,
    route: RouteOption = None,
    timeout: TimeoutOption = "30s",
    queue: Annotated[int, typer.Option("--queue", metavar="N", help="Requests accepted at a time.")] = 256,
    body: Annotated[str, typer.Option("--max-body", metavar="SIZE", help="The largest request body.")] = "64M",
    cache: CacheOption = None,
    certificate: CertificateOption = None,
    key: KeyOption = None,
    emit: EmitOption = None,
    out: OutOption = None,
    on: OnOption = None,
    unverified: UnverifiedOption = False,
) -> int:
    """Serve verified files over REST and gRPC.

    The protocol is the Open Inference Protocol v2. Needs the extra `serve`. If FAIRWAY_SERVE_TOKEN is set, clients must
    send it as a bearer token.
    """
    from fairway.deploy.serve.server import serve as serve_models
    from fairway.deploy.serve.settings import ServerSettings

    if (emit is None) != (out is None):
        raise complain(Code.UNKNOWN_OPTION, "expected both --emit and --output, or neither")
    if on is not None:
        check_choice("--on", on, ("ray",))
    for option, number in (("--workers", workers), ("--batch", batch), ("--queue", queue)):
        check_positive(option, number)
    _check_tls(certificate, key)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    settings = ServerSettings(
        host,
        http_port,
        grpc_port,
        workers,
        batch,
        parse_duration("--timeout", timeout),
        queue,
        parse_memory(body, "--max-body"),
        parse_memory(cache, "--cache-size"),
        os.environ.get(TOKEN_VARIABLE) or None,
        certificate,
        key,
        unverified,
    )
    if emit is not None and out is not None:
        from fairway.deploy.serve.emit import emit as emit_manifests

        for name in emit_manifests(emit, models, route or [], settings, out):
            print(make_printable(f"wrote  {out / name}"))
        return 0
    if on == "ray":
        from fairway.deploy.serve.on_ray import serve_on_ray as serve_models
    serve_models(models, route or [], settings, lambda line: print(make_printable(line), flush=True))
    return 0


def _check_tls(certificate: Path | None, key: Path | None) -> None:
    for path in (certificate, key):
        if path is not None and not path.is_file():
            raise complain(Code.UNKNOWN_OPTION, f"{path} does not exist", todo=("Check the path.",))
    if (certificate is None) != (key is None):
        raise complain(Code.UNKNOWN_OPTION, "expected both --tls-cert and --tls-key, or neither")
