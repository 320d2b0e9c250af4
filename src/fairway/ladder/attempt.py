"""Each attempt runs in a process of its own; whatever happens to it is a result, not an end.

The process is forked, so it starts warm (every import is there) and owns a private copy of the model: what it patches,
seeds or breaks touches nobody else. It gets one thread, because OpenMP's thread pools do not survive a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fairway.errors import UserError
from fairway.findings import Finding, Where

Status = Literal["done", "raised", "timeout", "memory", "died"]
Work = Callable[[Callable[[Any], None]], Any]
"""What runs apart. It is handed `tell`, which sends a message home."""

_POLL_SECONDS = 0.05
_LOG_TAIL = 4000


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
class Job:
    """A function that runs apart, and what has been heard of it so far."""

    work: Work
    heard: Callable[[Any], None]
    limits: Limits
    outcome: Outcome | None = None


class Workers:
    """The processes at work. Leaving the block ends every one of them, also on Ctrl-C."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._running: list[_Running] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        for running in self._running:
            running.end()

    def start(self, work: Work, heard: Callable[[Any], None] = lambda message: None) -> Job:
        """Starts a function apart. It is handed `tell`, which sends a message to `heard` on this side."""
        job = Job(work, heard, self.limits)
        self._running.append(_Running(job))
        return job

    def wait(self, job: Job) -> Outcome:
        """Waits for one job while looking after all."""
        while job.outcome is None:
            alive = list(self._running)
            ready = multiprocessing.connection.wait([r.pipe for r in alive], _POLL_SECONDS)
            for r in alive:
                r.look(r.pipe in ready)
                if r.job.outcome is not None:
                    self._forget(r)
        return job.outcome

    def drop(self, job: Job) -> None:
        """Ends a job whose answer is no longer wanted."""
        for running in [r for r in self._running if r.job is job]:
            self._forget(running)

    def _forget(self, running: _Running) -> None:
        running.end()
        self._running.remove(running)

    def run(self, work: Work, heard: Callable[[Any], None] = lambda message: None) -> Outcome:
        return self.wait(self.start(work, heard))


class _Running:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.started = time.monotonic()
        self.peak = 0
        self.memory = job.limits.memory()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `end`
        self.pipe, theirs = multiprocessing.Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self.pipe.close()
            _child(job.work, theirs, self.log.fileno(), parent)
        theirs.close()

    def look(self, ready: bool) -> None:
        if ready:
            try:
                kind, payload = pickle.loads(self.pipe.recv_bytes())
            except (EOFError, OSError):
                self._died()
                return
            except Exception:  # what came through the pipe is no answer
                self._kill()
                self._died()
                return
            if kind != "tell":
                self._finish(kind, payload)
                return
            self.job.heard(payload)
        self.peak = max(self.peak, _resident(self.pid))
        if self.peak > self.memory:
            self._finish("memory", None)
        elif time.monotonic() - self.started > self.job.limits.seconds:
            self._finish("timeout", None)

    def _died(self) -> None:
        # Waited for but not reaped yet, so that its group can still be named: what it started may outlive it.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        self._kill()
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
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self.pid = 0
        self.pipe.close()
        self.log.close()


def _child(work: Work, pipe: Any, log: int, parent: int) -> None:
    """Never returns. `os._exit` skips exit handlers, which would run the parent's."""
    try:
        os.setpgid(0, 0)
        _die_with_parent(parent)
        # A crash is a result: its core file would be litter, and its traceback would land on the user's terminal.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.disable()
        null = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, null), (1, log), (2, log)):
            os.dup2(source, target)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        import torch

        torch.set_num_threads(1)
        # PyTorch's inference fast path for attention answers otherwise than the path it documents and trains with, in
        # rows that are padding; exporters cannot follow it either. The documented path is the reference.
        torch.backends.mha.set_fastpath_enabled(False)

        def send(kind: str, payload: Any) -> None:
            pipe.send_bytes(pickle.dumps((kind, payload)))

        try:
            value = work(lambda message: send("tell", message))
            send("done", (value, _peak()))
        except BaseException as error:
            send("raised", (describe(error), _peak()))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


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
