"""Whatever happens to an attempt is one outcome, and no process outlives the work."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import gc
import io
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest
import torch  # noqa: F401  # as in every caller: children are forked with it, and need not import it each

from fairway.diagnostics import Where
from fairway.diagnostics.errors import complain
from fairway.workers.attempt import Limits, Outcome, Workers

ROOT = Path(__file__).resolve().parents[2]
Tell = Callable[[Any], None]


def children() -> set[int]:
    """Every process below this one, zombies too."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    todo = [os.getpid()]
    while todo:
        for child in parents.get(todo.pop(), ()):
            found.add(child)
            todo.append(child)
    return found


def opened() -> set[tuple[str, str]]:
    """This process's open files: their numbers, and what they are."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one by which they are listed
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
    return found


def alive(pid: int) -> bool:
    """Running; a zombie that its new parent has not reaped yet is not."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: set[int], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(alive(pid) for pid in pids)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Each test ends with the processes and open files that it began with; other threads may hold one for a moment."""
    before, files = children(), opened()
    yield
    assert children() - before == set()
    end = time.monotonic() + 5
    while opened() - files and time.monotonic() < end:
        time.sleep(0.05)
    assert opened() - files == set()


def segfault(tell: Tell) -> None:
    faulthandler.disable()  # pytest's own, which would write to the terminal
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def run(work: Callable[[Tell], Any], seconds: float = 30.0, memory: int = 0) -> Outcome:
    with Workers(Limits(seconds, memory)) as workers:
        return workers.run(work)


def test_what_the_work_returns_comes_home() -> None:
    outcome = run(lambda tell: {"answer": 42, "pid": os.getpid()})
    assert outcome.status == "done"
    assert outcome.value["answer"] == 42
    assert outcome.value["pid"] != os.getpid()
    assert outcome.failure is None
    assert outcome.peak_bytes > 0


