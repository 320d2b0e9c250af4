"""`fairway publish` and `fairway pull`, as they are called."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fairway.cli import main
from fairway.deploy.publish.places import choose_default_folder
from fairway.record.files import get_record_path

from .models import make_model


@pytest.fixture
def fairway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["fairway", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call


def test_publish_and_pull_print_a_few_lines(fairway: Any, tmp_path: Path) -> None:
    make_model(tmp_path)
    code, out, err = fairway("publish", "net.onnx", "there")
    digest = json.loads((tmp_path / "there/latest.json").read_text())["versions"][0]["manifest"]
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == ["published  there  version 1", "  files     net.onnx, net.fairway.json"]
    assert out.splitlines()[2].startswith("  sent      2 of 2 files, 0.00 MB")
    assert out.splitlines()[3] == f"  digest    {digest}"
    code, out, err = fairway("pull", "there", "-o", "back")
    assert (code, out, err) == (
        0,
        "pulled  back/net.onnx  version 1\n  checked   2 files: net.fairway.json, net.onnx\n  record    verified\n",
        "",
    )


def test_an_unverified_file_needs_the_word_and_bears_it(fairway: Any, tmp_path: Path) -> None:
    get_record_path(make_model(tmp_path)).unlink()
    code, out, err = fairway("publish", "net.onnx", "there")
    assert (code, out) == (1, "")
    assert err.startswith("FW801 error: The file is not verified\n")
    code, out, _ = fairway("publish", "net.onnx", "there", "--unverified")
    assert code == 0
    why = "UNVERIFIED: net.onnx has no record: net.fairway.json does not exist"
    assert out.splitlines()[1] == f"  {why}"
    assert fairway("pull", "there", "-o", "back")[1].splitlines()[2] == f"  record    {why}"


def test_json_is_all_that_stands_on_standard_output(fairway: Any, tmp_path: Path) -> None:
    make_model(tmp_path)
    published = json.loads(fairway("publish", "net.onnx", "there", "--json")[1])
    pulled = json.loads(fairway("pull", "there", "-o", "back", "--json")[1])
    assert published["version"] == pulled["version"] == "1"
    assert published["digest"] == pulled["digest"]


@pytest.mark.parametrize(("place", "package"), [("s3://bucket/net", "boto3"), ("mlflow:net", "mlflow")])
def test_without_the_extra_its_name_is_told(
    fairway: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, package: str
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr("fairway.diagnostics.extras.find_spec", lambda name: None if name == package else real(name))
    make_model(tmp_path)
    code, _, err = fairway("publish", "net.onnx", place)
    assert code == 2
    assert f"needs {package}" in err
    assert "pip install 'fairway-onnx[publish]'" in err


@pytest.mark.parametrize(
    ("place", "folder"),
    [("s3://bucket/a/net/", "net"), ("mlflow:net", "net"), ("a/b", "b"), ("triton:models/net", "net"), ("/", "pulled")],
)
def test_a_pulled_folder_is_named_after_the_place(place: str, folder: str) -> None:
    assert choose_default_folder(place) == Path(folder)
