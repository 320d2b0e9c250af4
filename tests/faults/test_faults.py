"""Whatever happens, and whenever: the old file or the new one is whole, nothing else is left, the next run works."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from killing import Apart, Moment, Tagged, at, export_tagged, kill_at, left_in, orphans_come_here, strays, tag_of, wrap
from moments import DELIVERING, MOMENTS
from safetensors.torch import load_file, save_file

import fairway
from fairway.workers import workshop

OLD, NEW = 1.0, 2.0


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    with orphans_come_here():
        yield
        assert strays() == set()


class Place:
    """A folder to export to, and one for temporary files."""

    def __init__(self, root: Path) -> None:
        self.folder, self.temporary = root / "folder", root / "temporary"
        self.folder.mkdir(exist_ok=True)
        self.temporary.mkdir()

    def run(self, tag: float, moment: Moment | None = None, **more: Any) -> tuple[int | None, Any]:
        return self.start(tag, moment, **more).wait()

    def start(self, tag: float, moment: Moment | None = None, **more: Any) -> Apart:
        def work() -> str:
            if moment is not None:
                kill_at(moment)
            return export_tagged(self.folder, tag, **more)

        return Apart(work, self.temporary)

    def settled(self) -> float | None:
        """Return the files that remain once every process has ended. Fails if there are others."""
        assert strays() == set()
        assert left_in(self.temporary) == set()
        return tag_of(self.folder)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_there_are_thirty_moments_and_no_two_are_alike() -> None:
    assert len(set(MOMENTS)) == len(MOMENTS) >= 30


@pytest.fixture(scope="module")
def old_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = Place(tmp_path_factory.mktemp("old"))
    assert place.run(OLD) == (None, "verified")
    return place.folder


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_kill_9_leaves_the_old_file_or_the_new(place: Place, moment: Moment, old_set: Path) -> None:
    shutil.copytree(old_set, place.folder, dirs_exist_ok=True)
    died, said = place.run(NEW, moment)
    found = place.settled()
    if moment.victim == "export":
        assert died == signal.SIGKILL, "the moment was never reached"
        assert found in (OLD, NEW)
    else:
        # A file whose judge was killed is unproven, and says so.
        assert (died, said, found) in ((None, "failed", OLD), (None, "unproven", NEW))
    assert place.run(NEW + 1) == (None, "verified")
    assert place.settled() == NEW + 1


@pytest.mark.parametrize("moment", DELIVERING, ids=str)
def test_kill_9_leaves_nothing_or_the_new_file(place: Place, moment: Moment) -> None:
    died, _ = place.run(NEW, moment, overwrite=False)
    assert died == signal.SIGKILL, "the moment was never reached"
    assert place.settled() in (None, NEW)


def test_what_was_committed_arrives_although_its_maker_and_the_janitor_die(place: Place) -> None:
    assert place.run(OLD) == (None, "verified")

    def work() -> str:
        wrap("fairway.workers.workshop:Janitor.watch", lambda real: lambda *told: None)
        kill_at(Moment("fairway.workers.workshop:os.replace", "after", 2))
        return export_tagged(place.folder, NEW)

    assert Apart(work, place.temporary).wait()[0] == signal.SIGKILL
    assert strays() == set()
    assert any(name.startswith(workshop.WORKSHOP_PREFIX) for name in left_in(place.folder)), (
        "torn, and not recovered yet"
    )
    workshop.recover_folder(place.folder)
    assert place.settled() == NEW


def test_the_next_run_sweeps_what_a_dead_one_left(place: Place) -> None:
    def work() -> str:
        wrap("fairway.workers.workshop:Janitor.watch", lambda real: lambda *told: None)
        kill_at(Moment("fairway.record.delivery:commit_files"))
        return export_tagged(place.folder, OLD)

    assert Apart(work, place.temporary).wait()[0] == signal.SIGKILL
    assert len(left_in(place.folder)) == 1
    assert place.run(NEW) == (None, "verified")
    assert place.settled() == NEW


LINKED = tuple(
    Moment(place, when)
    for place, when in (
        ("fairway.model.weight_storage:ir.save", "before"),
        ("fairway.model.weight_storage:ir.save", "after"),
        ("fairway.convert.ladder.judge_worker:gather_evidence", "before"),
        ("fairway.convert.export:build_record", "after"),
        ("fairway.record.delivery:commit_files", "before"),
        ("fairway.workers.workshop:_move_committed", "after"),
        ("fairway.workers.workshop:shutil.rmtree", "before"),
    )
)
"""Moments at which a candidate that links to a checkpoint is, or may be, next to the workshop."""


def export_linked(folder: Path) -> str:
    path = folder / "net.safetensors"
    if not path.exists():
        save_file({"weight": torch.full((2048,), NEW)}, path)
    model = Tagged(OLD)
    model.weight = torch.nn.Parameter(load_file(path)["weight"], requires_grad=False)
    return fairway.export(
        model,
        ["x: float32[batch, 2048]"],
        folder / "out.onnx",
        bounds={"batch": (1, 4)},
        level="quick",
        weights="link",
        overwrite=True,
        routes=["export-dynamic"],
    ).verdict


@pytest.mark.parametrize("janitor", [True, False], ids=["janitor", "next-run"])
@pytest.mark.parametrize("moment", LINKED, ids=str)
def test_kill_9_leaves_the_checkpoint_and_a_whole_linked_file_or_none(
    place: Place, moment: Moment, janitor: bool
) -> None:
    def work() -> str:
        if not janitor:
            wrap("fairway.workers.workshop:Janitor.watch", lambda real: lambda *told: None)
        kill_at(moment)
        return export_linked(place.folder)

    assert Apart(work, place.temporary).wait()[0] == signal.SIGKILL, "the moment was never reached"
    assert strays() == set()
    whole = {"net.safetensors", "out.onnx", "out.fairway.json"}
    if janitor:
        assert left_in(place.folder) in ({"net.safetensors"}, whole)
    assert Apart(lambda: export_linked(place.folder), place.temporary).wait() == (None, "verified")
    assert left_in(place.folder) == whole


def test_a_folder_that_only_bears_such_a_name_is_left_alone(place: Place) -> None:
    (place.folder / ".fairway-notes").mkdir()
    (place.folder / ".fairway-notes" / "dear.txt").write_text("diary")
    assert place.run(NEW) == (None, "verified")
    assert (place.folder / ".fairway-notes" / "dear.txt").read_text() == "diary"


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "..", ""])
def test_a_commit_cannot_name_a_place_elsewhere(place: Place, name: str) -> None:
    committed = place.folder / ".fairway-x" / workshop.COMMIT
    committed.mkdir(parents=True)
    (place.folder / ".fairway-x" / workshop.WORKSHOP_MARK).touch()
    (place.folder / ".fairway-x" / "escaped").touch()
    (place.folder / "keep").touch()
    (committed / workshop.MANIFEST).write_text(f'{{"move": ["{name}"], "remove": ["keep"]}}')
    workshop.recover_folder(place.folder)
    assert left_in(place.folder) == {"keep"}


def test_what_a_worker_had_started_ends_with_a_killed_export(place: Place) -> None:
    def work() -> str:
        def around(real: Any) -> Any:
            def started(*args: Any) -> Any:
                subprocess.Popen(["sleep", "300"])
                return real(*args)

            return started

        wrap("fairway.convert.ladder.walk_rung:capture", around)
        kill_at(Moment("fairway.model.weight_storage:ir.save"))
        return export_tagged(place.folder, NEW)

    assert Apart(work, place.temporary).wait()[0] == signal.SIGKILL
    assert place.settled() is None


def test_two_processes_that_export_to_one_path_leave_one_whole_set(place: Place) -> None:
    for round_ in range(4):
        tags = [10.0 * round_ + n for n in range(1, 4)]
        running = [place.start(tag) for tag in tags]
        assert [one.wait() for one in running] == [(None, "verified")] * 3
        assert place.settled() in tags


def test_without_overwrite_one_of_two_wins_and_the_other_is_told(place: Place) -> None:
    running = [place.start(tag, overwrite=False) for tag in (1.0, 2.0, 3.0)]
    said = [one.wait()[1] for one in running]
    assert sorted(s.partition(":")[0] for s in said) == ["FW008", "FW008", "verified"]
    assert place.settled() == 1.0 + said.index("verified")


def test_a_race_with_kills_leaves_one_whole_set(place: Place) -> None:
    assert place.run(OLD) == (None, "verified")
    moments = [Moment("fairway.workers.workshop:os.replace", "after", n) for n in (2, 3)]
    running = [place.start(NEW + n, moment) for n, moment in enumerate([*moments, None])]
    died = [one.wait() for one in running]
    assert [number for number, _ in died] == [signal.SIGKILL, signal.SIGKILL, None]
    assert place.settled() in (NEW, NEW + 1, NEW + 2)


def test_a_folder_whose_lock_is_never_given_back_is_a_complaint(place: Place) -> None:
    def work() -> str:
        workshop.LOCK_TIMEOUT_SECONDS = 0.3
        return export_tagged(place.folder, NEW)

    with workshop.lock_folder(place.folder):
        said = Apart(work, place.temporary).wait()[1]
    assert said.startswith("FW009")
    assert "another process has held the lock of this folder for 0.3 s" in said
    assert place.settled() is None


def test_a_worker_that_hangs_with_a_lock_in_its_hands_is_ended(place: Place) -> None:
    def work() -> str:
        def hang() -> None:
            with workshop.lock_folder(place.folder):
                time.sleep(300)

        at(Moment("fairway.convert.ladder.walk_rung:capture"), hang)
        return export_tagged(place.folder, NEW, timeout=1.0)

    assert Apart(work, place.temporary).wait() == (None, "failed")
    assert place.settled() is None
    assert place.run(NEW) == (None, "verified")


@pytest.mark.parametrize(
    "victim", ["fairway.convert.ladder.walk_rung:capture", "fairway.convert.ladder.judge_worker:gather_evidence"]
)
def test_a_worker_out_of_memory_is_a_result(place: Place, victim: str) -> None:
    assert place.run(OLD) == (None, "verified")

    def work() -> str:
        def eat() -> None:
            held = []
            while True:
                held.append(torch.ones(1 << 22))
                time.sleep(0.005)

        at(Moment(victim), eat)
        return export_tagged(place.folder, NEW, memory=_resident() + 300 * 2**20)

    died, said = Apart(work, place.temporary).wait()
    assert died is None
    assert (said, place.settled()) in (("failed", OLD), ("unproven", NEW))
    assert place.run(NEW) == (None, "verified")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("jump", [-3.0e7, 3.0e7, -2.0e9], ids=["a-year-back", "a-year-on", "before-1970"])
def test_a_clock_that_jumps_changes_nothing(place: Place, jump: float) -> None:
    """The clock of the day; a monotonic clock does not jump."""

    def work() -> str:
        real = time.time

        def leap() -> None:
            time.time = lambda: real() + jump

        at(Moment("fairway.convert.ladder.first_look:look_at_model"), leap)
        at(Moment("fairway.convert.export:build_record"), leap)
        return export_tagged(place.folder, NEW)

    assert Apart(work, place.temporary).wait() == (None, "verified")
    assert place.settled() == NEW


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Place]:
    root = tmp_path / "disk"
    (root / "folder").mkdir(parents=True)
    mounting = ["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(root / "folder")]
    if subprocess.run(mounting, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here; tests/test_deliver.py has a stand-in")
    yield Place(root)
    subprocess.run(["umount", "-l", str(root / "folder")], check=True)


def test_a_disk_that_fills_up_at_any_write_leaves_the_old_file(small_disk: Place) -> None:
    folder = small_disk.folder
    assert small_disk.run(OLD) == (None, "verified")
    seen = set()
    for room in range(0, 100_000, 4096):
        _fill(folder / "filler", room)
        died, said = small_disk.run(NEW)
        (folder / "filler").unlink()
        seen.add(said.partition(":")[0])
        assert died is None
        assert small_disk.settled() == (NEW if said == "verified" else OLD)
        if said == "verified":
            break
    assert seen == {"FW009", "verified"}, "full at first, enough in the end"


def _fill(path: Path, room: int) -> None:
    """Leaves `room` bytes free."""
    free = os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_bsize
    path.write_bytes(b"\0" * max(free - room, 0))


def test_a_folder_that_becomes_read_only_keeps_the_old_file(small_disk: Place) -> None:
    assert small_disk.run(OLD) == (None, "verified")

    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(small_disk.folder)], check=True)

    def work() -> str:
        at(Moment("fairway.record.delivery:commit_files"), lambda: remount("ro"))
        return export_tagged(small_disk.folder, NEW)

    died, said = Apart(work, small_disk.temporary).wait()
    remount("rw")
    assert (died, said.partition(":")[0]) == (None, "FW009")
    assert small_disk.run(NEW) == (None, "verified")
    assert small_disk.settled() == NEW
