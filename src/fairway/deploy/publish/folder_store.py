"""A folder as an object store. Hard links create objects; a lock and a rename swap them."""

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

from fairway.deploy.publish.destination import StoredObject
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.record.progress import EventSink, StageStarted
from fairway.workers.workshop import Janitor, flush_to_disk, lock_folder, open_workshop

_CHUNK_BYTES = 1 << 20


class FolderStore:
    """Objects are files of the folder. Several machines may share it where its file system has locks."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.where = str(root)

    def read(self, key: str) -> StoredObject | None:
        try:
            data = (self.root / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise complain(Code.STORE_REFUSES, f"{self.where}: {error.strerror or error}") from error
        return StoredObject(data, hashlib.sha256(data).hexdigest())

    def size(self, key: str) -> int | None:
        path = self.root / key
        return path.stat().st_size if path.is_file() else None

    def stream(self, key: str) -> Iterator[bytes]:
        try:
            with (self.root / key).open("rb") as file:
                while part := file.read(_CHUNK_BYTES):
                    yield part
        except FileNotFoundError:
            return

    def send(self, key: str, path: Path, on_event: EventSink, replace: bool = False) -> None:
        on_event(StageStarted(f"copying {path.name}"))
        with self._open_staged() as staged:
            shutil.copyfile(path, staged)
            self._place(staged, key, replace)

    def create(self, key: str, data: bytes) -> None:
        with self._open_staged() as staged:
            staged.write_bytes(data)
            self._place(staged, key, replace=False)

    def swap(self, key: str, data: bytes, tag: str | None) -> bool:
        with self._open_staged() as staged:
            staged.write_bytes(data)
            with lock_folder(self.root):
                current = self.read(key)
                if (None if current is None else current.tag) != tag:
                    return False
                self._place(staged, key, replace=True)
        return True

    @contextlib.contextmanager
    def _open_staged(self) -> Iterator[Path]:
        """Yield the path of a file in a hidden folder. If this process is killed, a later one removes it."""
        if not self.root.absolute().parent.is_dir():
            raise complain(Code.CANNOT_WRITE, f"the folder {self.root.absolute().parent} does not exist")
        try:
            self.root.mkdir(exist_ok=True)
            with open_workshop(self.root, self._janitor) as shop:
                yield shop / secrets.token_hex(4)
        except OSError as error:
            raise complain(Code.CANNOT_WRITE, f"{self.where}: {error.strerror or error}") from error

    @cached_property
    def _janitor(self) -> Janitor:
        janitor = Janitor()
        weakref.finalize(self, janitor.dismiss)
        return janitor

    def _place(self, staged: Path, key: str, replace: bool) -> None:
        """Move a finished file to its final name, after its bytes are on the disk."""
        target = self.root / key
        target.parent.mkdir(parents=True, exist_ok=True)
        flush_to_disk(staged)
        if replace:
            os.replace(staged, target)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(staged, target)
        flush_to_disk(target.parent)
