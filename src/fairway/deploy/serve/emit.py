"""Write manifests for other servers: a Dockerfile, a KServe InferenceService, a Triton model repository.

Plain files are copied and checked against their records. Published models stay where they are; the manifest names them.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from fairway.convert.generation.folder_delivery import deliver_folder
from fairway.deploy.publish.places import publish
from fairway.deploy.serve.aliases import parse_route
from fairway.deploy.serve.model_sources import FetchedModel, ModelSource, fetch_model, parse_source
from fairway.deploy.serve.server import PACKAGES
from fairway.deploy.serve.settings import VERSION, ServerSettings
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.diagnostics.extras import require_extra
from fairway.record.files import get_record_path
from fairway.workers.workshop import Janitor, open_workshop

FORMS = ("docker", "kserve", "triton")
SERVING_PACKAGES = (
    "numpy",
    "onnx",
    "onnxruntime",
    "typer",
    "grpcio",
    "httptools",
    "orjson",
    "prometheus-client",
    "protobuf",
    "starlette",
    "uvicorn",
)
PULLING_PACKAGES = ("boto3", "mlflow-skinny")
"""Packages of an image, in the versions that are installed here. Serving needs no torch."""
OPTION_NAMES = {"workers": "--workers", "batch": "--batch", "queue": "--queue"}
"""Settings that are written into the command as they are. Times and sizes have units and are not among them."""


def emit(form: str, models: Sequence[str], routes: Sequence[str], settings: ServerSettings, folder: Path) -> list[str]:
    """Write the manifests into a new folder, all or none. Returns the names of the main files."""
    if form not in FORMS:
        raise complain(Code.UNKNOWN_OPTION, f"--emit: expected one of {', '.join(FORMS)}, got {form!r:.40}")
    if folder.exists():
        raise complain(Code.FILE_EXISTS, str(folder), todo=("Name a folder that does not exist yet: -o FOLDER.",))
    if not folder.absolute().parent.is_dir():
        raise complain(Code.CANNOT_WRITE, f"the folder {folder.absolute().parent} does not exist")
    for text in routes:
        parse_route(text)
    require_extra("serve", "fairway serve", *PACKAGES)
    file_counts: dict[str, int] = {}
    sources = [parse_source(text, file_counts) for text in models]
    janitor = Janitor()
    try:
        with tempfile.TemporaryDirectory() as scratch, open_workshop(folder.absolute().parent, janitor) as shop:
            staged = shop / "emitted"
            staged.mkdir()
            if form == "triton":
                names = _write_triton(sources, staged, Path(scratch), settings)
            else:
                arguments = [_copy_source(source, staged, Path(scratch), settings) for source in sources]
                name = sources[0].name.lower().replace("_", "-").replace(".", "-")
                names = _write_docker(arguments, routes, settings, staged, f"{name}:served")
                if form == "kserve":
                    names += _write_kserve(name, settings, staged)
            deliver_folder(staged, folder, False, janitor)
    finally:
        janitor.dismiss()
    return names


def _copy_source(source: ModelSource, staged: Path, scratch: Path, settings: ServerSettings) -> str:
    """Return the argument for a source in the image. A plain file is copied to `models`."""
    if not source.is_file:
        return f"{source.name}={source.place}" + (f"@{source.version}" if source.version else "")
    fetched = fetch_model(source, None, scratch, settings.unverified)
    home = Path("models") / source.name / fetched.version
    _copy_files(fetched, staged / home)
    return f"{source.name}={home / fetched.path.name}"


def _copy_files(fetched: FetchedModel, home: Path) -> None:
    home.mkdir(parents=True)
    for name in (fetched.path.name, get_record_path(fetched.path).name, *sorted(set(fetched.header.external))):
        if (fetched.path.parent / name).exists():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fetched.path.parent / name, home / name)


def build_command(arguments: Sequence[str], routes: Sequence[str], settings: ServerSettings) -> list[str]:
    """Return the command line that serves the same models on all addresses."""
    command = ["fairway", "serve", *arguments, "--host", "0.0.0.0"]
    command += ["--http-port", str(settings.http_port or 8000), "--grpc-port", str(settings.grpc_port or 8001)]
    for route in routes:
        command += ["--traffic", route]
    defaults = ServerSettings()
    for field, option in OPTION_NAMES.items():
        if getattr(settings, field) != getattr(defaults, field):
            command += [option, str(getattr(settings, field))]
    if settings.timeout != defaults.timeout:
        command += ["--timeout", f"{settings.timeout:g}s"]
    for field, option in (("body", "--max-body"), ("cache", "--cache-size")):
        if getattr(settings, field) != getattr(defaults, field):
            command += [option, str(getattr(settings, field))]
    return [*command, *(["--unverified"] if settings.unverified else [])]


def _write_docker(
    arguments: Sequence[str], routes: Sequence[str], settings: ServerSettings, staged: Path, image: str
) -> list[str]:
    published = any("=models/" not in argument for argument in arguments)
    packages = " ".join(
        f"{name}=={metadata.version(name)}" for name in (*SERVING_PACKAGES, *(PULLING_PACKAGES if published else ()))
    )
    lines = [
        f"# Build it in the folder of this file: docker build -t {image} .",
        "FROM python:3.11-slim",
        "RUN useradd --create-home served",
        "# Serving needs no torch, so fairway is installed without the packages that exporting needs.",
        f"RUN pip install --no-cache-dir {packages} \\",
        f" && pip install --no-cache-dir --no-deps 'fairway-onnx=={VERSION}'",
        "WORKDIR /home/served",
        *(["COPY --chown=served models models"] if (staged / "models").exists() else []),
        "USER served",
        f"EXPOSE {settings.http_port or 8000} {settings.grpc_port or 8001}",
        f"CMD {json.dumps(build_command(arguments, routes, settings))}",
    ]
    (staged / "Dockerfile").write_text("\n".join(lines) + "\n")
    return ["Dockerfile"]


def _write_kserve(name: str, settings: ServerSettings, staged: Path) -> list[str]:
    """Write an InferenceService. KServe has the same protocol, so the image can be its predictor."""
    port = settings.http_port or 8000
    container = {
        "name": "kserve-container",
        "image": f"{name}:served",
        "ports": [{"name": "http1", "containerPort": port, "protocol": "TCP"}],
        "env": [
            {
                "name": "FAIRWAY_SERVE_TOKEN",
                "valueFrom": {"secretKeyRef": {"name": f"{name}-served", "key": "token", "optional": True}},
            }
        ],
        "envFrom": [{"secretRef": {"name": f"{name}-store", "optional": True}}],
        "startupProbe": {"httpGet": {"path": "/v2/health/ready", "port": port}, "failureThreshold": 60},
        "readinessProbe": {"httpGet": {"path": "/v2/health/ready", "port": port}},
        "livenessProbe": {"httpGet": {"path": "/v2/health/live", "port": port}, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": str(settings.workers or 2)}},
    }
    predictor = {"timeout": round(settings.timeout) + 5, "containers": [container]}
    service = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {"predictor": predictor},
    }
    lines = [
        "# The image is built by the Dockerfile in this folder. Secrets, both optional: a token, and the store's",
        "# credentials (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, …, MLFLOW_TRACKING_URI).",
        *_format_yaml(service, 0),
    ]
    (staged / "inferenceservice.yaml").write_text("\n".join(lines) + "\n")
    return ["inferenceservice.yaml"]


def _format_yaml(value: Any, depth: int) -> list[str]:
    """Format objects and lists as YAML, with scalars as in JSON."""
    pad = "  " * depth
    lines: list[str] = []
    for key, item in value.items():
        if isinstance(item, dict):
            lines += [f"{pad}{key}:", *_format_yaml(item, depth + 1)]
        elif isinstance(item, list):
            lines.append(f"{pad}{key}:")
            for entry in item:
                first, *rest = _format_yaml(entry, depth + 2)
                lines += [f"{pad}  - {first.strip()}", *rest]
        else:
            lines.append(f"{pad}{key}: {json.dumps(item)}")
    return lines


def _write_triton(sources: list[ModelSource], staged: Path, scratch: Path, settings: ServerSettings) -> list[str]:
    """Write a repository as `fairway publish triton:` does, with each model under the name that it is served by."""
    names = []
    for source in sources:
        fetched = fetch_model(source, None, scratch, settings.unverified)
        home = Path(tempfile.mkdtemp(dir=scratch))
        _copy_files(fetched, home / "files")
        model = home / "files" / f"{source.name}.onnx"
        (home / "files" / fetched.path.name).rename(model)
        (home / "files" / get_record_path(fetched.path).name).rename(get_record_path(model))
        publish(model, f"triton:{staged}", settings.unverified)
        names.append(f"{source.name}/config.pbtxt")
    return list(dict.fromkeys(names))
