"""In a real MLflow: the bytes as they are, evidence as tags, an alias set last, loadable by the name it was given."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairway.deploy.publish import publish, pull
from fairway.deploy.publish.mlflow import MlflowRegistry
from fairway.diagnostics import Finding
from fairway.diagnostics.errors import UserError
from fairway.record.files import get_record_path, hash_file

from .models import answers, bytes_of, make_model

Killed = Callable[[Callable[[], object]], int]


def refused(call: Callable[[], Any]) -> Finding:
    with pytest.raises(UserError) as caught:
        call()
    return caught.value.finding


def client() -> Any:
    from mlflow import MlflowClient

    return MlflowClient()


def test_what_is_registered_is_loaded_by_the_same_name_byte_for_byte(registry: str, tmp_path: Path) -> None:
    import mlflow

    name = registry.removeprefix("mlflow:")
    model = make_model(tmp_path / "a", external="checkpoints/w.safetensors")
    done = publish(model, registry)
    assert done.notes == (f"load it as models:/{name}@verified",)
    loaded = Path(mlflow.artifacts.download_artifacts(f"models:/{name}@verified", dst_path=str(tmp_path / "raw")))
    assert bytes_of(tmp_path / "a").items() <= bytes_of(loaded).items()
    x = np.ones((2, 3), np.float32)
    assert np.array_equal(answers(loaded / "net.onnx", x), answers(model, x))
    proto = mlflow.onnx.load_model(f"models:/{name}@verified")
    assert [one.name for one in proto.graph.input] == ["x"]
    pull(registry, tmp_path / "back")
    assert bytes_of(tmp_path / "back") == bytes_of(tmp_path / "a")


def test_the_evidence_stands_in_the_versions_tags(registry: str, tmp_path: Path) -> None:
    model = make_model(tmp_path / "a")
    done = publish(model, registry)
    tags = client().get_model_version(registry.removeprefix("mlflow:"), done.version).tags
    assert tags["fairway.verdict"] == "verified"
    assert tags["fairway.evidence"] == "verified for batch 1..16; 2 samples, level quick"
    assert tags["fairway.sha256"] == hash_file(model)
    assert tags["fairway.digest"] == done.digest
    assert "fairway.unverified" not in tags


def test_a_second_version_takes_the_alias_and_the_first_remains(registry: str, tmp_path: Path) -> None:
    models = [make_model(tmp_path / str(seed), seed=seed) for seed in range(2)]
    assert [publish(model, registry).version for model in models] == ["1", "2"]
    assert pull(registry, tmp_path / "last").model.read_bytes() == models[1].read_bytes()
    assert pull(registry, tmp_path / "first", "1").model.read_bytes() == models[0].read_bytes()
    assert refused(lambda: pull(registry, tmp_path / "third", "3")).code == "FW804"


def test_the_same_bytes_are_neither_sent_nor_registered_twice(registry: str, tmp_path: Path) -> None:
    model = make_model(tmp_path / "a")
    publish(model, registry)
    second = publish(model, registry)
    assert (second.version, second.sent) == ("1", ())


def test_an_unverified_version_does_not_take_the_alias_of_the_verified_one(registry: str, tmp_path: Path) -> None:
    good, other = make_model(tmp_path / "good"), make_model(tmp_path / "other", seed=1)
    get_record_path(other).unlink()
    publish(good, registry)
    assert refused(lambda: publish(other, registry)).code == "FW801"
    done = publish(other, registry, unverified=True)
    assert done.notes == (f"load it as models:/{registry.removeprefix('mlflow:')}@unverified",)
    assert pull(registry, tmp_path / "back").model.read_bytes() == good.read_bytes()
    assert pull(registry, tmp_path / "other back", "unverified").unverified is not None


def test_a_killed_publisher_registers_nothing_and_its_run_is_continued(
    registry: str, tmp_path: Path, killed: Killed, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(tmp_path / "a")
    with monkeypatch.context() as patch:
        patch.setattr(MlflowRegistry, "_check_upload", lambda *words: os.kill(os.getpid(), signal.SIGKILL))
        assert killed(lambda: publish(model, registry)) == signal.SIGKILL
    finding = refused(lambda: pull(registry, tmp_path / "back"))
    assert (finding.code, finding.seen) == ("FW804", f"{registry}: nothing was published there")
    assert publish(model, registry).sent == ()
    assert pull(registry, tmp_path / "back").model.read_bytes() == model.read_bytes()


def test_an_artifact_that_was_damaged_is_noticed_and_mended(registry: str, tmp_path: Path) -> None:
    model = make_model(tmp_path / "a")
    done = publish(model, registry)
    run = client().get_model_version(registry.removeprefix("mlflow:"), done.version).run_id
    (tmp_path / "b").mkdir()
    (tmp_path / "b/net.onnx").write_bytes(model.read_bytes()[:-1] + b"?")
    client().log_artifact(run, str(tmp_path / "b/net.onnx"), "model")
    assert refused(lambda: pull(registry, tmp_path / "back")).code == "FW802"
    publish(model, registry)
    assert pull(registry, tmp_path / "back").model.read_bytes() == model.read_bytes()


def test_a_server_that_is_not_there_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert refused(lambda: publish(make_model(tmp_path), "mlflow:net")).code == "FW806"
