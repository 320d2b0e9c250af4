"""What a destination promises, and what an object store must be able to do for one to be built on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fairway.deploy.publish.bundle import Bundle

Progress = Callable[[Any], None]


@dataclass(frozen=True)
class Published:
    """Where a bundle lies now, and what was done for it."""

    where: str
    version: str
    """The number or name under which it can be pulled."""
    digest: str
    """sha256 of the manifest, which names every file with its own sha256."""
    files: tuple[str, ...]
    sent: tuple[str, ...]
    """Files that were not there yet."""
    sent_bytes: int
    unverified: str | None
    """Why the bundle was published without being verified; None where it is verified."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pulled:
    """What was brought back. Every file's sha256 is the one that was published."""

    where: str
    version: str
    digest: str
    model: Path
    files: tuple[str, ...]
    verdict: str
    unverified: str | None


class Destination(Protocol):
    """A place that bundles are published to and pulled from."""

    def publish(self, bundle: Bundle, progress: Progress) -> Published: ...

    def pull(self, staged: Path, version: str | None, progress: Progress) -> tuple[Bundle, str]:
        """Brings a version's files into the empty folder `staged`; answers what they must be, and its name."""
        ...


@dataclass(frozen=True)
class Held:
    """The bytes of a small object, and the tag by which its next change is made conditional."""

    data: bytes
    tag: str


class Store(Protocol):
    """Objects under keys, with writes that happen only if nobody else was there first."""

    where: str

    def read(self, key: str) -> Held | None: ...

    def size(self, key: str) -> int | None: ...

    def stream(self, key: str) -> Iterator[bytes]: ...

    def send(self, key: str, path: Path, progress: Progress, replace: bool = False) -> None:
        """Puts a file under a key, whole or not at all; one that is there stays unless it is to be replaced."""
        ...

    def create(self, key: str, data: bytes) -> None:
        """Puts a small object there unless one is there already."""
        ...

    def swap(self, key: str, data: bytes, tag: str | None) -> bool:
        """Puts a small object in the place of the one with this tag, or of none; False where somebody was faster."""
        ...
