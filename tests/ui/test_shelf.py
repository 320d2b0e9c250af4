"""A folder's records in short: what changed is noticed, links lead nowhere, strangers' words are text."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from fairway.record.progress import PROGRESS_FILE
from fairway.record.ui import folder_index as module
from fairway.record.ui.folder_index import FolderIndex
from fairway.workers.workshop import WORKSHOP_MARK, WORKSHOP_PREFIX
from records_made import HOSTILE, make_record, put


def rows(shelf: FolderIndex) -> dict[str, dict]:
    return {row["place"]: row for row in shelf.list_folder()["records"]}


def test_each_record_is_told_in_short(shelf_folder: Path) -> None:
    found = rows(FolderIndex(shelf_folder))
    assert set(found) == {"wrong.onnx", "right.onnx", "older/changed.onnx", "hostile.onnx", "bad.onnx"}
    wrong = found["wrong.onnx"]
    assert wrong["verdict"] == "wrong"
    assert (wrong["samples"], wrong["worst"], wrong["route"]) == ("12 of 18", "2.5e+03", "trace")
    assert (wrong["domain"], wrong["findings"]) == ("batch 1..8, time 1..400", "FW414, FW206")
    assert (found["right.onnx"]["file"], found["older/changed.onnx"]["file"]) == ("as recorded", "changed")
    assert (found["bad.onnx"]["verdict"], "not JSON" in found["bad.onnx"]["note"]) == ("unreadable", True)
    assert "\u202e" not in json.dumps(found["hostile.onnx"], ensure_ascii=False)
    assert len(max(map(str, found["hostile.onnx"].values()), key=len)) < len(HOSTILE[-1])


def test_what_happens_in_the_folder_is_seen_at_the_next_look(shelf_folder: Path) -> None:
    shelf = FolderIndex(shelf_folder)
    before = rows(shelf)
    put(shelf_folder, "new.onnx", make_record(verdict="unproven"))
    (shelf_folder / "right.onnx").write_bytes(b"changed")
    (shelf_folder / "wrong.onnx").unlink()
    (shelf_folder / "bad.fairway.json").unlink()
    after = rows(shelf)
    assert after["new.onnx"]["verdict"] == "unproven"
    assert (after["right.onnx"]["file"], after["wrong.onnx"]["file"]) == ("changed", "missing")
    assert after["right.onnx"]["key"] == before["right.onnx"]["key"]
    assert "bad.onnx" not in after


def test_a_record_is_read_once_while_it_does_not_change(shelf_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = FolderIndex(shelf_folder)
    shelf.list_folder()
    monkeypatch.setattr(module, "read_overview", lambda path: pytest.fail(f"{path} is read again"))
    assert len(shelf.list_folder()["records"]) == 5


def test_a_slow_look_is_not_repeated_at_once(shelf_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOW_LISTING_SECONDS", 0.0)
    monkeypatch.setattr(module, "PAUSE_PER_SECOND", 1000)
    shelf = FolderIndex(shelf_folder)
    before = shelf.list_folder()
    (shelf_folder / "bad.fairway.json").unlink()
    assert shelf.list_folder() is before
    monkeypatch.setattr(module, "SLOW_LISTING_SECONDS", 1000.0)
    assert len(shelf.list_folder()["records"]) == 4


def test_links_and_hidden_folders_are_left_alone(shelf_folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    put(outside, "secret.onnx", make_record())
    (shelf_folder / "linked").symlink_to(outside)
    (shelf_folder / "one.fairway.json").symlink_to(outside / "secret.fairway.json")
    (shelf_folder / ".hidden").mkdir()
    put(shelf_folder / ".hidden", "h.onnx", make_record())
    os.mkfifo(shelf_folder / "pipe.fairway.json")
    assert len(rows(FolderIndex(shelf_folder))) == 5


def test_files_that_there_was_no_time_to_hash_say_so(shelf_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HASH_SECONDS", -1.0)
    assert rows(FolderIndex(shelf_folder))["right.onnx"]["file"] == "not yet looked at"


def test_a_large_file_keeps_nobody_waiting(shelf_folder: Path) -> None:
    with (shelf_folder / "right.onnx").open("r+b") as file:
        file.truncate(2**40)  # a hole: it takes no room
    began = time.monotonic()
    assert rows(FolderIndex(shelf_folder))["right.onnx"]["file"] == "too large"
    assert time.monotonic() - began < 5


def test_of_too_many_the_newest_are_listed_and_the_rest_counted(
    shelf_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_RECORDS", 2)
    os.utime(shelf_folder / "right.fairway.json", (time.time() + 9, time.time() + 9))
    found = FolderIndex(shelf_folder).list_folder()
    assert (len(found["records"]), found["left_out"]) == (2, 3)
    assert found["records"][0]["place"] == "right.onnx"


def at_work(folder: Path, said: object, mark: bool = True) -> FolderIndex:
    shop = folder / f"{WORKSHOP_PREFIX}abc"
    shop.mkdir(exist_ok=True)
    if mark:
        (shop / WORKSHOP_MARK).touch()
    (shop / PROGRESS_FILE).write_text(said if isinstance(said, str) else json.dumps(said))
    return FolderIndex(folder)


RUNNING = {
    "format": 2,
    "pid": os.getpid(),
    "target": "net.onnx",
    "model": "net",
    "now": 2.0,
    "started_at": 1.0,
    "route": "trace",
    "count": {"done": 3, "total": 9, "unit": "samples"},
}


def test_an_export_at_work_is_listed_and_a_dead_one_is_known(tmp_path: Path) -> None:
    (one,) = at_work(tmp_path, RUNNING).list_folder()["running"]
    assert (one["model"], one["route"], one["alive"]) == ("net", "trace", True)
    assert (one["count"]["done"], one["count"]["total"]) == (3, 9)
    (one,) = at_work(tmp_path, {**RUNNING, "pid": 2**22 + 1}).list_folder()["running"]
    assert one["alive"] is False


@pytest.mark.parametrize(
    "said",
    [
        "",
        "{",
        "[]",
        {**RUNNING, "format": 1},
        {**RUNNING, "finished": 3},
        {**RUNNING, "finished": [{"seconds": "x"}]},
        {**RUNNING, "pid": "1"},
        {**RUNNING, "count": {"done": 1e300, "total": -1, "unit": ["x"]}},
        {**RUNNING, "now": "soon"},
        json.dumps(RUNNING).replace("2.0", "1e999"),
        "9" * 2**21,
    ],
)
def test_nonsense_in_a_workshop_is_not_listed(tmp_path: Path, said: object) -> None:
    assert at_work(tmp_path, said).list_folder()["running"] == []


def test_odd_numbers_in_a_workshop_do_no_harm(tmp_path: Path) -> None:
    odd = {**RUNNING, "pid": 10**30, "count": {"done": 10**30, "total": -1, "unit": "x" * 9000}}
    json.dumps(at_work(tmp_path, odd).list_folder(), allow_nan=False)


def test_a_folder_that_is_only_called_like_a_workshop_is_left_alone(tmp_path: Path) -> None:
    assert at_work(tmp_path, RUNNING, mark=False).list_folder()["running"] == []
