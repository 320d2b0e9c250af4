"""The interfaces of destinations and of object stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fairway.deploy.publish.bundle import Bundle
from fairway.record.progress import EventSink


@dataclass(frozen=True)
class Published:
    """A published bundle, and what was sent."""

    where: str
    version: str
    """The number or name under which it can be pulled."""
    digest: str
    """sha256 of the manifest, which names every file with its own sha256."""
    files: tuple[str, ...]
    sent: tuple[str, ...]
    """Files that the destination did not have yet."""
    sent_bytes: int
    unverified: str | None
    """The reason why the bundle is not verified; None if it is."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pulled:
    """A pulled bundle. Every file has the sha256 that was published."""

    where: str
    version: str
    digest: str
    model: Path
    files: tuple[str, ...]
    verdict: str
    unverified: str | None


class Destination(Protocol):
    """A place that bundles are published to and pulled from."""

    def publish(self, bundle: Bundle, on_event: EventSink) -> Published: ...

    def pull(self, staged: Path, version: str | None, on_event: EventSink) -> tuple[Bundle, str]:
        """Copy the files of a version into the empty folder `staged`. Returns what they must be, and the version."""
        ...


@dataclass(frozen=True)
class StoredObject:
    """The bytes of a small object, and the tag that a conditional write compares."""

    data: bytes
    tag: str


class Store(Protocol):
    """An object store with conditional writes."""

    where: str

    def read(self, key: str) -> StoredObject | None: ...

    def size(self, key: str) -> int | None: ...

    def stream(self, key: str) -> Iterator[bytes]: ...

    def send(self, key: str, path: Path, on_event: EventSink, replace: bool = False) -> None:
        """Store a file under a key, atomically. An existing object is kept unless `replace` is true."""
        ...

    def create(self, key: str, data: bytes) -> None:
        """Store a small object unless the key exists."""
        ...

    def swap(self, key: str, data: bytes, tag: str | None) -> bool:
        """Replace the object with this tag (None: no object), and return False if another writer was faster."""
        ...
