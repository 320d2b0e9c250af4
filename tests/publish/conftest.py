"""Real servers, started once: an S3 store that checks signatures and conditions, and MLflow."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

SECRETS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "tester-secret", "AWS_REGION": "us-east-1"}
PATIENCE = 180.0
BUCKET = "models"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def started(words: list[str], folder: Path, ready: Callable[[], bool], **more: str) -> Iterator[None]:
    """Runs a server until the tests are over; fails with its last words where it does not come up."""
    log = folder / "log"
    with log.open("w") as file:
        process = subprocess.Popen(words, cwd=folder, stdout=file, stderr=file, env={**os.environ, **more})
    try:
        end = time.monotonic() + PATIENCE
        while not ready():
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < end, log.read_text()[-2000:]
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """SeaweedFS: it enforces signatures, If-None-Match and If-Match."""
    folder = tmp_path_factory.mktemp("weed")
    person = {"accessKey": SECRETS["AWS_ACCESS_KEY_ID"], "secretKey": SECRETS["AWS_SECRET_ACCESS_KEY"]}
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
    yield from (endpoint for _ in started(words, folder, lambda: _has_bucket(endpoint)))


def _has_bucket(endpoint: str) -> bool:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=SECRETS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=SECRETS["AWS_SECRET_ACCESS_KEY"], config=Config(retries={"total_max_attempts": 1}),
    )  # fmt: skip
    try:
        client.put_object(Bucket=BUCKET, Key="up", Body=b"")
    except (BotoCoreError, ClientError):
        return False
    return True


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix of its own in the store, and the environment by which it is found."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    for key, value in SECRETS.items():
        monkeypatch.setenv(key, value)
    return f"s3://{BUCKET}/{uuid4().hex[:12]}/net"


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A destination that is an object store."""
    if request.param == "folder":
        return str(tmp_path / "published")
    found: str = request.getfixturevalue("s3")
    return found


@pytest.fixture(scope="session")
def mlflow_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """MLflow's own server, with its database and its artefacts in a folder."""
    folder = tmp_path_factory.mktemp("mlflow")
    endpoint = f"http://127.0.0.1:{free_ports(1)[0]}"
    words = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", endpoint.rpartition(":")[2]]
    words += ["--workers", "1", "--backend-store-uri", "sqlite:///registry.db", "--artifacts-destination", "./kept"]
    more = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    yield from (endpoint for _ in started(words, folder, lambda: answers(f"{endpoint}/health"), **more))


@pytest.fixture
def registry(mlflow_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A name of its own in the registry, and the environment by which it is found."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_endpoint)
    return f"mlflow:net-{uuid4().hex[:8]}"


@pytest.fixture
def killed() -> Callable[[Callable[[], object]], int]:
    """Runs a function in a fork of this process, which it may kill; the number of the signal that ended it."""

    def run(function: Callable[[], object]) -> int:
        child = os.fork()
        if child == 0:
            try:
                function()
            finally:
                os._exit(1)
        return os.WTERMSIG(os.waitpid(child, 0)[1])

    return run
