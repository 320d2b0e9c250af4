"""An arm in a separate process: a crash, a hang or too much memory is a result, not the end of the bench."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from fairway.diagnostics.render import make_printable
from fairway.tune.bench.arm_program import Job
from fairway.tune.bench.paired_timing import Arm
from fairway.workers.attempt import Limits
from fairway.workers.workshop import Janitor

_POLL_SECONDS = 0.25
_MAX_MESSAGE_CHARS = 300


def count_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ArmProcessFailed(Exception):
    """Raised if an arm has no numbers. The message gives the reason to the user."""


class ArmProcess:
    """The parent's end of one arm's process."""

    program: Sequence[str] = ("-m", "fairway.tune.bench.arm_program")

    def __init__(self, name: str, job: Job, limits: Limits, janitor: Janitor) -> None:
        self.name = name
        self.limits = limits
        self.peak_bytes = 0
        self._memory = limits.memory()
        self._janitor = janitor
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `close`
        # One compile thread is enough: a pool of compile processes would outlive the call that started it.
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": str(job["threads"])}
        self._process = subprocess.Popen(
            [sys.executable, *self.program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            start_new_session=True,
        )
        janitor.watch("group", self._process.pid)
        self._job = job

    def open(self) -> tuple[float, int]:
        """Return the seconds that opening took, and the bytes in use before."""
        answer = self._ask({"open": [self._job]})
        return float(answer["seconds"]), int(answer["before_bytes"])

    def time(self, point: int, times: int, calls: int) -> Sequence[float]:
        answer = self._ask({"time": [point, times, calls]})
        self.peak_bytes = int(answer["peak_bytes"])
        return [float(value) for value in answer["seconds"]]

    def profile(self, point: int, calls: int, prefix: str) -> Path:
        """Return the profile that ONNX Runtime wrote of so many calls; `prefix`.onnx is the graph that ran."""
        return Path(self._ask({"profile": [self._job, point, calls, prefix]})["events"])

    def make_arm(self, point: int) -> Arm:
        """Return the arm at one point, ready to be timed."""
        return Arm(self.name, lambda: self.time(point, 1, 1), lambda times, calls: self.time(point, times, calls))

    @property
    def is_gone(self) -> bool:
        return self._process.poll() is not None

    def _ask(self, question: Job) -> Job:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise ArmProcessFailed(self._describe_end()) from None
        answer: Job = json.loads(self._read_line())
        if "raised" in answer:
            raise ArmProcessFailed(_shorten_message(str(answer["raised"])))
        return answer

    def _read_line(self) -> bytes:
        """Read one line of the answer while watching time and memory."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        started = time.monotonic()
        text = b""
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], _POLL_SECONDS)
            part = os.read(pipe, 1 << 16) if ready else b""
            if ready and not part:
                raise ArmProcessFailed(self._describe_end())
            text += part
            if time.monotonic() - started > self.limits.seconds:
                self._kill()
                raise ArmProcessFailed(f"no answer within {self.limits.seconds:g} s")
            used_bytes = self._read_memory() if not ready else 0
            if used_bytes > self._memory:
                self._kill()
                raise ArmProcessFailed(
                    f"used {used_bytes / 1e9:.1f} GB, more than the limit of {self._memory / 1e9:.1f} GB"
                )
        return text

    def _read_memory(self) -> int:
        try:
            with open(f"/proc/{self._process.pid}/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            return 0

    def _describe_end(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.poll()
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 4 * _MAX_MESSAGE_CHARS))
        message = _shorten_message(self._log.read().decode(errors="replace"))
        ending = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return f"its process ended, {ending}" + (f": {message}" if message else "")

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        self._kill()
        self._janitor.forget("group", self._process.pid)
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _shorten_message(text: str) -> str:
    """Put an engine's message on one line, without places in its own source, and keep the end if it is long."""
    text = re.sub(r"(Exception from |Check '.*?' failed at )?\S*\b(src|core|onnxruntime)/\S+:\d+:?", "", text)
    text = " ".join(make_printable(text).split())
    return text if len(text) <= _MAX_MESSAGE_CHARS else "…" + text[-_MAX_MESSAGE_CHARS:].lstrip()