def test_output_of_a_worker_stays_with_it_in_a_notebook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a notebook, whose streams send what a forked process says to its parent."""
    ours, theirs = os.pipe()

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            return os.write(theirs, text.encode())

    monkeypatch.setattr(sys, "stdout", Stream())
    monkeypatch.setattr(sys, "stderr", Stream())

    def work(tell: Any) -> int:
        print("much ado")
        print("about nothing", file=sys.stderr)
        return 1

    with Workers(Limits()) as workers:
        outcome = workers.run(work)
    os.close(theirs)
    assert os.read(ours, 1000) == b""
    os.close(ours)
    assert outcome.value == 1


def test_messages_are_heard_in_order_before_the_outcome() -> None:
    heard: list[Any] = []

    def work(tell: Tell) -> str:
        for number in range(50):
            tell(("step", number))
        return "end"

    with Workers(Limits()) as workers:
        assert workers.run(work, heard.append).value == "end"
    assert heard == [("step", number) for number in range(50)]


def test_what_the_work_breaks_touches_nobody_else() -> None:
    here = {"model": "whole"}

    def work(tell: Tell) -> dict[str, str]:
        here["model"] = "broken"
        os.chdir("/")
        return here

    folder = os.getcwd()
    assert run(work).value == {"model": "broken"}
    assert here == {"model": "whole"}
    assert os.getcwd() == folder


def test_an_exception_comes_home_as_text_with_its_frames() -> None:
    def inner() -> None:
        raise ValueError("no such size")

    def work(tell: Tell) -> None:
        try:
            inner()
        except ValueError as error:
            raise RuntimeError("the export failed") from error

    outcome = run(work)
    assert (outcome.status, outcome.value) == ("raised", None)
    failure = outcome.failure
    assert failure is not None
    assert (failure.kind, failure.message, failure.cause) == (
        "RuntimeError",
        "the export failed",
        "ValueError: no such size",
    )
    line = inner.__code__.co_firstlineno + 1
    assert Where(__file__, line, "inner", 'raise ValueError("no such size")') in failure.frames
    assert failure.text.endswith("RuntimeError: the export failed\n")


def test_a_finding_comes_home_as_itself() -> None:
    def work(tell: Tell) -> None:
        raise complain("FW208", "forward returned None")

    failure = run(work).failure
    assert failure is not None
    assert failure.finding is not None
    assert (failure.finding.code, failure.finding.seen) == ("FW208", "forward returned None")


@pytest.mark.parametrize(
    "error", [SystemExit(0), KeyboardInterrupt(), MemoryError("out")], ids=lambda error: type(error).__name__
)
def test_what_is_no_plain_exception_comes_home_too(error: BaseException) -> None:
    def work(tell: Tell) -> None:
        raise error

    outcome = run(work)
    assert outcome.status == "raised"
    assert outcome.failure is not None
    assert outcome.failure.kind == type(error).__name__


def test_an_answer_that_cannot_be_sent_is_an_exception() -> None:
    outcome = run(lambda tell: lambda: None)
    assert outcome.status == "raised"
    assert outcome.failure is not None
    assert "pickle" in outcome.failure.message


def test_a_segmentation_fault_is_a_death_with_its_signal() -> None:
    outcome = run(segfault)
    assert (outcome.status, outcome.signal, outcome.value) == ("died", signal.SIGSEGV, None)


def test_a_process_that_is_killed_is_a_death_with_its_signal() -> None:
    outcome = run(lambda tell: os.kill(os.getpid(), signal.SIGKILL))
    assert (outcome.status, outcome.signal) == ("died", signal.SIGKILL)


def test_a_process_that_exits_without_a_result_died_without_signal() -> None:
    outcome = run(lambda tell: os._exit(7))
    assert (outcome.status, outcome.signal) == ("died", None)


def test_a_hang_is_stopped_at_the_time_limit() -> None:
    started = time.monotonic()
    outcome = run(lambda tell: time.sleep(60), seconds=0.4)
    assert outcome.status == "timeout"
    assert 0.4 <= outcome.seconds < 5
    assert time.monotonic() - started < 10


def test_a_hang_that_blocks_signals_is_stopped() -> None:
    def work(tell: Tell) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(60)

    assert run(work, seconds=0.4).status == "timeout"


def test_a_hang_that_keeps_talking_is_stopped_at_the_time_limit() -> None:
    def work(tell: Tell) -> None:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            tell("still here")

    assert run(work, seconds=0.4).status == "timeout"


def test_memory_past_the_limit_ends_the_attempt() -> None:
    limit = _resident() + 200 * 2**20

    def work(tell: Tell) -> int:
        held = []
        for _ in range(200):
            held.append(b"\1" * (20 * 2**20))
            time.sleep(0.01)
        return len(held)

    outcome = run(work, memory=limit)
    assert outcome.status == "memory"
    assert limit < outcome.peak_bytes < limit + 2**30


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_garbage_on_standard_output_and_error_goes_to_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    def work(tell: Tell) -> str:
        os.write(1, b"\xff\x00 bytes that are no text\n")
        os.system("echo from a shell; echo complaints >&2")
        return "fine"

    outcome = run(work)
    assert (outcome.status, outcome.value) == ("done", "fine")
    assert "bytes that are no text" in outcome.log
    assert "from a shell\ncomplaints\n" in outcome.log
    assert capfd.readouterr() == ("", "")


def test_the_end_of_a_long_log_is_kept() -> None:
    def work(tell: Tell) -> None:
        os.write(2, b"x" * 100_000 + b"\nthe last words\n")
        segfault(tell)

    outcome = run(work)
    assert (outcome.status, outcome.signal) == ("died", signal.SIGSEGV)
    assert outcome.log.endswith("\nthe last words\n")
    assert len(outcome.log) <= 4000


def test_reading_standard_input_finds_its_end_at_once() -> None:
    assert run(lambda tell: os.read(0, 10), seconds=5).value == b""


def test_jobs_run_beside_each_other_and_each_keeps_its_own_outcome() -> None:
    started = time.monotonic()
    with Workers(Limits(30)) as workers:
        slow = workers.start(lambda tell: time.sleep(1) or "slow")
        dead = workers.start(segfault)
        assert workers.wait(slow).value == "slow"
        assert workers.wait(dead).status == "died"
    assert time.monotonic() - started < 10


def test_a_dropped_job_is_ended() -> None:
    with Workers(Limits(60)) as workers:
        before = children()
        job = workers.start(lambda tell: time.sleep(60))
        (pid,) = children() - before
        workers.drop(job)
        assert not alive(pid)
        assert workers.run(lambda tell: 3).value == 3


def test_leaving_the_block_ends_every_process_also_on_an_error() -> None:
    before = children()

    def stopped() -> None:
        with Workers(Limits(60)) as workers:
            janitor = children()
            workers.start(lambda tell: time.sleep(60))
            workers.start(lambda tell: time.sleep(60))
            assert len(children() - janitor) == 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert children() == before


def test_processes_that_the_work_started_end_with_it() -> None:
    def work(tell: Tell) -> int:
        return subprocess.Popen(["sleep", "60"]).pid

    grandchild = run(work).value
    assert gone({grandchild})

    def hang(tell: Tell) -> None:
        tell(subprocess.Popen(["sleep", "60"]).pid)
        time.sleep(60)

    heard: list[int] = []
    with Workers(Limits(0.5)) as workers:
        assert workers.run(hang, heard.append).status == "timeout"
    assert gone(set(heard))


def test_a_message_cut_off_by_a_hang_does_not_hang_the_parent() -> None:
    write = os.write

    def half(pipe: int, message: Any) -> int:
        write(pipe, bytes(message[:20]))
        time.sleep(60)
        return 0

    def work(tell: Tell) -> None:
        os.write = half
        tell("a message of more than twenty bytes")

    assert run(work, seconds=0.4).status == "timeout"


def test_a_process_that_closes_everything_and_stays_is_ended() -> None:
    def work(tell: Tell) -> None:
        os.closerange(3, 256)
        time.sleep(60)

    started = time.monotonic()
    outcome = run(work, seconds=30)
    assert (outcome.status, outcome.signal) == ("died", signal.SIGKILL)
    assert time.monotonic() - started < 20


def test_a_flood_that_is_no_message_is_a_death() -> None:
    write = os.write

    def flood(pipe: int, message: Any) -> int:
        while True:
            write(pipe, b"\xff" * 65536)

    def work(tell: Tell) -> None:
        os.write = flood
        tell("a message")

    assert run(work, seconds=30).status == "died"


def test_a_hang_that_holds_a_lock_is_stopped(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)

    def work(tell: Tell) -> None:
        mine = os.open(tmp_path / "lock", os.O_RDWR)
        fcntl.flock(mine, fcntl.LOCK_EX)
        time.sleep(60)

    assert run(work, seconds=0.4).status == "timeout"
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)


def test_a_lock_held_at_the_fork_ends_in_a_timeout() -> None:
    lock = threading.Lock()

    def work(tell: Tell) -> str:
        with lock:  # held by a thread that does not exist in the child
            return "never"

    with lock:
        assert run(work, seconds=0.4).status == "timeout"
    assert run(work, seconds=30).value == "never"


def test_processes_started_by_work_that_died_end_too() -> None:
    heard: list[int] = []

    def work(tell: Tell) -> None:
        tell(subprocess.Popen(["sleep", "60"]).pid)
        segfault(tell)

    with Workers(Limits(30)) as workers:
        assert workers.run(work, heard.append).status == "died"
    try:
        assert gone(set(heard), 2)
    finally:
        for pid in heard:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


# The whole command


RECIPE = """\
import time
import torch
import fairway


