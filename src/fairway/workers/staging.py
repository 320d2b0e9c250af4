"""The workshop: a hidden folder beside the target, in which files are made and from which they come out whole.

Three rules hold whatever is killed, and whenever:
- A set of files is staged in the workshop; then the staged folder is renamed to `commit`. Before that rename nothing
  has happened. After it the set is carried into place, by whoever comes next if its maker is dead.
- Files beside the target are moved only under the lock of their folder, so a `commit` that is found under that lock
  belongs to the dead.
- A janitor, a small process that outlives its parent by a moment, ends what the parent had started and sweeps its
  workshop. Where the janitor was killed too, the next run in the same folder does the sweeping.

What must lie in the target's own folder while it is made has a name that begins with the workshop's, and goes with it.

This file is also the janitor's program. It is run by path and imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PREFIX = ".fairway-"
MARK = "made-by-fairway"
"""Only folders that hold this file are swept: somebody else's may be called alike."""

COMMIT = "commit"
MANIFEST = "commit.json"
PATIENCE = 60.0
"""Seconds to wait for the lock of a folder; it is held for a few renames only."""


class Janitor:
    """A process that ends groups of processes and sweeps workshops once this process is gone, however it went."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        # Without an interpreter to name (an embedded one has none) the next run sweeps instead.
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                bufsize=0,
            )

    def watch(self, kind: str, what: str | int) -> None:
        self._tell("+", kind, what)

    def forget(self, kind: str, what: str | int) -> None:
        self._tell("-", kind, what)

    def _tell(self, sign: str, kind: str, what: str | int) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.write(json.dumps([sign, kind, what]).encode() + b"\n")

    def let_go(self) -> None:
        """Closes this process's end. A forked child does so: its own death means nothing."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def dismiss(self) -> None:
        self.let_go()
        if self._process is not None:
            self._process.wait()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder. File systems without such locks are worked in without one."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    end = time.monotonic() + PATIENCE
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    what = f"another process has held the lock of this folder for {PATIENCE:g} s"
                    raise OSError(0, what) from None
                time.sleep(0.01)
                continue
            except OSError:
                pass
            break
        yield
    finally:
        os.close(handle)


@contextmanager
def open_workshop(beside: Path, janitor: Janitor) -> Iterator[Path]:
    """A new workshop in the folder `beside`; gone afterwards. What the dead left there is settled first."""
    beside = beside.absolute()
    folder = beside / f"{PREFIX}{secrets.token_hex(6)}"
    janitor.watch("workshop", str(folder))
    handle = -1
    try:
        with locked(beside):
            recover(beside)
            folder.mkdir(mode=0o700)
            (folder / MARK).touch()
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        _remove(folder)
        if handle >= 0:
            os.close(handle)
        janitor.forget("workshop", str(folder))


def commit(staged: Path, order: Sequence[str], remove: Sequence[str] = (), fresh: Sequence[str] = ()) -> None:
    """Carries the staged files to the workshop's neighbours, in `order`, and takes away what they replace.

    Refuses with FileExistsError where one of `fresh` has come to be.
    """
    beside = staged.parent.parent
    (staged / MANIFEST).write_text(json.dumps({"move": list(order), "remove": list(remove)}))
    for path in staged.iterdir():
        _flush(path)
    with locked(beside):
        recover(beside)
        for name in fresh:
            if os.path.lexists(beside / name):
                raise FileExistsError(str(beside / name))
        committed = staged.with_name(COMMIT)
        staged.rename(committed)
        _carry(committed, beside)
    _flush(beside)


def recover(beside: Path) -> None:
    """Finishes what the dead had begun in this folder, whose lock the caller holds."""
    for folder in sorted(beside.glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while the owner lives
                sweep(folder)
            finally:
                os.close(handle)


def sweep(folder: Path) -> None:
    """Carries out what was committed and removes the workshop of a dead process."""
    if (folder / MARK).exists():
        if (folder / COMMIT).is_dir():
            _carry(folder / COMMIT, folder.parent)
        _remove(folder)
    else:
        with contextlib.suppress(OSError):
            folder.rmdir()  # killed between two steps of making it; a folder of somebody else's is not empty


def outside(folder: Path, name: str) -> Path:
    """A place for a file that belongs to the workshop and lies beside it."""
    return folder.with_name(f"{folder.name}.{name}")


def _beside(folder: Path) -> list[Path]:
    return [*folder.parent.glob(f"{folder.name}.*")]


def _remove(folder: Path) -> None:
    """What lies beside the workshop goes first: it is known by the workshop alone."""
    for path in _beside(folder):
        path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _carry(committed: Path, beside: Path) -> None:
    try:
        manifest = json.loads((committed / MANIFEST).read_text())
        move, remove = list(map(str, manifest["move"])), list(map(str, manifest["remove"]))
    except (OSError, ValueError, TypeError, KeyError):
        return
    if any(name != os.path.basename(name) or name in ("", ".", "..") for name in (*move, *remove)):
        return
    for name in move:
        if os.path.lexists(committed / name):
            os.replace(committed / name, beside / name)
    for name in remove:
        (beside / name).unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """A rename must not reach the disk before the bytes do."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def keep_watch(parent: int) -> None:
    """The janitor's life: listen until the parent is gone, then end its groups and sweep its workshops."""
    watched: dict[tuple[str, str | int], None] = {}
    waiting = select.poll()
    waiting.register(0, select.POLLIN)
    # The pipe alone would not do: a process that the user's own code forked may hold its other end for ever.
    with contextlib.suppress(OSError, AttributeError):
        waiting.register(os.pidfd_open(parent), select.POLLIN)
    text = b""
    os.set_blocking(0, False)
    while True:
        ready = {handle for handle, _ in waiting.poll()}
        with contextlib.suppress(BlockingIOError):
            while part := os.read(0, 65536):
                text += part
            ready.add(-1)
        *lines, text = text.split(b"\n")
        for line in lines:
            sign, kind, what = json.loads(line)
            if sign == "+":
                watched[kind, what] = None
            else:
                watched.pop((kind, what), None)
        if ready - {0}:
            break
    for kind, what in watched:
        if kind == "group" and isinstance(what, int):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(what, signal.SIGKILL)
    for kind, what in watched:
        if kind == "workshop":
            _sweep_surely(Path(str(what)))


def _sweep_surely(folder: Path) -> None:
    """Tries again where a process that is just dying still put a file in."""
    for _ in range(50):
        with contextlib.suppress(OSError), locked(folder.parent):
            sweep(folder)
        if not folder.exists() and not _beside(folder):
            return
        time.sleep(0.1)


if __name__ == "__main__":
    keep_watch(int(sys.argv[1]))
