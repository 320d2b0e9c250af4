"""Whatever publish wrote, serve takes: each place, the newest or a version, and a second one by reload."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import requests

from fairway.deploy.publish import publish
from fairway.deploy.serve.model_sources import fetch_model, parse_source
from fairway.diagnostics.errors import UserError
from publish.models import answers, make_model
from serve.conftest import Start, ask, outputs, serving  # noqa: F401  # a fixture

X = np.ones((2, 3), np.float32)


def fetched(text: str, scratch: Path, unverified: bool = False) -> tuple[str, Path]:
    got = fetch_model(parse_source(text, {}), None, scratch, unverified)
    return got.version, got.path


def test_each_version_of_an_object_store_is_served(place: str, tmp_path: Path) -> None:
    models = [make_model(tmp_path / str(seed), seed) for seed in range(2)]
    for model in models:
        publish(model, place)
    for text, number in ((place, 2), (f"{place}@1", 1), (f"{place}@2", 2)):
        version, path = fetched(text, tmp_path)
        assert version == str(number)
        assert path.read_bytes() == models[number - 1].read_bytes()


def test_a_registered_model_is_served_by_its_alias(registry: str, tmp_path: Path) -> None:
    model = make_model(tmp_path / "models")
    publish(model, registry)
    for text in (registry, f"{registry}@verified", f"{registry}@1"):
        version, path = fetched(text, tmp_path)
        assert (version, path.read_bytes()) == ("1", model.read_bytes())


def test_a_triton_repository_is_served(tmp_path: Path) -> None:
    model = make_model(tmp_path / "models")
    publish(model, f"triton:{tmp_path / 'repository'}")
    version, path = fetched(f"net=triton:{tmp_path / 'repository' / 'net'}", tmp_path)
    assert (version, path.read_bytes()) == ("1", model.read_bytes())


def test_what_was_published_unverified_needs_the_word(tmp_path: Path) -> None:
    model = make_model(tmp_path / "models")
    (tmp_path / "models" / "net.fairway.json").unlink()
    publish(model, str(tmp_path / "place"), unverified=True)
    with pytest.raises(UserError, match="FW801"):
        fetched(str(tmp_path / "place"), tmp_path)
    assert fetched(str(tmp_path / "place"), tmp_path, unverified=True)[0] == "1"


def test_a_new_version_is_taken_in_and_an_old_one_brought_back(tmp_path: Path, serving: Start) -> None:  # noqa: F811
    models = [make_model(tmp_path / str(seed), seed) for seed in range(2)]
    place = str(tmp_path / "net")
    publish(models[0], place)
    server = serving(place, "--workers", "1")
    load = f"{server.url}/v2/repository/models/net/load"
    np.testing.assert_allclose(outputs(ask(server.url, x=X))["y"], answers(models[0], X), rtol=1e-6)
    publish(models[1], place)
    requests.post(load, timeout=60).raise_for_status()
    np.testing.assert_allclose(outputs(ask(server.url, x=X))["y"], answers(models[1], X), rtol=1e-6)
    assert requests.get(f"{server.url}/v2/models/net", timeout=30).json()["versions"] == ["2"]
    requests.post(load, json={"parameters": {"config": '{"version": "1"}'}}, timeout=60).raise_for_status()
    old = requests.post(
        f"{server.url}/v2/models/net/versions/1/infer",
        json={"inputs": [{"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [1] * 6}]},
        timeout=60,
    )
    np.testing.assert_allclose(outputs(old)["y"], answers(models[0], X), rtol=1e-6)
    assert requests.get(f"{server.url}/v2/models/net", timeout=30).json()["versions"] == ["1", "2"]
    got = requests.post(load, json={"parameters": {"config": '{"version": "9"}'}}, timeout=60)
    assert got.json()["finding"]["code"] == "FW804"
