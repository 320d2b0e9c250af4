"""A file is delivered whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from fairway.diagnostics.errors import UserError
from fairway.model.weight_storage import WeightStorage
from fairway.record.delivery import check_target, deliver, make_workshop
from fairway.record.schema import Record
from fairway.record.schema_parts import SubjectRecord
from fairway.workers.workshop import Janitor

RECORD = Record(
    format=2,
    subject=SubjectRecord(sha256="0" * 64, domain={}),
    versions={},
    verdict="verified",
    route="trace",
    remedies=(),
    evidence=None,
)


def write_candidate(folder: Path, count: int = 4, external: bool = False) -> Path:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [count], b"\1\2\3\4" * count, raw=True)
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [count]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", value[:1], value[1:], [weight])
    path = folder / "candidate.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]),
        path,
        save_as_external_data=external,
        location="candidate.onnx.data",
        size_threshold=0,
    )
    return path


def complaint(call: Any) -> tuple[str, str]:
    with pytest.raises(UserError) as caught:
        call()
    return caught.value.finding.code, caught.value.finding.seen


@pytest.fixture(scope="module")
def janitor() -> Iterator[Janitor]:
    one = Janitor()
    yield one
    one.dismiss()


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_the_file_carries_its_record_inside_and_beside_it(tmp_path: Path, janitor: Janitor) -> None:
    with make_workshop(tmp_path / "out.onnx", janitor) as folder:
        record = deliver(folder, write_candidate(folder), tmp_path / "out.onnx", RECORD, WeightStorage())
    assert names(tmp_path) == ["out.fairway.json", "out.onnx"]
    inside = {p.key: p.value for p in onnx.load(tmp_path / "out.onnx").metadata_props}
    assert json.loads(inside["fairway"])["verdict"] == "verified"
    assert json.loads((tmp_path / "out.fairway.json").read_text()) == record.as_dict()


def test_a_weights_file_is_delivered_under_the_targets_name(tmp_path: Path, janitor: Janitor) -> None:
    with make_workshop(tmp_path / "out.onnx", janitor) as folder:
        record = deliver(
            folder, write_candidate(folder, external=True), tmp_path / "out.onnx", RECORD, WeightStorage("copy")
        )
    assert names(tmp_path) == ["out.fairway.json", "out.onnx", "out.onnx.data"]
    assert record.file.data.name == "out.onnx.data"
    assert onnx.load(tmp_path / "out.onnx").graph.initializer[0].raw_data == b"\1\2\3\4" * 4


def test_the_workshop_is_swept_also_after_an_error(tmp_path: Path, janitor: Janitor) -> None:
    def stopped() -> None:
        with make_workshop(tmp_path / "out.onnx", janitor) as folder:
            assert folder.name.startswith(".fairway-")
            write_candidate(folder)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert names(tmp_path) == []


@pytest.fixture
def full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk with room for a candidate of 64 kB, but not for two; a stand-in where mounting is not allowed."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "none", str(place)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        monkeypatch.setattr("onnx_ir.save", _no_room)
    yield place
    if mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _no_room(*args: object, **kwargs: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("external", [False, True], ids=["inside", "external"])
def test_a_full_disk_loses_nothing_and_leaves_nothing_behind(full_disk: Path, external: bool, janitor: Janitor) -> None:
    target = full_disk / "out.onnx"
    target.write_bytes(b"precious")
    with make_workshop(target, janitor) as folder:
        candidate = write_candidate(folder, 16_000, external)
        # Weights that lie in a checkpoint are streamed; those that were written beside a candidate would only be moved.
        links = {"candidate.onnx.data": str(folder / "candidate.onnx.data")} if external else {}
        stored = WeightStorage("copy" if external else "embed", links)
        seen = complaint(lambda: deliver(folder, candidate, target, RECORD, stored))
    assert seen == ("FW009", f"{target}: No space left on device")
    assert names(full_disk) == ["out.onnx"]
    assert target.read_bytes() == b"precious"


@pytest.mark.parametrize("name", ["out.onnx", "out.onnx.data", "out.fairway.json"])
def test_what_exists_is_not_replaced_unless_asked(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    assert complaint(lambda: check_target(tmp_path / "out.onnx", False)) == ("FW008", f"{tmp_path / name}")
    check_target(tmp_path / "out.onnx", True)


def test_a_dangling_link_counts_as_existing(tmp_path: Path) -> None:
    (tmp_path / "out.onnx").symlink_to("nowhere")
    assert complaint(lambda: check_target(tmp_path / "out.onnx", False)) == ("FW008", f"{tmp_path / 'out.onnx'}")


@pytest.mark.parametrize("name", ["out.onnx", "out.onnx.data", "out.fairway.json"])
def test_a_folder_is_never_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert complaint(lambda: check_target(tmp_path / "out.onnx", True)) == ("FW009", f"{tmp_path / name} is a folder")


def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out.onnx")
    seen = f"{tmp_path / 'out.onnx'} is a device or a pipe, and a file would take its place"
    assert complaint(lambda: check_target(tmp_path / "out.onnx", True)) == ("FW009", seen)


def test_a_missing_folder_and_an_impossible_one_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = tmp_path / "file"
    for place, why in (("no/where", "does not exist"), ("file/x", f"cannot exist, because {file} is a file")):
        target = tmp_path / place / "out.onnx"
        assert complaint(lambda t=target: check_target(t, True)) == ("FW009", f"the folder {target.parent} {why}")


def test_a_folder_in_which_nothing_can_be_made_is_refused(janitor: Janitor) -> None:
    def enter() -> None:
        with make_workshop(Path("/proc/out.onnx"), janitor):
            raise AssertionError("nothing can be made in /proc")

    assert complaint(enter) == ("FW009", "no file can be made in /proc: No such file or directory")
