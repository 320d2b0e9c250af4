"""Only what was verified, byte for byte, is bundled; anything else is refused, or says what it is."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from fairway.deploy.publish import publish, pull
from fairway.deploy.publish.bundle import Bundle, BundleFile, gather_bundle, read_manifest
from fairway.diagnostics import Finding
from fairway.diagnostics.errors import UserError
from fairway.record.files import get_record_path, hash_file
from fairway.record.reader import compare_with_record

from .models import make_model, write_record


def refused(model: Path, scratch: Path) -> Finding:
    with pytest.raises(UserError) as caught:
        gather_bundle(model, False, scratch)
    return caught.value.finding


@pytest.mark.parametrize("external", [None, "net.onnx.data", "checkpoints/w.safetensors"])
def test_a_bundle_holds_file_weights_and_record_with_verified_hashes(tmp_path: Path, external: str | None) -> None:
    model = make_model(tmp_path / "a", external=external)
    bundle = gather_bundle(model, False, tmp_path)
    names = ["net.onnx", *([external] if external else []), "net.fairway.json"]
    assert [piece.name for piece in bundle.pieces] == names
    assert all(piece.sha256 == hash_file(tmp_path / "a" / piece.name) for piece in bundle.pieces)
    assert bundle.unverified is None
    assert bundle.verdict == "verified"
    assert bundle.digest == hashlib.sha256(bundle.manifest).hexdigest()
    assert read_manifest(bundle.manifest, "here").digest == bundle.digest


def test_a_file_without_a_record_is_refused(tmp_path: Path) -> None:
    model = make_model(tmp_path)
    get_record_path(model).unlink()
    finding = refused(model, tmp_path)
    assert finding.code == "FW801"
    assert finding.seen == "net.onnx has no record: net.fairway.json does not exist"


def test_a_file_that_changed_since_it_was_verified_is_refused(tmp_path: Path) -> None:
    model = make_model(tmp_path)
    other = make_model(tmp_path / "other", seed=1)
    model.write_bytes(other.read_bytes())
    assert refused(model, tmp_path / "other").seen == (
        "net.onnx is not the file that net.fairway.json is about: its sha256 differs"
    )


def test_weights_that_changed_in_a_linked_checkpoint_are_noticed(tmp_path: Path) -> None:
    model = make_model(tmp_path, external="checkpoints/w.safetensors")
    weights = tmp_path / "checkpoints/w.safetensors"
    weights.write_bytes(weights.read_bytes()[::-1])
    assert refused(model, tmp_path / "checkpoints").code == "FW801"


def test_an_unproven_file_is_refused(tmp_path: Path) -> None:
    model = make_model(tmp_path / "a")
    write_record(model, None, 3, verdict="unproven")
    assert refused(model, tmp_path).seen == "net.onnx is unproven"


def test_weights_that_the_record_does_not_know_are_refused(tmp_path: Path) -> None:
    model = make_model(tmp_path / "a", external="net.onnx.data")
    write_record(model, None, 3)
    assert refused(model, tmp_path).seen == "net.onnx.data, which net.onnx reads, is not in its record"


def test_a_file_without_a_record_gets_one_that_says_it_is_unverified(tmp_path: Path) -> None:
    model = make_model(tmp_path / "a", external="net.onnx.data")
    get_record_path(model).unlink()
    done = publish(model, str(tmp_path / "out"), unverified=True)
    back = pull(str(tmp_path / "out"), tmp_path / "back")
    why = "net.onnx has no record: net.fairway.json does not exist"
    assert done.unverified == back.unverified == why
    assert back.verdict == "unproven"
    assert json.loads(get_record_path(back.model).read_text())["published"] == {"unverified": why}
    assert compare_with_record(back.model)[1] is None
    assert not get_record_path(model).exists(), "nothing is written beside the user's own file"


def test_an_unverified_publication_stays_unverified_when_published_again(tmp_path: Path) -> None:
    model = make_model(tmp_path / "a", external="net.onnx.data")
    write_record(model, None, 3)  # verified, but it does not know the weights
    publish(model, str(tmp_path / "out"), unverified=True)
    back = pull(str(tmp_path / "out"), tmp_path / "back")
    assert refused(back.model, tmp_path).seen == "net.onnx.data, which net.onnx reads, is not in its record"


def test_the_word_unverified_changes_nothing_for_a_file_that_is_verified(tmp_path: Path) -> None:
    model = make_model(tmp_path / "a")
    assert gather_bundle(model, True, tmp_path) == gather_bundle(model, False, tmp_path)


@pytest.mark.parametrize("name", ["../net.onnx", "/etc/net.onnx", "a//b", "a/./b", "", "a\nb", "a\\b"])
def test_a_manifest_with_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    good = [BundleFile("net.onnx", "0" * 64, 1), BundleFile("net.fairway.json", "0" * 64, 1)]
    bundle = Bundle("net.onnx", "net.fairway.json", "verified", None, (*good, BundleFile(name, "0" * 64, 1)))
    with pytest.raises(UserError, match="FW804"):
        read_manifest(bundle.manifest, "there")


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"null", b'{"files": []}', b"[" * 100_000, b"\xff"])
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(UserError, match="FW804"):
        read_manifest(text, "there")
