"""The protocol over real sockets: existing clients work, and what does not fit is refused in so many words."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from serve.conftest import ROOT, Running, ask, outputs, start, tensor, until
from serve.models import embedded, mixing, scaled

TRITON = ROOT / "build/triton/bin/python"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("models")
    running = start(
        f"net={scaled(folder / 'one.onnx', 2.0)}",
        f"net={scaled(folder / 'two.onnx', -1.0)}",
        str(embedded(folder / "ids.onnx")),
        str(mixing(folder / "mixing.onnx")),
        "--traffic",
        "prod=net@1",
        "--traffic",
        "both=net@1:3,net@2:1",
        "--max-body",
        "64K",
        "--cache-size",
        "1M",
    )
    yield running
    assert running.stop() == 0


def infer(server: Running, body: Any, model: str = "net", **headers: str) -> requests.Response:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return requests.post(f"{server.url}/v2/models/{model}/infer", data=data, headers=headers, timeout=60)


@pytest.mark.skipif(not TRITON.exists(), reason="make test makes build/triton, with tritonclient in it")
def test_tritonclient_works_unchanged_over_http_and_grpc(tmp_path: Path, serving: Any) -> None:
    running = serving(f"net={scaled(tmp_path / 'one.onnx', 2.0)}", f"net={scaled(tmp_path / 'two.onnx', -1.0)}")
    words = [str(TRITON), str(Path(__file__).with_name("triton_client.py")), str(running.http), str(running.grpc)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["http", "grpc"]


def test_metadata_says_what_was_verified(server: Running) -> None:
    told = requests.get(f"{server.url}/v2/models/net", timeout=30).json()
    assert told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, -1, 3]}]
    assert told["versions"] == ["1", "2"]
    assert told["parameters"]["domain"]["time"] == {"low": 2, "high": 20, "multiple": 1}
    assert told["parameters"]["batches"] == 8
    mixed = requests.get(f"{server.url}/v2/models/mixing", timeout=30).json()
    assert "rows depend on each other" in mixed["parameters"]["batches"]


def test_raw_tensors_and_json_give_the_same_answer(server: Running) -> None:
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(1, 4, 3)
    head = {"name": "x", "shape": [1, 4, 3], "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
    text = json.dumps({"inputs": [head], "parameters": {"binary_data_output": True}, "id": "7"}).encode()
    raw = infer(server, text + x.tobytes(), **{"Inference-Header-Content-Length": str(len(text))})
    size = int(raw.headers["inference-header-content-length"])
    told = json.loads(raw.content[:size])
    assert told["id"] == "7"
    np.testing.assert_array_equal(np.frombuffer(raw.content[size:], np.float32), (-x).reshape(-1))
    np.testing.assert_array_equal(outputs(ask(server.url, x=x))["y"], -x)


def test_nested_numbers_are_read_as_flat_ones(server: Running) -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    body = {"inputs": [{**tensor("x", x), "data": x.tolist()}]}
    np.testing.assert_array_equal(outputs(infer(server, body))["y"], -x)


def test_an_alias_and_weights_lead_to_versions(server: Running) -> None:
    x = np.ones((1, 2, 3), np.float32)
    assert ask(server.url, "prod", x=x).json()["model_version"] == "1"
    said = [ask(server.url, "both", x=x).json()["model_version"] for _ in range(8)]
    assert (said.count("1"), said.count("2")) == (6, 2)


X = np.zeros((1, 2, 3), np.float32)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"[1", "not JSON"),
        (b'{"inputs": [{"name": "x", "shape": [1, 2, 3], "datatype": "FP32", "data": [NaN]}]}', "not JSON"),
        ([], "not an object"),
        ({}, "inputs is None"),
        ({"inputs": []}, "x is missing"),
        ({"inputs": [tensor("z", X)]}, "there is no input 'z'"),
        ({"inputs": [tensor("x", X), tensor("x", X)]}, "given twice"),
        ({"inputs": [tensor("x", X.astype(np.float64))]}, "x is FP64, the model takes FP32"),
        ({"inputs": [tensor("x", X[0])]}, "x has the shape [2, 3], the model takes x: float32[batch, time, 3]"),
        ({"inputs": [tensor("x", X[:, :, :2])]}, "3 is not 2"),
        ({"inputs": [{**tensor("x", X), "shape": [1, -2, 3]}]}, "shape is"),
        ({"inputs": [{**tensor("x", X), "shape": [2**39, 2**39, 3]}]}, "data has the shape"),
        ({"inputs": [{**tensor("x", X), "datatype": "BYTES"}]}, "datatype is 'BYTES'"),
        ({"inputs": [{**tensor("x", X), "data": [[1], [2, 3]]}]}, "ragged"),
        ({"inputs": [{**tensor("x", X), "data": ["a"] * 6}]}, "other than FP32"),
        ({"inputs": [tensor("x", X)], "outputs": [{"name": "w"}]}, "there is no output 'w'"),
        ({"inputs": [{**tensor("x", X), "parameters": {"shared_memory_region": "r"}}]}, "not supported"),
        ({"inputs": [{**tensor("x", X), "parameters": {"binary_data_size": 24}}]}, "binary_data_size is 24"),
    ],
)
def test_what_does_not_fit_is_refused_in_so_many_words(server: Running, body: Any, words: str) -> None:
    got = infer(server, body)
    assert got.status_code == 400
    assert got.json()["finding"]["code"] == "FW812"
    assert words in got.json()["error"]


def test_a_size_outside_the_verified_domain_is_refused_by_name(server: Running) -> None:
    got = ask(server.url, x=np.zeros((1, 21, 3), np.float32))
    assert got.status_code == 400
    finding = got.json()["finding"]
    assert finding["code"] == "FW813"
    assert finding["seen"] == "time is 21; time 2..20 was verified"
    assert finding["data"] == {"dim": "time", "size": 21, "low": 2, "high": 20, "multiple": 1}


@pytest.mark.parametrize("bad", [3e6, -3e6])
def test_values_outside_those_that_were_drawn_are_refused(server: Running, bad: float) -> None:
    got = ask(server.url, x=np.full((1, 2, 3), bad, np.float32))
    assert got.status_code == 400
    finding = got.json()["finding"]
    assert (finding["code"], finding["data"]) == ("FW813", {"input": "x"})
    assert finding["seen"] == f"x: it holds {bad:g}; -1.5e+06..1.5e+06 was verified"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_are_outside_the_verified_domain(server: Running, bad: float) -> None:
    x = np.full((1, 2, 3), bad, np.float32)
    head = {"name": "x", "shape": [1, 2, 3], "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
    text = json.dumps({"inputs": [head]}).encode()
    got = infer(server, text + x.tobytes(), **{"Inference-Header-Content-Length": str(len(text))})
    assert got.json()["finding"]["seen"] == "x: it holds NaN or infinity"


@pytest.mark.parametrize(
    ("ids", "mask", "words"),
    [
        ([[10]], [[True]], "ids: it holds 10; 0..9 was verified"),
        ([[-1]], [[True]], "ids: it holds -1; 0..9 was verified"),
        ([[3]], [[False]], "mask: a row of the mask hides everything"),
    ],
)
def test_values_that_the_spec_rules_out_are_refused(server: Running, ids: Any, mask: Any, words: str) -> None:
    got = ask(server.url, "ids", ids=np.array(ids, np.int64), mask=np.array(mask))
    assert got.json()["finding"]["seen"] == words


def test_inputs_that_disagree_on_a_dim_are_refused(server: Running) -> None:
    got = ask(server.url, "ids", ids=np.zeros((1, 2), np.int64), mask=np.ones((1, 3), bool))
    assert "seq is 3 here and 2 elsewhere" in got.json()["error"]


def test_a_batch_over_the_bound_is_split(server: Running) -> None:
    x = np.random.default_rng(0).normal(size=(21, 2, 3)).astype(np.float32)
    np.testing.assert_array_equal(outputs(ask(server.url, x=x))["y"], -x)


def test_a_too_large_batch_is_refused_if_samples_are_mixed(server: Running) -> None:
    got = ask(server.url, "mixing", x=np.zeros((9, 3), np.float32))
    assert got.json()["finding"]["code"] == "FW813"
    assert "cannot be split: rows depend on each other" in got.json()["error"]


def test_an_oversize_body_is_refused_whether_its_size_is_said_or_not(server: Running) -> None:
    large = b"x" * 100_000
    assert infer(server, large).status_code == 413
    url = f"{server.url}/v2/models/net/infer"
    parts = (large[n : n + 10_000] for n in range(0, len(large), 10_000))
    assert requests.post(url, data=parts, timeout=30).status_code == 413


def test_bodies_that_are_together_too_large_are_turned_away(server: Running) -> None:
    held = []
    head = b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 64000\r\n\r\n"
    try:
        for _ in range(9):
            held.append(socket.create_connection(("127.0.0.1", server.http)))
            held[-1].sendall(head + b" " * 63_000)
        held[-1].settimeout(30)
        assert held[-1].recv(1000).startswith(b"HTTP/1.1 503")
    finally:
        for one in held:
            one.close()
    until(lambda: ask(server.url, x=X).status_code == 200)


def test_a_wrong_path_method_or_version_has_its_own_answer(server: Running) -> None:
    assert requests.get(f"{server.url}/v2/models/net/versions/9", timeout=30).status_code == 404
    assert requests.get(f"{server.url}/v2/models/none/ready", timeout=30).status_code == 404
    assert requests.get(f"{server.url}/nowhere", timeout=30).json()["error"] == "GET /nowhere: Not Found"
    assert requests.get(f"{server.url}/v2/models/net/infer", timeout=30).status_code == 405


def test_metrics_count_requests_and_tell_quantiles(server: Running) -> None:
    for _ in range(3):
        outputs(ask(server.url, "prod", x=np.full((1, 2, 3), 7, np.float32)))
    text = requests.get(f"{server.url}/metrics", timeout=30).text
    told = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(told['fairway_requests_total{model="net",protocol="http",status="200",version="1"}']) >= 3
    assert float(told['fairway_cached_total{model="net",version="1"}']) >= 2
    for share in ("0.5", "0.95", "0.99"):
        assert 0 < float(told[f'fairway_recent_seconds{{model="net",quantile="{share}",version="1"}}']) < 60
    assert float(told["fairway_workers"]) >= 1
