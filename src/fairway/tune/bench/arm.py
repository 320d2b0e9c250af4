"""An arm in a process of its own: its crash, its hang and its hunger are answers, not ends."""

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
from typing import Any

from fairway.diagnostics.render import printable
from fairway.tune.bench.paired_timing import Arm
from fairway.workers.attempt import Limits
from fairway.workers.staging import Janitor

_LOOK_SECONDS = 0.25
_WORDS = 300


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Failed(Exception):
    """Why an arm has no numbers, in words for the user."""


class Apart:
    """The parent's end of one arm's process."""

    program: Sequence[str] = ("-m", "fairway.tune.bench.arm_program")

    def __init__(self, name: str, job: dict[str, Any], limits: Limits, janitor: Janitor) -> None:
        self.name = name
        self.limits = limits
        self.peak_bytes = 0
        self._memory = limits.memory()
        self._janitor = janitor
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `close`
        # One thread is enough to compile with: a pool of compiling processes would outlive the call that started it.
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
        """Seconds to open, and bytes that were held before."""
        answer = self._ask({"open": [self._job]})
        return float(answer["seconds"]), int(answer["before_bytes"])

    def time(self, point: int, times: int, calls: int) -> Sequence[float]:
        answer = self._ask({"time": [point, times, calls]})
        self.peak_bytes = int(answer["peak_bytes"])
        return [float(one) for one in answer["seconds"]]

    def profile(self, point: int, calls: int, prefix: str) -> Path:
        """Where ONNX Runtime wrote its profile of so many calls; `prefix`.onnx is the graph that ran."""
        return Path(self._ask({"profile": [self._job, point, calls, prefix]})["events"])

    def arm(self, point: int) -> Arm:
        """The arm at one point, ready to be timed beside others."""
        return Arm(self.name, lambda: self.time(point, 1, 1), lambda times, calls: self.time(point, times, calls))

    @property
    def gone(self) -> bool:
        return self._process.poll() is not None

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise Failed(self._ended()) from None
        answer: dict[str, Any] = json.loads(self._line())
        if "raised" in answer:
            raise Failed(_tidy(str(answer["raised"])))
        return answer

    def _line(self) -> bytes:
        """One line of the answer, while time and memory are looked after."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        started = time.monotonic()
        text = b""
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], _LOOK_SECONDS)
            part = os.read(pipe, 1 << 16) if ready else b""
            if ready and not part:
                raise Failed(self._ended())
            text += part
            if time.monotonic() - started > self.limits.seconds:
                self._kill()
                raise Failed(f"no answer within {self.limits.seconds:g} s")
            held = self._held() if not ready else 0
            if held > self._memory:
                self._kill()
                raise Failed(f"held {held / 1e9:.1f} GB, more than the limit of {self._memory / 1e9:.1f} GB")
        return text

    def _held(self) -> int:
        try:
            with open(f"/proc/{self._process.pid}/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            return 0

    def _ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.poll()
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 4 * _WORDS))
        said = _tidy(self._log.read().decode(errors="replace"))
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return f"its process ended, {how}" + (f": {said}" if said else "")

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


def _tidy(text: str) -> str:
    """An engine's words in one line, without the places in its own source; the end of them, where they are many."""
    text = re.sub(r"(Exception from |Check '.*?' failed at )?\S*\b(src|core|onnxruntime)/\S+:\d+:?", "", text)
    text = " ".join(printable(text).split())
    return text if len(text) <= _WORDS else "…" + text[-_WORDS:].lstrip()
