"""The same server elsewhere: its manifests hold what they promise, and Ray Serve gives the same answers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import grpc
import numpy as np
import pytest
import requests
import yaml

from fairway.deploy.serve.emit import emit
from fairway.deploy.serve.settings import ServerSettings
from fairway.diagnostics.errors import UserError
from fairway.record.files import hash_file
from serve.conftest import ROOT, Start, ask, outputs
from serve.models import scaled
from serve.test_access import infer

X = np.arange(6, dtype=np.float32).reshape(1, 2, 3)


@pytest.fixture
def models(tmp_path: Path) -> list[str]:
    return [f"my_net={scaled(tmp_path / 'one.onnx', 2.0)}", f"my_net={scaled(tmp_path / 'two.onnx', 3.0)}"]


def test_the_image_holds_the_verified_files_and_its_command_serves_them(
    tmp_path: Path, models: list[str], serving: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "image"
    settings = ServerSettings(workers=1, timeout=7.5, cache=2**20)
    assert emit("docker", models, ["prod=my_net@1"], settings, out) == ["Dockerfile"]
    text = (out / "Dockerfile").read_text()
    assert hash_file(out / "models/my_net/1/one.onnx") == hash_file(tmp_path / "one.onnx")
    installed = re.findall(r"([\w-]+)==([\w.]+)", text)
    assert {"onnxruntime", "grpcio", "orjson"} <= {name for name, _ in installed}
    assert "torch" not in {name for name, _ in installed}
    words = json.loads(text.rsplit("CMD ", 1)[1])
    assert words[:2] == ["fairway", "serve"]
    monkeypatch.chdir(out)
    again = words[2 : words.index("--http-port")] + words[words.index("--grpc-port") + 2 :]
    server = serving(*again)
    np.testing.assert_array_equal(outputs(ask(server.url, "prod", x=X))["y"], X * 2)
    np.testing.assert_array_equal(outputs(ask(server.url, "my_net", x=X))["y"], X * 3)


def test_the_kserve_manifest_is_yaml_with_probes_that_the_server_answers(
    tmp_path: Path, models: list[str], serving: Start
) -> None:
    assert emit("kserve", models, [], ServerSettings(), tmp_path / "k") == ["Dockerfile", "inferenceservice.yaml"]
    told = yaml.safe_load((tmp_path / "k/inferenceservice.yaml").read_text())
    assert (told["apiVersion"], told["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", told["metadata"]["name"])
    (container,) = told["spec"]["predictor"]["containers"]
    assert f"docker build -t {container['image']} ." in (tmp_path / "k/Dockerfile").read_text()
    server = serving(*models, "--workers", "1")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        got = requests.get(server.url + container[probe]["httpGet"]["path"], timeout=30)
        assert got.status_code == 200


def test_the_triton_repository_has_every_version_under_the_served_name(tmp_path: Path, models: list[str]) -> None:
    assert emit("triton", models, [], ServerSettings(), tmp_path / "t") == ["my_net/config.pbtxt"]
    assert (tmp_path / "t/my_net/config.pbtxt").read_text().startswith('name: "my_net"')
    for version, file in (("1", "one.onnx"), ("2", "two.onnx")):
        assert hash_file(tmp_path / "t/my_net" / version / "model.onnx") == hash_file(tmp_path / file)


def test_nothing_is_written_where_something_is_wrong(tmp_path: Path, models: list[str]) -> None:
    (tmp_path / "one.fairway.json").unlink()
    with pytest.raises(UserError, match="FW801"):
        emit("docker", models, [], ServerSettings(), tmp_path / "image")
    with pytest.raises(UserError, match="FW006"):
        emit("helm", models, [], ServerSettings(), tmp_path / "image")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.onnx", "two.fairway.json", "two.onnx"]


def test_serving_needs_no_torch(tmp_path: Path, models: list[str]) -> None:
    program = (
        "import asyncio, sys; sys.modules.update(dict.fromkeys(['torch', 'onnx_ir', 'onnxscript', 'sympy'])); "
        "from fairway.deploy.serve.server import open_service\n"
        "from fairway.deploy.serve.settings import ServerSettings\n"
        "async def main():\n"
        f"  async with open_service({models!r}, [], ServerSettings(workers=1)) as service: print(len(service.lines))\n"
        "asyncio.run(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.stdout == "2\n", done.stderr


@pytest.mark.slow
def test_ray_serve_gives_the_same_answers(tmp_path: Path, models: list[str], serving: Start) -> None:
    pytest.importorskip("ray.serve")
    server = serving(*models, "--traffic", "prod=my_net@1", "--on", "ray", "--workers", "1")
    here = serving(*models, "--traffic", "prod=my_net@1", "--workers", "1")
    for name in ("prod", "my_net"):
        assert ask(server.url, name, x=X).json() == ask(here.url, name, x=X).json()
    for path in ("/v2/models/my_net", "/v2/health/ready", "/openapi.json"):
        assert requests.get(server.url + path, timeout=30).json() == requests.get(here.url + path, timeout=30).json()
    outside = ask(server.url, "prod", x=np.zeros((1, 21, 3), np.float32))
    assert outside.json()["finding"]["seen"] == "time is 21; time 2..20 was verified"
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        assert infer(channel, "my_net") == (X * 3).reshape(-1).tolist()
        with pytest.raises(grpc.RpcError) as refused:
            infer(channel, "none")
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    assert refused.value.details().startswith("FW814: No such model or version is served")
    got = requests.post(f"{server.url}/v2/repository/models/my_net/unload", timeout=30)
    assert "other replicas would not do the same" in got.json()["error"]
    assert server.stop() == 0
