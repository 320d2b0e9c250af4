"""Manifests of the same server for elsewhere: a Dockerfile, a KServe InferenceService, a Triton model repository.

Plain files go along, checked against their records; what is published stays where it is, and the manifest names it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from fairway.convert.generation.folder_delivery import put_folder
from fairway.deploy.publish.places import publish
from fairway.deploy.serve.aliases import parse_route
from fairway.deploy.serve.model_sources import Fetched, ModelSource, fetch, parse_source
from fairway.deploy.serve.server import PACKAGES
from fairway.deploy.serve.settings import VERSION, ServerSettings
from fairway.diagnostics.errors import complain
from fairway.diagnostics.extras import require
from fairway.record.files import record_path
from fairway.workers.staging import Janitor, open_workshop

FORMS = ("docker", "kserve", "triton")
SERVING = (
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
PULLING = ("boto3", "mlflow-skinny")
"""What an image needs, in the versions that are installed here. Serving needs no torch."""
OPTIONS = {"workers": "--workers", "batch": "--batch", "queue": "--queue"}
"""Settings that go into the command as they are; times and sizes have units."""


def emit(form: str, models: Sequence[str], routes: Sequence[str], settings: ServerSettings, folder: Path) -> list[str]:
    """Writes the manifests into a new folder, all or none; the names of the files that one would open first."""
    if form not in FORMS:
        raise complain("FW006", f"--emit {form!r:.40} is none of {', '.join(FORMS)}")
    if folder.exists():
        raise complain("FW008", str(folder), todo=("Name a folder that does not exist yet: -o FOLDER.",))
    if not folder.absolute().parent.is_dir():
        raise complain("FW009", f"the folder {folder.absolute().parent} does not exist")
    for text in routes:
        parse_route(text)
    require("serve", "fairway serve", *PACKAGES)
    seen: dict[str, int] = {}
    sources = [parse_source(text, seen) for text in models]
    janitor = Janitor()
    try:
        with tempfile.TemporaryDirectory() as scratch, open_workshop(folder.absolute().parent, janitor) as shop:
            staged = shop / "emitted"
            staged.mkdir()
            if form == "triton":
                names = _triton(sources, staged, Path(scratch), settings)
            else:
                words = [_taken_along(source, staged, Path(scratch), settings) for source in sources]
                name = sources[0].name.lower().replace("_", "-").replace(".", "-")
                names = _docker(words, routes, settings, staged, f"{name}:served")
                if form == "kserve":
                    names += _kserve(name, settings, staged)
            put_folder(staged, folder, False, janitor)
    finally:
        janitor.dismiss()
    return names


def _taken_along(source: ModelSource, staged: Path, scratch: Path, settings: ServerSettings) -> str:
    """The words for the source in the image: a plain file is copied to `models`."""
    if not source.plain:
        return f"{source.name}={source.place}" + (f"@{source.version}" if source.version else "")
    fetched = fetch(source, None, scratch, settings.unverified)
    home = Path("models") / source.name / fetched.version
    _copy(fetched, staged / home)
    return f"{source.name}={home / fetched.path.name}"


def _copy(fetched: Fetched, home: Path) -> None:
    home.mkdir(parents=True)
    for name in (fetched.path.name, record_path(fetched.path).name, *sorted(set(fetched.header.external))):
        if (fetched.path.parent / name).exists():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fetched.path.parent / name, home / name)


def command(words: Sequence[str], routes: Sequence[str], settings: ServerSettings) -> list[str]:
    """The command line that serves the same, on all addresses."""
    whole = ["fairway", "serve", *words, "--host", "0.0.0.0"]
    whole += ["--http-port", str(settings.http_port or 8000), "--grpc-port", str(settings.grpc_port or 8001)]
    for route in routes:
        whole += ["--route", route]
    plain = ServerSettings()
    for field, option in OPTIONS.items():
        if getattr(settings, field) != getattr(plain, field):
            whole += [option, str(getattr(settings, field))]
    if settings.timeout != plain.timeout:
        whole += ["--timeout", f"{settings.timeout:g}s"]
    for field, option in (("body", "--max-body"), ("cache", "--cache")):
        if getattr(settings, field) != getattr(plain, field):
            whole += [option, str(getattr(settings, field))]
    return [*whole, *(["--unverified"] if settings.unverified else [])]


def _docker(
    words: Sequence[str], routes: Sequence[str], settings: ServerSettings, staged: Path, image: str
) -> list[str]:
    published = any("=models/" not in word for word in words)
    needed = " ".join(f"{name}=={metadata.version(name)}" for name in (*SERVING, *(PULLING if published else ())))
    lines = [
        f"# Built where this file is: docker build -t {image} .",
        "FROM python:3.11-slim",
        "RUN useradd --create-home served",
        "# Serving needs no torch, so fairway comes without what it exports with; versions as where this was written.",
        f"RUN pip install --no-cache-dir {needed} \\",
        f" && pip install --no-cache-dir --no-deps 'fairway=={VERSION}'",
        "WORKDIR /home/served",
        *(["COPY --chown=served models models"] if (staged / "models").exists() else []),
        "USER served",
        f"EXPOSE {settings.http_port or 8000} {settings.grpc_port or 8001}",
        f"CMD {json.dumps(command(words, routes, settings))}",
    ]
    (staged / "Dockerfile").write_text("\n".join(lines) + "\n")
    return ["Dockerfile"]


def _kserve(name: str, settings: ServerSettings, staged: Path) -> list[str]:
    """KServe speaks the same protocol, so the image is a predictor as it is. JSON is YAML; this is indented as YAML."""
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
    whole = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {"predictor": predictor},
    }
    lines = [
        "# The image is the one that the Dockerfile beside builds. Secrets, both optional: a token, and the store's",
        "# credentials (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, …, MLFLOW_TRACKING_URI).",
        *_yaml(whole, 0),
    ]
    (staged / "inferenceservice.yaml").write_text("\n".join(lines) + "\n")
    return ["inferenceservice.yaml"]


def _yaml(value: Any, depth: int) -> list[str]:
    """Objects and lists as YAML; every scalar as JSON writes it, which YAML reads."""
    pad = "  " * depth
    lines: list[str] = []
    for key, one in value.items():
        if isinstance(one, dict):
            lines += [f"{pad}{key}:", *_yaml(one, depth + 1)]
        elif isinstance(one, list):
            lines.append(f"{pad}{key}:")
            for entry in one:
                first, *rest = _yaml(entry, depth + 2)
                lines += [f"{pad}  - {first.strip()}", *rest]
        else:
            lines.append(f"{pad}{key}: {json.dumps(one)}")
    return lines


def _triton(sources: list[ModelSource], staged: Path, scratch: Path, settings: ServerSettings) -> list[str]:
    """A repository as `fairway publish triton:` writes it, with each model under the name that it is served by."""
    names = []
    for source in sources:
        fetched = fetch(source, None, scratch, settings.unverified)
        home = Path(tempfile.mkdtemp(dir=scratch))
        _copy(fetched, home / "files")
        model = home / "files" / f"{source.name}.onnx"
        (home / "files" / fetched.path.name).rename(model)
        (home / "files" / record_path(fetched.path).name).rename(record_path(model))
        publish(model, f"triton:{staged}", settings.unverified)
        names.append(f"{source.name}/config.pbtxt")
    return list(dict.fromkeys(names))
