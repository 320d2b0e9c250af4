"""Test with an existing client: tritonclient, over HTTP and gRPC. It runs in a separate environment, build/triton.

tritonclient (2.73) wants an older protobuf, ml_dtypes and greenlet than the rest of the tests.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from tritonclient.utils import InferenceServerException


def inputs_of(module: Any, x: Any, **more: Any) -> list[Any]:
    one = module.InferInput("x", list(x.shape), "FP32")
    one.set_data_from_numpy(x, **more)
    return [one]


def refused(call: Any) -> str:
    try:
        call()
    except InferenceServerException as error:
        return str(error)
    raise AssertionError("it was not refused")


def check_model(module: Any, client: Any, plain: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("net")
    assert client.is_model_ready("net", "1")
    assert not client.is_model_ready("other")
    told = plain(client.get_server_metadata())
    assert told["name"] == "fairway"
    told = plain(client.get_model_metadata("net"))
    assert told["name"] == "net"
    assert told["versions"] == ["1", "2"]
    assert [int(size) for size in told["inputs"][0]["shape"]] == [-1, -1, 3]
    x = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    for version, by in (("1", 2.0), ("2", -1.0), ("", -1.0)):
        answer = client.infer("net", inputs_of(module, x), model_version=version, request_id="seven")
        np.testing.assert_array_equal(answer.as_numpy("y"), x * by)
    wanted = [module.InferRequestedOutput("y")]
    np.testing.assert_array_equal(client.infer("net", inputs_of(module, x), outputs=wanted).as_numpy("y"), -x)
    assert "FW813" in refused(lambda: client.infer("net", inputs_of(module, np.zeros((1, 30, 3), np.float32))))
    assert "FW812" in refused(lambda: client.infer("net", inputs_of(module, np.zeros((1, 4, 2), np.float32))))
    assert "FW814" in refused(lambda: client.infer("none", inputs_of(module, x)))


def check_repository(module: Any, client: Any, plain: Any) -> None:
    rows = plain(client.get_model_repository_index())
    rows = rows["models"] if isinstance(rows, dict) else rows
    assert {(row["name"], row.get("version", "")) for row in rows} == {("net", "1"), ("net", "2")}
    client.unload_model("net")
    assert not client.is_model_ready("net")
    x = np.ones((1, 2, 3), np.float32)
    assert "FW814" in refused(lambda: client.infer("net", inputs_of(module, x)))
    client.load_model("net")
    np.testing.assert_array_equal(client.infer("net", inputs_of(module, x)).as_numpy("y"), -x)


def main(http: str, grpc: str) -> None:
    with over_http.InferenceServerClient(f"127.0.0.1:{http}") as client:
        check_model(over_http, client, lambda told: told)
        x = np.arange(12, dtype=np.float32).reshape(1, 4, 3)
        for binary in (True, False):
            wanted = [over_http.InferRequestedOutput("y", binary_data=binary)]
            given = inputs_of(over_http, x, binary_data=not binary)
            np.testing.assert_array_equal(client.infer("net", given, outputs=wanted).as_numpy("y"), -x)
        waiting = [client.async_infer("net", inputs_of(over_http, x * n)) for n in range(6)]
        for n, one in enumerate(waiting):
            np.testing.assert_array_equal(one.get_result().as_numpy("y"), -x * n)
        check_repository(over_http, client, lambda told: told)
        print("http")
    with over_grpc.InferenceServerClient(f"127.0.0.1:{grpc}") as client:
        from google.protobuf.json_format import MessageToDict

        plain = MessageToDict
        check_model(over_grpc, client, plain)
        check_repository(over_grpc, client, plain)
        print("grpc")


main(*sys.argv[1:])
