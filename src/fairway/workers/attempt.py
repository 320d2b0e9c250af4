"""Attempts run in separate processes, so a crash is a result and does not end the export.

The process is forked. It starts with all imports done and has a private copy of the model, so its patches and seeds
affect nothing else. It gets one thread, because OpenMP's thread pools do not survive a fork.
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
from fairway.workers.workshop import Janitor

Status = Literal["done", "raised", "timeout", "memory", "died"]
MessageSink = Callable[[Any], None]
Work = Callable[[MessageSink], Any]
"""The function that runs in the worker. Its argument sends a message to the parent process."""

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 1.0
"""How long a process that closed its pipe may take to end by itself, so that its own signal is reported."""
_LOG_TAIL_BYTES = 4000
_LENGTH = struct.Struct("<Q")
_MAX_MESSAGE_BYTES = 1 << 30
"""The longest message. A longer one is garbage."""


def ignore_message(message: object) -> None:
    """Do nothing: the default for workers whose messages are not needed."""


@dataclass(frozen=True)
class Limits:
    """The time and memory limits of one attempt."""

    seconds: float = 600.0
    bytes: int = 0
    """0 means nine tenths of the memory that is free when the attempt starts."""

    def memory(self) -> int:
        return self.bytes or int(0.9 * _get_available_bytes())


@dataclass(frozen=True)
class Failure:
    """An exception from another process, as text and frames."""

    kind: str
    message: str
    frames: tuple[Where, ...]
    text: str
    finding: Finding | None = None
    cause: str = ""
    """The kinds and messages of the exceptions that caused it, innermost last."""
    questions: tuple[Any, ...] = ()
    """The questions about sizes that torch.export answered before it failed; empty for other errors."""


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
    """A function that runs in a worker, and its outcome once it has ended."""

    work: Work
    on_message: MessageSink
    limits: Limits
    outcome: Outcome | None = None


class Workers:
    """The running workers. Leaving the block ends all of them, also on Ctrl-C; after kill -9 a janitor does."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.tick: Callable[[], None] = lambda: None
        """Called many times a second while `wait` runs, so that progress displays stay alive."""
        self._running: list[_RunningJob] = []

    def __enter__(self) -> Workers:
        self.janitor = Janitor()
        return self

    def __exit__(self, *exception: object) -> None:
        for running in self._running:
            running.end()
        self.janitor.dismiss()

    def start(self, work: Work, on_message: MessageSink = ignore_message, limits: Limits | None = None) -> WorkerJob:
        """Start a function in a worker. Its messages are passed to `on_message` in this process."""
        job = WorkerJob(work, on_message, limits or self.limits)
        self._running.append(_RunningJob(job, self.janitor))
        return job

    def wait(self, job: WorkerJob) -> Outcome:
        """Wait for one job, and handle the messages and limits of all."""
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
        """End a job whose result is no longer needed."""
        for running in [r for r in self._running if r.job is job]:
            self._forget(running)

    def _forget(self, running: _RunningJob) -> None:
        running.end()
        self._running.remove(running)

    def run(self, work: Work, on_message: MessageSink = ignore_message, limits: Limits | None = None) -> Outcome:
        return self.wait(self.start(work, on_message, limits))


class _RunningJob:
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
            _run_child(job.work, theirs, self.log.fileno(), parent, janitor)
        os.close(theirs)

    def look(self, ready: bool) -> None:
        if ready:
            ended = self._receive()
            for kind, payload in self._messages():
                if kind == "garbage":
                    self._kill()
                    ended = True
                elif kind == "tell":
                    self.job.on_message(payload)
                else:
                    self._finish(kind, payload)
                    return
            if ended:
                self._reap()
                return
        self.peak = max(self.peak, _get_resident_bytes(self.pid))
        if self.peak > self.memory:
            self._finish("memory", None)
        elif time.monotonic() - self.started > self.job.limits.seconds:
            self._finish("timeout", None)

    def _receive(self) -> bool:
        """Read what is available without waiting, because a hang may cut off a message. Return True at the end."""
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
            if len(self.read) < _LENGTH.size + size <= _MAX_MESSAGE_BYTES:
                return
            message = bytes(self.read[_LENGTH.size : _LENGTH.size + size])
            del self.read[: _LENGTH.size + size]
            try:
                kind, payload = pickle.loads(message)
            except Exception:  # garbage in the pipe: unpickling it may raise anything
                kind, payload = "garbage", None
            yield kind, payload

    def _reap(self) -> None:
        # The process is waited for but not reaped, so that its group can still be killed: its children may outlive it.
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
        """Kill the process and its children. At the very beginning the group may not exist yet."""
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
        self.log.seek(max(0, size - _LOG_TAIL_BYTES))
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


def _run_child(work: Work, pipe: int, log: int, parent: int, janitor: Janitor) -> None:
    """Run the work in the child, and never return. `os._exit` skips the exit handlers of the parent."""
    try:
        os.setpgid(0, 0)
        janitor.watch("group", os.getpid())
        janitor.let_go()
        _die_with_parent(parent)
        # A crash is a result. It needs no core file, and no traceback on the user's terminal.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.disable()
        null = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, null), (1, log), (2, log)):
            os.dup2(source, target)
        # A notebook's streams are not files: output here would fill the notebook.
        sys.stdout, sys.stderr = (_open_stream(number) for number in (1, 2))
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Do not collect the parent's garbage: a session of ONNX Runtime would wait for its threads, which a fork does
        # not have.
        gc.freeze()
        import torch

        torch.set_num_threads(1)
        # In padded rows, PyTorch's fast path for attention gives other results than the documented path used in
        # training. Exporters cannot follow it either. The documented path is the reference.
        torch.backends.mha.set_fastpath_enabled(False)

        def send(kind: str, payload: object) -> None:
            message = pickle.dumps((kind, payload))
            rest = memoryview(_LENGTH.pack(len(message)) + message)
            while rest:
                rest = rest[os.write(pipe, rest) :]

        try:
            value = work(lambda message: send("tell", message))
            send("done", (value, _get_peak_bytes()))
        except BaseException as error:
            send("raised", (describe_failure(error), _get_peak_bytes()))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _open_stream(number: int) -> TextIO:
    """Open a line-buffered stream, so that the last output before a crash is kept."""
    return open(number, "w", buffering=1, errors="backslashreplace", closefd=False)


def describe_failure(error: BaseException) -> Failure:
    """Return an exception as plain data, with the frames of the whole chain, outermost exception last."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    frames = tuple(
        Where(file=f.filename, line=f.lineno, function=f.name, source=(f.line or "").strip())
        for link in reversed(chain)
        for f in traceback.extract_tb(link.__traceback__)
    )
    text = "".join(traceback.format_exception(error))
    causes = "\n".join(f"{type(link).__name__}: {link}" for link in chain[1:])
    return Failure(
        kind=type(error).__name__,
        message=str(error),
        frames=frames,
        text=text[-20_000:],
        finding=error.finding if isinstance(error, UserError) else None,
        cause=causes[-20_000:],
        questions=next((link.questions for link in chain if hasattr(link, "questions")), ()),
    )


def _die_with_parent(parent: int) -> None:
    """Ask Linux to kill this process when its parent dies. Other systems cannot do that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _get_resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _get_peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _get_available_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 1 << 40
