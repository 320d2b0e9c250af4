"""The workshop: a hidden folder beside the target, in which files are made and from which they are moved completely.

Three rules hold, whichever process is killed at whatever time:
- A set of files is staged in the workshop. Then the staged folder is renamed to `commit`. Before that rename nothing
  has happened. After it the files are moved into place, by the next run if the process that made them is dead.
- Files beside the target are moved only under the lock of their folder. A `commit` that exists while the lock is free
  therefore belongs to a dead process.
- A janitor, a small process that outlives its parent by a moment, ends the parent's processes and removes its workshop.
  If the janitor was killed too, the next run in the same folder cleans up.

A file that must be in the target's own folder while it is made has a name that begins with the workshop's name, and is
removed with it.

This file is also the janitor's program. It is run by path and imports only the standard library.
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

WORKSHOP_PREFIX = ".fairway-"
WORKSHOP_MARK = "made-by-fairway"
"""Only folders with this file are removed: a folder of another program may have a similar name."""

COMMIT = "commit"
MANIFEST = "commit.json"
LOCK_TIMEOUT_SECONDS = 60.0
"""How long to wait for the lock of a folder, which is held only for a few renames."""


class Janitor:
    """A process that ends process groups and removes workshops once this process has ended for any reason."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        # An embedded interpreter has no executable. Then the next run cleans up instead.
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
        """Close this process's end of the pipe. A forked child must not hold it open after its parent has ended."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def dismiss(self) -> None:
        self.let_go()
        if self._process is not None:
            self._process.wait()


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. On file systems without such locks, work without one."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    end = time.monotonic() + LOCK_TIMEOUT_SECONDS
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    what = f"another process has held the lock of this folder for {LOCK_TIMEOUT_SECONDS:g} s"
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
    """Make a workshop in the folder `beside`, and remove it afterwards. First recover from dead processes there."""
    beside = beside.absolute()
    folder = beside / f"{WORKSHOP_PREFIX}{secrets.token_hex(6)}"
    janitor.watch("workshop", str(folder))
    handle = -1
    try:
        with lock_folder(beside):
            recover_folder(beside)
            folder.mkdir(mode=0o700)
            (folder / WORKSHOP_MARK).touch()
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        _remove_workshop(folder)
        if handle >= 0:
            os.close(handle)
        janitor.forget("workshop", str(folder))


def commit_files(staged: Path, order: Sequence[str], remove: Sequence[str] = (), fresh: Sequence[str] = ()) -> None:
    """Move the staged files beside the workshop, in `order`, and remove the files in `remove`.

    Raise FileExistsError if one of the files in `fresh` exists by now.
    """
    beside = staged.parent.parent
    (staged / MANIFEST).write_text(json.dumps({"move": list(order), "remove": list(remove)}))
    for path in staged.iterdir():
        flush_to_disk(path)
    with lock_folder(beside):
        recover_folder(beside)
        for name in fresh:
            if os.path.lexists(beside / name):
                raise FileExistsError(str(beside / name))
        committed = staged.with_name(COMMIT)
        staged.rename(committed)
        _move_committed(committed, beside)
    flush_to_disk(beside)


def recover_folder(beside: Path) -> None:
    """Finish the commits of dead processes in this folder. The caller holds its lock."""
    for folder in sorted(beside.glob(f"{WORKSHOP_PREFIX}*")):
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while the owner lives
                sweep_workshop(folder)
            finally:
                os.close(handle)


def sweep_workshop(folder: Path) -> None:
    """Finish the commit of a dead process and remove its workshop."""
    if (folder / WORKSHOP_MARK).exists():
        if (folder / COMMIT).is_dir():
            _move_committed(folder / COMMIT, folder.parent)
        _remove_workshop(folder)
    else:
        with contextlib.suppress(OSError):
            folder.rmdir()  # the process was killed before it wrote the mark; other programs' folders are not empty


def place_beside(folder: Path, name: str) -> Path:
    """Return the path of a file that belongs to the workshop but is beside it."""
    return folder.with_name(f"{folder.name}.{name}")


def _list_beside(folder: Path) -> list[Path]:
    return [*folder.parent.glob(f"{folder.name}.*")]


def _remove_workshop(folder: Path) -> None:
    """Remove the files beside the workshop first, because only its name identifies them."""
    for path in _list_beside(folder):
        path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _move_committed(committed: Path, beside: Path) -> None:
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


def replace_file(path: Path, content: str | bytes, is_durable: bool = False) -> None:
    """Write a file completely or not at all: write another one beside it, then rename it.

    With `is_durable` the bytes are on the disk before the rename.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        if is_durable:
            flush_to_disk(partial)
        os.replace(partial, path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def flush_to_disk(path: Path) -> None:
    """Write a file's bytes, or a folder's names, to the disk now, so that no later rename reaches the disk first."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def run_janitor(parent: int) -> None:
    """Listen until the parent is gone, then end its process groups and remove its workshops."""
    watched: dict[tuple[str, str | int], None] = {}
    waiting = select.poll()
    waiting.register(0, select.POLLIN)
    # The pipe alone is not enough: a process forked by the user's code may keep its other end open.
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
            _sweep_with_retries(Path(str(what)))


def _sweep_with_retries(folder: Path) -> None:
    """Remove a workshop, and try again if a dying process still wrote a file into it."""
    for _ in range(50):
        with contextlib.suppress(OSError), lock_folder(folder.parent):
            sweep_workshop(folder)
        if not folder.exists() and not _list_beside(folder):
            return
        time.sleep(0.1)


if __name__ == "__main__":
    run_janitor(int(sys.argv[1]))
