"""A folder is delivered whole or not at all, and keeps what is not ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.convert.generation.folder_delivery import check_folder, deliver_folder
from fairway.diagnostics.errors import UserError
from fairway.workers import workshop
from fairway.workers.workshop import Janitor


@pytest.fixture(scope="module")
def janitor() -> Iterator[Janitor]:
    one = Janitor()
    yield one
    one.dismiss()


def make(root: Path, **files: str) -> Path:
    made = root / "made"
    made.mkdir()
    for name, text in files.items():
        (made / f"{name}.onnx").write_text(text)
    return made


def read(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_a_new_folder_comes_whole(tmp_path: Path, janitor: Janitor) -> None:
    deliver_folder(make(tmp_path, model="new"), tmp_path / "out", False, janitor)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert read(tmp_path / "out") == {"model.onnx": "new"}


def test_a_folder_that_is_there_keeps_what_is_not_ours(tmp_path: Path, janitor: Janitor) -> None:
    old = tmp_path / "out"
    old.mkdir()
    for name in ("model.onnx", "model.onnx.data", "tokenizer.json"):
        (old / name).write_text("old")
    deliver_folder(make(tmp_path, model="new", encoder_model="new"), old, True, janitor)
    assert read(old) == {"encoder_model.onnx": "new", "model.onnx": "new", "tokenizer.json": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_has_come_to_be_is_not_replaced(tmp_path: Path, janitor: Janitor) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/model.onnx").write_text("old")
    with pytest.raises(UserError, match=r"FW008: .*model\.onnx"):
        deliver_folder(make(tmp_path, model="new"), tmp_path / "out", False, janitor)
    assert read(tmp_path / "out") == {"model.onnx": "old"}


@pytest.mark.parametrize("new", [True, False])
def test_a_death_in_the_middle_is_finished_by_the_next_run(
    new: bool, tmp_path: Path, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    def die(committed: Path, beside: Path) -> None:
        raise Died

    out = tmp_path / "out"
    if not new:
        out.mkdir()
    made = make(tmp_path, model="new", decoder_model="new")
    with monkeypatch.context() as dying:
        dying.setattr(workshop, "_move_committed", die)
        dying.setattr(workshop.shutil, "rmtree", lambda *words, **named: None)
        with pytest.raises(Died):
            deliver_folder(made, out, True, janitor)
    assert not out.exists() or [p.name for p in out.glob("*.onnx")] == []
    beside = tmp_path if new else out
    with workshop.lock_folder(beside):
        workshop.recover_folder(beside)
    assert read(out) == {"decoder_model.onnx": "new", "model.onnx": "new"}


@pytest.mark.parametrize(
    ("place", "overwrite", "said"),
    [
        ("there", False, r"FW008: .*there/config\.json"),
        ("there", True, None),
        ("empty", False, None),
        ("new", False, None),
        ("file", True, "FW009: .*file is a file; the graphs go into a folder"),
        ("lost/new", False, "FW009: .*the folder .*lost does not exist"),
    ],
)
def test_what_could_not_be_written_is_refused_early(
    place: str, overwrite: bool, said: str | None, tmp_path: Path
) -> None:
    for name in ("there", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "there/config.json").touch()
    (tmp_path / "file").touch()
    if said is None:
        check_folder(tmp_path / place, overwrite)
        return
    with pytest.raises(UserError, match=said):
        check_folder(tmp_path / place, overwrite)
