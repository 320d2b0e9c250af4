"""One export in a separate process, with a fault at a stated moment, and the files that may be left afterwards.

A moment is a call of a function of Fairway's: `module:name`, before or after its n-th call. Nothing in Fairway knows of
moments: the function is wrapped in the process that is about to fail.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
import torch

import fairway
from fairway.convert import export as exporting
from fairway.model import weight_storage as store

# Once and here, so that a run takes a fraction of a second; torch makes its own cache folder meanwhile.
exporting.preload_modules()

NAMES = {"out.onnx", "out.onnx.data", "out.fairway.json"}


@dataclass(frozen=True)
class Moment:
    """`victim` is killed when the call is reached: the export itself, or the worker that reaches it."""

    place: str
    when: Literal["before", "after"] = "before"
    call: int = 1
    victim: Literal["export", "worker"] = "export"

    def __str__(self) -> str:
        of = "" if self.victim == "export" else ", the worker"
        return f"{self.when} {self.place} #{self.call}{of}"


def wrap(place: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replaces `module:a.b` by what `around` makes of it; the place must exist."""
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    setattr(owner, name, around(getattr(owner, name)))


def at(moment: Moment, act: Callable[[], None]) -> None:
    """Has `act` done at the moment, in whichever process reaches it."""
    count = [0]

    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            due = count[0] == moment.call
            if due and moment.when == "before":
                act()
            value = real(*args, **kwargs)
            if due and moment.when == "after":
                act()
            return value

        return wrapped

    wrap(moment.place, around)


def kill_at(moment: Moment) -> None:
    """To be called in the process that will export."""
    export = os.getpid()

    def act() -> None:
        if moment.victim == "export":
            os.kill(export, signal.SIGKILL)
        elif os.getpid() != export:
            os.kill(os.getpid(), signal.SIGKILL)

    at(moment, act)


class Tagged(torch.nn.Module):
    """A model that tells from its answer which export a file came from."""

    def __init__(self, tag: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((2048,), tag))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 0 + self.weight


def export_tagged(folder: Path, tag: float, overwrite: bool = True, **more: Any) -> str:
    """A whole export, with its weights beside the file; answers the verdict, or the code of the complaint."""
    store.MAX_EMBEDDED_BYTES = 0
    try:
        result = fairway.export(
            Tagged(tag),
            ["x: float32[batch, 2048]"],
            folder / "out.onnx",
            bounds={"batch": (1, 4)},
            overwrite=overwrite,
            **{"level": "quick", "routes": ["trace"], **more},
        )
    except fairway.UserError as error:
        return f"{error.finding.code}: {error.finding.seen}"
    return result.verdict


class Apart:
    """A function in a forked process that leads a session, as a user's own command would."""

    def __init__(self, work: Callable[[], Any], temporary: Path) -> None:
        self.read, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.setsid()
                os.close(self.read)
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, 1)
                os.environ["TMPDIR"] = str(temporary)
                importlib.import_module("tempfile").tempdir = str(temporary)
                torch.set_num_threads(1)
                os.write(theirs, pickle.dumps(work()))
                code = 0
            except BaseException:
                traceback.print_exc(file=sys.stderr)
            finally:
                os._exit(code)
        os.close(theirs)

    def wait(self) -> tuple[int | None, Any]:
        """The signal it died of, if any, and what the work answered, if it did."""
        heard = b""
        while part := os.read(self.read, 65536):
            heard += part
        os.close(self.read)
        _, status = os.waitpid(self.pid, 0)
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        return number, pickle.loads(heard) if heard else None


_others: set[int] = set()
"""Processes that other tests' fixtures keep running, such as servers."""


@contextmanager
def orphans_come_here() -> Iterator[None]:
    """Orphans become children of this process, so that no stray process can hide."""
    libc = ctypes.CDLL(None)
    _others.clear()
    _others.update(_children())
    libc.prctl(36, 1, 0, 0, 0)
    yield
    libc.prctl(36, 0, 0, 0, 0)


def strays(seconds: float = 10.0) -> set[int]:
    """The processes below this one that do not end by themselves within the time; the dead are reaped."""
    end = time.monotonic() + seconds
    while True:
        found = _children() - _others
        for pid in found:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.01)


def _children() -> set[int]:
    return {int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _parent(p) == os.getpid()}


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def left_in(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def tag_of(folder: Path) -> float | None:
    """Return the export that the files in the folder belong to. Fails unless they are one complete set, or none."""
    present = left_in(folder)
    assert present - NAMES == set(), "strange files"
    if not present:
        return None
    assert present == NAMES, "a part of a set"
    record = json.loads((folder / "out.fairway.json").read_text())
    for entry in (record["file"], record["file"]["data"]):
        digest = hashlib.sha256((folder / entry["name"]).read_bytes()).hexdigest()
        assert digest == entry["sha256"], f"{entry['name']} is not the one of the record"
    session = onnxruntime.InferenceSession(folder / "out.onnx", providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {"x": np.ones((2, 2048), np.float32)})
    assert np.unique(answer).size == 1
    return float(answer[0, 0])
