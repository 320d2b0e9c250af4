"""The committed descriptor is that of the .proto file."""

from __future__ import annotations

import runpy
from pathlib import Path

from fairway.deploy.serve.grpc_messages import DESCRIPTOR_FILE, SERVICE_NAME, list_calls, load_message_classes

TOOL = Path(__file__).parents[2] / "tools" / "compile_proto.py"


def test_the_descriptor_matches_the_proto_file() -> None:
    tool = runpy.run_path(str(TOOL))
    compiled = tool["compile_proto"](tool["SOURCE"].read_text(), tool["SOURCE"].name)
    assert compiled == DESCRIPTOR_FILE.read_bytes(), "run python tools/compile_proto.py"
    assert tool["TARGET"] == DESCRIPTOR_FILE


def test_every_call_has_its_messages() -> None:
    assert SERVICE_NAME == "inference.GRPCInferenceService"
    assert list_calls()["ModelInfer"] == ("ModelInferRequest", "ModelInferResponse")
    classes = load_message_classes()
    assert all(request in classes and response in classes for request, response in list_calls().values())


def test_messages_survive_a_round_trip() -> None:
    request = load_message_classes()["ModelInferRequest"]
    sent = request(model_name="m", inputs=[{"name": "x", "datatype": "FP32", "shape": [2]}])
    sent.parameters["key"].int64_param = 3
    got = request.FromString(sent.SerializeToString())
    assert got == sent
    assert got.parameters["key"].WhichOneof("parameter_choice") == "int64_param"
