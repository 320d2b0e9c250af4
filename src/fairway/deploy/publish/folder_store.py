"""A folder as an object store: hard links create, a lock and a rename swap, and what the dead leave is swept."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import weakref
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from fairway.deploy.publish.destination import Held, Progress
from fairway.diagnostics.errors import complain
from fairway.workers.staging import Janitor, locked, open_workshop

_CHUNK = 1 << 20


class FolderStore:
    """Objects are files of the folder. Several machines may share it where its file system has locks."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.where = str(root)

    def read(self, key: str) -> Held | None:
        try:
            data = (self.root / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise complain("FW806", f"{self.where}: {error.strerror or error}") from error
        return Held(data, hashlib.sha256(data).hexdigest())

    def size(self, key: str) -> int | None:
        path = self.root / key
        return path.stat().st_size if path.is_file() else None

    def stream(self, key: str) -> Iterator[bytes]:
        try:
            with (self.root / key).open("rb") as file:
                while part := file.read(_CHUNK):
                    yield part
        except FileNotFoundError:
            return

    def send(self, key: str, path: Path, progress: Progress, replace: bool = False) -> None:
        progress(("stage", f"copying {path.name}"))
        with self._staged() as staged:
            shutil.copyfile(path, staged)
            self._place(staged, key, replace)

    def create(self, key: str, data: bytes) -> None:
        with self._staged() as staged:
            staged.write_bytes(data)
            self._place(staged, key, replace=False)

    def swap(self, key: str, data: bytes, tag: str | None) -> bool:
        with self._staged() as staged:
            staged.write_bytes(data)
            with locked(self.root):
                there = self.read(key)
                if (None if there is None else there.tag) != tag:
                    return False
                self._place(staged, key, replace=True)
        return True

    @contextlib.contextmanager
    def _staged(self) -> Iterator[Path]:
        """A file in a hidden folder, swept by whoever comes next if this process is killed."""
        if not self.root.absolute().parent.is_dir():
            raise complain("FW009", f"the folder {self.root.absolute().parent} does not exist")
        try:
            self.root.mkdir(exist_ok=True)
            with open_workshop(self.root, self._janitor) as shop:
                yield shop / secrets.token_hex(4)
        except OSError as error:
            raise complain("FW009", f"{self.where}: {error.strerror or error}") from error

    @cached_property
    def _janitor(self) -> Janitor:
        janitor = Janitor()
        weakref.finalize(self, janitor.dismiss)
        return janitor

    def _place(self, staged: Path, key: str, replace: bool) -> None:
        """Gives a finished file its name; its bytes reach the disk before."""
        target = self.root / key
        target.parent.mkdir(parents=True, exist_ok=True)
        _flush(staged)
        if replace:
            os.replace(staged, target)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(staged, target)
        _flush(target.parent)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
