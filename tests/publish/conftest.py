"""Real servers, started once: an S3 store that checks signatures and conditions, and MLflow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from fairway.testing.servers import BUCKET, run_mlflow_server, run_s3_server


@pytest.fixture(scope="session")
def s3_found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with run_s3_server(tmp_path_factory.mktemp("weed")) as found:
        yield found


@pytest.fixture
def s3(s3_found: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a new prefix in the store, and set the environment variables of the store."""
    for key, value in s3_found.items():
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
def mlflow_found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with run_mlflow_server(tmp_path_factory.mktemp("mlflow")) as found:
        yield found


@pytest.fixture
def registry(mlflow_found: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a new name in the registry, and set the environment variables of the registry."""
    for key, value in mlflow_found.items():
        monkeypatch.setenv(key, value)
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
