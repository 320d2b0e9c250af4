"""A folder for phones: the file in ONNX Runtime's format, run against the one that was verified."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from fairway.deploy.publish import ort_format as module
from fairway.deploy.publish import publish, pull
from fairway.diagnostics.errors import UserError
from fairway.record.files import get_record_path, hash_file

from .models import answers, bytes_of, make_model

FILES = [
    "SHA256SUMS",
    "net.fairway.json",
    "net.operators.config",
    "net.ort",
    "net.ort.json",
    "net.usability.txt",
]


def test_the_folder_holds_file_operators_report_record_and_checksums(tmp_path: Path) -> None:
    model = make_model(tmp_path / "a", external="net.onnx.data")
    done = publish(model, f"ort:{tmp_path / 'phone'}")
    made = tmp_path / "phone"
    assert sorted(bytes_of(made)) == FILES
    assert subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=made).returncode == 0
    x = np.ones((2, 3), np.float32)
    session = onnxruntime.InferenceSession(str(made / "net.ort"), providers=["CPUExecutionProvider"])
    assert np.allclose(session.run(None, {"x": x})[0], answers(model, x), rtol=0, atol=1e-6)
    assert (made / "net.operators.config").read_text() == "ai.onnx;13;MatMul\n"
    assert "NNAPI" in (made / "net.usability.txt").read_text()
    assert "CoreML" in (made / "net.usability.txt").read_text()
    about = json.loads((made / "net.ort.json").read_text())
    assert about["made_from"] == {"name": "net.onnx", "sha256": hash_file(model), "verdict": "verified"}
    assert about["sha256"] == hash_file(made / "net.ort")
    assert about["largest_difference"] <= 1e-6
    assert done.notes[0].startswith("net.ort differs by ")
    told = b"".join(bytes_of(made).values())
    assert str(tmp_path).encode() not in told, "no place on this machine is named"


def test_a_second_model_takes_the_place_of_the_first_as_a_set(tmp_path: Path) -> None:
    place = f"ort:{tmp_path / 'phone'}"
    publish(make_model(tmp_path / "a", name="old.onnx"), place)
    publish(make_model(tmp_path / "b"), place)
    assert sorted(bytes_of(tmp_path / "phone")) == FILES


def test_a_file_that_answers_otherwise_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert = module._convert
    other = make_model(tmp_path / "other", seed=1)
    monkeypatch.setattr(module, "_convert", lambda model, folder: convert(other, folder))
    with pytest.raises(UserError, match="FW808") as caught:
        publish(make_model(tmp_path / "a"), f"ort:{tmp_path / 'phone'}")
    assert "net.ort differs from net.onnx by" in caught.value.finding.seen
    assert list((tmp_path / "phone").iterdir()) == []


def test_a_file_that_cannot_be_converted_is_a_finding(tmp_path: Path) -> None:
    model = make_model(tmp_path / "a")
    model.write_bytes(model.read_bytes().replace(b"MatMul", b"NoSuch"))
    with pytest.raises(UserError, match="FW808"):
        publish(model, f"ort:{tmp_path / 'phone'}", unverified=True)


def test_without_recorded_inputs_a_note_says_that_nothing_was_run(tmp_path: Path) -> None:
    model = make_model(tmp_path / "a")
    get_record_path(model).unlink()
    done = publish(model, f"ort:{tmp_path / 'phone'}", unverified=True)
    assert done.notes == ("net.ort was not run: no inputs are known",)
    assert done.unverified == "net.onnx has no record: net.fairway.json does not exist"


def test_the_form_for_phones_is_not_pulled(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="FW006"):
        pull(f"ort:{tmp_path}", tmp_path / "back")
