"""Each attempt runs in a process of its own; whatever happens to it is a result, not an end.

The process is forked, so it starts warm (every import is there) and owns a private copy of the model: what it patches,
seeds or breaks touches nobody else. It gets one thread, because OpenMP's thread pools do not survive a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import pickle
import resource
import select
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from fairway.diagnostics import Finding, Where
from fairway.diagnostics.errors import UserError
from fairway.workers.staging import Janitor

Status = Literal["done", "raised", "timeout", "memory", "died"]
Work = Callable[[Callable[[Any], None]], Any]
"""What runs apart. It is handed `tell`, which sends a message home."""

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 1.0
"""How long a process that has closed its pipe may take to die by itself, so that its own signal is seen."""
_LOG_TAIL = 4000
_LENGTH = struct.Struct("<Q")
_LONGEST = 1 << 30
"""No message is longer; what says that it is, is garbage."""


@dataclass(frozen=True)
class Limits:
    """How long one attempt may take, and how much memory it may hold."""

    seconds: float = 600.0
    bytes: int = 0
    """0 stands for nine tenths of the memory that is free when the attempt starts."""

    def memory(self) -> int:
        return self.bytes or int(0.9 * _available_memory())


@dataclass(frozen=True)
class Failure:
    """An exception, carried over from another process as text and frames."""

    kind: str
    message: str
    frames: tuple[Where, ...]
    text: str
    finding: Finding | None = None
    cause: str = ""
    """Kind and message of the exceptions behind it, innermost last."""
    questions: tuple[Any, ...] = ()
    """The questions about sizes that torch.export had answered before, if it was torch.export."""


@dataclass(frozen=True)
class Outcome:
    status: Status
    seconds: float
    peak_bytes: int
    value: Any = None
    failure: Failure | None = None
    signal: int | None = None
    log: str = ""


@dataclass
class WorkerJob:
    """A function that runs apart, and what has been heard of it so far."""

    work: Work
    heard: Callable[[Any], None]
    limits: Limits
    outcome: Outcome | None = None


class Workers:
    """The processes at work. Leaving the block ends every one of them, also on Ctrl-C; a janitor does on kill -9."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.tick: Callable[[], None] = lambda: None
        """Called many times a second while somebody waits here, so that whoever shows progress can show that."""
        self._running: list[_Running] = []

    def __enter__(self) -> Workers:
        self.janitor = Janitor()
        return self

    def __exit__(self, *exception: object) -> None:
        for running in self._running:
            running.end()
        self.janitor.dismiss()

    def start(
        self, work: Work, heard: Callable[[Any], None] = lambda message: None, limits: Limits | None = None
    ) -> WorkerJob:
        """Starts a function apart. It is handed `tell`, which sends a message to `heard` on this side."""
        job = WorkerJob(work, heard, limits or self.limits)
        self._running.append(_Running(job, self.janitor))
        return job

    def wait(self, job: WorkerJob) -> Outcome:
        """Waits for one job while looking after all."""
        while job.outcome is None:
            alive = list(self._running)
            pipes = select.poll()
            for r in alive:
                pipes.register(r.pipe, select.POLLIN)
            ready = {pipe for pipe, _ in pipes.poll(1000 * _POLL_SECONDS)}
            self.tick()
            for r in alive:
                r.look(r.pipe in ready)
                if r.job.outcome is not None:
                    self._forget(r)
        return job.outcome

    def drop(self, job: WorkerJob) -> None:
        """Ends a job whose answer is no longer wanted."""
        for running in [r for r in self._running if r.job is job]:
            self._forget(running)

    def _forget(self, running: _Running) -> None:
        running.end()
        self._running.remove(running)

    def run(
        self, work: Work, heard: Callable[[Any], None] = lambda message: None, limits: Limits | None = None
    ) -> Outcome:
        return self.wait(self.start(work, heard, limits))