class Slow(torch.nn.Module):
    def forward(self, x):
        if torch.jit.is_tracing():
            open("tracing", "w").close()
            time.sleep(120)
        return x + 1


slow = fairway.Recipe(Slow, ["x: float32[batch, 3]"])
"""


@pytest.fixture
def exporting(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], set[int]]]:
    """A real `fairway export`, stopped in the middle of a capture, with the processes it has started."""
    (tmp_path / "recipe.py").write_text(RECIPE)
    before = children()  # of other tests, such as the process that docs' commands are forked from
    command = [
        sys.executable,
        "-m",
        "fairway",
        "export",
        "recipe.py",
        "-o",
        "out.onnx",
        "--level",
        "quick",
        "--route",
        "trace",
    ]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        start_new_session=True,
        # Tests that run in the background inherit a ctrl-c that is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    end = time.monotonic() + 90
    while not (tmp_path / "tracing").exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    started = children() - before - {process.pid}
    assert (tmp_path / "tracing").exists()
    assert list(tmp_path.glob(".fairway-*")) != []
    assert started != set()
    yield process, started
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "kill"])
def test_stopping_an_export_leaves_no_process_no_folder_and_no_half_file(
    exporting: tuple[subprocess.Popen[str], set[int]], tmp_path: Path, number: signal.Signals
) -> None:
    process, started = exporting
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "stopped; nothing was left behind\n")
    assert gone(started)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "__pycache__") == ["recipe.py", "tracing"]


def test_killing_the_parent_outright_leaves_no_child(
    exporting: tuple[subprocess.Popen[str], set[int]], tmp_path: Path
) -> None:
    process, started = exporting
    process.kill()
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert gone(started)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "__pycache__") == ["recipe.py", "tracing"]


def test_garbage_of_the_parent_does_not_stop_a_worker() -> None:
    """Collected in a fork, it would wait for threads that are not there."""
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[n] x) => (float[n] y) { y = Relu(x) }'
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 3
    gc.disable()
    try:
        circle: list[Any] = [onnxruntime.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), options)]
        circle[0].run(None, {"x": np.ones(3, np.float32)})
        circle.append(circle)
        del circle
        time.sleep(0.5)  # its threads go to sleep
        with Workers(Limits(30.0)) as workers:
            outcome = workers.run(lambda tell: gc.collect() >= 0)
    finally:
        gc.enable()
    assert outcome.status == "done"
