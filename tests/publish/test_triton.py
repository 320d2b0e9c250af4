"""A repository as Triton reads it: the config says what was verified, and a version appears whole."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from fairway.deploy.publish import publish, pull
from fairway.deploy.publish import triton as module
from fairway.diagnostics.errors import UserError
from fairway.model.onnx_file import open_header
from fairway.record.files import get_record_path

from .models import answers, bytes_of, make_model

CONFIG = """\
name: "net"
backend: "onnxruntime"
default_model_filename: "model.onnx"
max_batch_size: 16
input {
  name: "x"
  data_type: TYPE_FP32
  dims: [ 3 ]
}
output {
  name: "y"
  data_type: TYPE_FP32
  dims: [ 4 ]
}
"""


def test_the_repository_holds_config_weights_record_and_checksums(tmp_path: Path) -> None:
    model = make_model(tmp_path / "a", external="checkpoints/w.safetensors")
    done = publish(model, f"triton:{tmp_path / 'models'}")
    home = tmp_path / "models/net"
    assert (home / "config.pbtxt").read_text() == CONFIG
    assert sorted(bytes_of(home)) == [
        "1/SHA256SUMS",
        "1/checkpoints/w.safetensors",
        "1/model.fairway.json",
        "1/model.onnx",
        "config.pbtxt",
    ]
    assert subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=home / "1").returncode == 0
    x = np.ones((2, 3), np.float32)
    assert np.array_equal(answers(home / "1/model.onnx", x), answers(model, x))
    back = pull(f"triton:{tmp_path / 'models'}", tmp_path / "back")
    assert (back.version, back.digest, back.verdict) == ("1", done.digest, "verified")
    assert sorted(bytes_of(tmp_path / "back").values()) == sorted(bytes_of(tmp_path / "a").values())


def test_a_second_version_gets_the_next_number_and_the_same_one_none(tmp_path: Path) -> None:
    place = f"triton:{tmp_path / 'models'}"
    numbers = [publish(make_model(tmp_path / str(seed), seed=seed), place).version for seed in (0, 1, 1)]
    assert numbers == ["1", "2", "2"]
    first = pull(f"triton:{tmp_path / 'models/net'}", tmp_path / "back", "1")
    assert first.model.read_bytes() == (tmp_path / "0/net.onnx").read_bytes()


def test_a_model_with_other_inputs_leaves_the_repository_unchanged(tmp_path: Path) -> None:
    place = f"triton:{tmp_path / 'models'}"
    publish(make_model(tmp_path / "a"), place)
    before = bytes_of(tmp_path / "models")
    with pytest.raises(UserError, match="FW807"):
        publish(make_model(tmp_path / "b", rows=5), place)
    assert bytes_of(tmp_path / "models") == before


def test_a_publisher_that_fails_midway_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*words: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_checksums", fail)
    with pytest.raises(UserError, match="FW009"):
        publish(make_model(tmp_path / "a"), f"triton:{tmp_path / 'models'}")
    assert list((tmp_path / "models").iterdir()) == []


def test_a_version_that_was_changed_is_not_pulled(tmp_path: Path) -> None:
    place = f"triton:{tmp_path / 'models'}"
    publish(make_model(tmp_path / "a"), place)
    path = tmp_path / "models/net/1/model.onnx"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(UserError, match="FW802"):
        pull(place, tmp_path / "back")


def test_without_a_verified_batch_sizes_are_complete_and_scalars_reshaped(tmp_path: Path) -> None:
    values = [
        helper.make_tensor_value_info("x", TensorProto.INT64, ["n", 2]),
        helper.make_tensor_value_info("s", TensorProto.BOOL, []),
    ]
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["s"], ["t"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT64, ["n", 2])]
    outputs.append(helper.make_tensor_value_info("t", TensorProto.BOOL, []))
    path = tmp_path / "net.onnx"
    graph = helper.make_graph(nodes, "g", values, outputs)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    text = module.write_config("net", open_header(path), 0)
    assert "max_batch_size: 0" in text
    assert '  name: "x"\n  data_type: TYPE_INT64\n  dims: [ -1, 2 ]\n' in text
    assert '  name: "s"\n  data_type: TYPE_BOOL\n  dims: [ 1 ]\n  reshape: { shape: [ ] }\n' in text


def test_an_unverified_file_has_no_verified_batch(tmp_path: Path) -> None:
    model = make_model(tmp_path / "a")
    get_record_path(model).unlink()
    publish(model, f"triton:{tmp_path / 'models'}", unverified=True)
    assert "max_batch_size: 0\n" in (tmp_path / "models/net/config.pbtxt").read_text()
