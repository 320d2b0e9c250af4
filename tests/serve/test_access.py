"""The bearer token and TLS over both protocols, and errors before anything is served."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import numpy as np
import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fairway.deploy.serve.grpc_messages import SERVICE_NAME, load_message_classes
from serve.conftest import ROOT, Start, ask, outputs, tensor
from serve.models import scaled

X = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
BODY = {"inputs": [tensor("x", X)]}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(text)
    return folder / "cert.pem", folder / "key.pem"


def infer(channel: grpc.Channel, model: str = "net", *metadata: tuple[str, str]) -> list[float]:
    words = load_message_classes()
    request = words["ModelInferRequest"](model_name=model)
    request.inputs.add(name="x", datatype="FP32", shape=X.shape).contents.fp32_contents.extend(X.reshape(-1))
    call = channel.unary_unary(
        f"/{SERVICE_NAME}/ModelInfer",
        words["ModelInferRequest"].SerializeToString,
        words["ModelInferResponse"].FromString,
    )
    answer = call(request, metadata=metadata, timeout=30)
    return list(np.frombuffer(answer.raw_output_contents[0], np.float32))


def test_token_and_tls_guard_both_protocols(tmp_path: Path, serving: Start, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    server = serving(
        f"net={scaled(tmp_path / 'net.onnx')}",
        "--workers",
        "1",
        "--tls-cert",
        str(cert),
        "--tls-key",
        str(key),
        FAIRWAY_SERVE_TOKEN="open-sesame",
    )
    assert server.scheme == "https"
    url = f"{server.url}/v2/models/net/infer"
    trust = str(cert)
    assert requests.get(f"{server.url}/v2/health/ready", verify=trust, timeout=30).status_code == 200
    for headers in ({}, {"Authorization": "Bearer other"}):
        got = requests.post(url, json=BODY, headers=headers, verify=trust, timeout=30)
        assert got.status_code == 401
        assert got.json()["finding"]["code"] == "FW819"
    allowed = {"Authorization": "Bearer open-sesame"}
    got = requests.post(url, json=BODY, headers=allowed, verify=trust, timeout=30)
    np.testing.assert_array_equal(outputs(got)["y"], X * 2)
    with grpc.secure_channel(f"127.0.0.1:{server.grpc}", grpc.ssl_channel_credentials(cert.read_bytes())) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            infer(channel)
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert infer(channel, "net", ("authorization", "Bearer open-sesame")) == (X * 2).reshape(-1).tolist()


def test_an_unverified_file_is_served_at_any_size_without_batches(tmp_path: Path, serving: Start) -> None:
    (tmp_path / "orphan.onnx").write_bytes(scaled(tmp_path / "net.onnx").read_bytes())
    server = serving(f"net={tmp_path / 'orphan.onnx'}", "--unverified", "--workers", "1")
    assert "requests are run one by one: no largest batch was verified" in server.lines[0]
    large = np.full((30, 40, 3), 7, np.float32)
    np.testing.assert_array_equal(outputs(ask(server.url, x=large))["y"], large * 2)
    told = requests.get(f"{server.url}/v2/models/net", timeout=30).json()
    assert told["parameters"]["verified"].startswith("unproven")


def test_ipv6_is_listened_on_by_both_protocols(tmp_path: Path, serving: Start) -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").read_text():
        pytest.skip("this machine has no IPv6")
    server = serving(f"net={scaled(tmp_path / 'net.onnx')}", "--workers", "1", "--host", "::1")
    got = requests.post(f"http://[::1]:{server.http}/v2/models/net/infer", json=BODY, timeout=30)
    np.testing.assert_array_equal(outputs(got)["y"], X * 2)
    with grpc.insecure_channel(f"[::1]:{server.grpc}") as channel:
        assert infer(channel) == (X * 2).reshape(-1).tolist()


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fairway", "serve", *words],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src")},
    )


def test_what_cannot_be_served_is_told_before_anything_listens(tmp_path: Path) -> None:
    model = scaled(tmp_path / "net.onnx")
    taken = str(model)
    (tmp_path / "orphan.onnx").write_bytes(model.read_bytes())
    for words, code, seen in (
        ([str(tmp_path / "none.onnx")], "FW110", "does not exist"),
        ([str(tmp_path / "orphan.onnx")], "FW801", "has no record"),
        ([str(tmp_path / "nowhere")], "FW804", "nothing was published there"),
        ([taken, "--traffic", "prod=other"], "FW006", "no model 'other' is served"),
        ([taken, "--traffic", "prod=net@7"], "FW006", "net has no version '7'"),
        ([taken, "--tls-cert", taken], "FW006", "expected both"),
    ):
        done = run(*words, "--http-port", "0", "--grpc-port", "0", "--workers", "1")
        assert done.returncode != 0
        assert f"{code} error" in done.stderr, done.stderr
        assert seen in " ".join(done.stderr.split())  # long paths are wrapped