class _Running:
    def __init__(self, job: WorkerJob, janitor: Janitor) -> None:
        self.job = job
        self.started = time.monotonic()
        self.peak = 0
        self.memory = job.limits.memory()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `end`
        self.janitor = janitor
        self.pipe, theirs = os.pipe()
        os.set_blocking(self.pipe, False)
        self.read = bytearray()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            _child(job.work, theirs, self.log.fileno(), parent, janitor)
        os.close(theirs)

    def look(self, ready: bool) -> None:
        if ready:
            ended = self._receive()
            for kind, payload in self._messages():
                if kind == "garbage":
                    self._kill()
                    ended = True
                elif kind == "tell":
                    self.job.heard(payload)
                else:
                    self._finish(kind, payload)
                    return
            if ended:
                self._died()
                return
        self.peak = max(self.peak, _resident(self.pid))
        if self.peak > self.memory:
            self._finish("memory", None)
        elif time.monotonic() - self.started > self.job.limits.seconds:
            self._finish("timeout", None)

    def _receive(self) -> bool:
        """Takes what is there, never waiting for more: a message may be cut off by a hang. True at the end."""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self.pipe, 1 << 20):
                self.read += part
                if len(self.read) > 1 << 24:
                    return False
            return True
        return False

    def _messages(self) -> Iterator[tuple[Any, Any]]:
        while len(self.read) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self.read)
            if len(self.read) < _LENGTH.size + size <= _LONGEST:
                return
            whole = bytes(self.read[_LENGTH.size : _LENGTH.size + size])
            del self.read[: _LENGTH.size + size]
            try:
                kind, payload = pickle.loads(whole)
            except Exception:  # what came through the pipe is no answer; unpickling it may raise anything
                kind, payload = "garbage", None
            yield kind, payload

    def _died(self) -> None:
        # Waited for but not reaped yet, so that its group can still be named: what it started may outlive it.
        end = time.monotonic() + _GRACE_SECONDS
        while os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() > end:
                break
            time.sleep(0.005)
        self._kill()
        self.janitor.forget("group", self.pid)
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        self._finish("died", None, number)

    def _kill(self) -> None:
        """Ends the process and whatever it started; the group may not be there yet in its first moments."""
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self.pid, signal.SIGKILL)

    def _finish(self, status: Status, payload: Any, number: int | None = None) -> None:
        self.job.outcome = Outcome(
            status=status,
            seconds=time.monotonic() - self.started,
            peak_bytes=max(self.peak, payload[1] if payload else 0),
            value=payload[0] if status == "done" else None,
            failure=payload[0] if status == "raised" else None,
            signal=number,
            log=self._tail(),
        )

    def _tail(self) -> str:
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - _LOG_TAIL))
        return self.log.read().decode(errors="replace")

    def end(self) -> None:
        if self.pid:
            self._kill()
            self.janitor.forget("group", self.pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self.pid = 0
        os.close(self.pipe)
        self.log.close()


def _child(work: Work, pipe: int, log: int, parent: int, janitor: Janitor) -> None:
    """Never returns. `os._exit` skips exit handlers, which would run the parent's."""
    try:
        os.setpgid(0, 0)
        janitor.watch("group", os.getpid())
        janitor.let_go()
        _die_with_parent(parent)
        # A crash is a result: its core file would be litter, and its traceback would land on the user's terminal.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.disable()
        null = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, null), (1, log), (2, log)):
            os.dup2(source, target)
        # A notebook's streams are no files: what is said into them here would show up in the notebook, by the page.
        sys.stdout, sys.stderr = (_stream(number) for number in (1, 2))
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # What the parent left as garbage is not ours to collect: a session of ONNX Runtime among it would wait here for
        # its threads, which a fork does not have.
        gc.freeze()
        import torch

        torch.set_num_threads(1)
        # PyTorch's inference fast path for attention answers otherwise than the path it documents and trains with, in
        # rows that are padding; exporters cannot follow it either. The documented path is the reference.
        torch.backends.mha.set_fastpath_enabled(False)

        def send(kind: str, payload: Any) -> None:
            whole = pickle.dumps((kind, payload))
            rest = memoryview(_LENGTH.pack(len(whole)) + whole)
            while rest:
                rest = rest[os.write(pipe, rest) :]

        try:
            value = work(lambda message: send("tell", message))
            send("done", (value, _peak()))
        except BaseException as error:
            send("raised", (describe(error), _peak()))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _stream(number: int) -> TextIO:
    """Line by line, so that the last words before a crash are kept."""
    return open(number, "w", buffering=1, errors="backslashreplace", closefd=False)


def describe(error: BaseException) -> Failure:
    """The failure as plain data, with the frames of the whole chain, outermost exception last."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    frames = tuple(
        Where(file=f.filename, line=f.lineno, function=f.name, source=(f.line or "").strip())
        for one in reversed(chain)
        for f in traceback.extract_tb(one.__traceback__)
    )
    text = "".join(traceback.format_exception(error))
    causes = "\n".join(f"{type(one).__name__}: {one}" for one in chain[1:])
    return Failure(
        kind=type(error).__name__,
        message=str(error),
        frames=frames,
        text=text[-20_000:],
        finding=error.finding if isinstance(error, UserError) else None,
        cause=causes[-20_000:],
        questions=next((one.questions for one in chain if hasattr(one, "questions")), ()),
    )


def _die_with_parent(parent: int) -> None:
    """Asks Linux to kill this process when its parent dies, however that happens; elsewhere it is not available."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _available_memory() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 1 << 40
