"""Bundles in an object store: content-addressed objects, a manifest per version, and one pointer that is moved last.

    objects/ab/ab12…      a file, under its own sha256
    versions/cd34….json   a manifest: the files of a version by name, under the manifest's sha256
    latest.json           the pointer: every version in order; the last one counts

Only the pointer ever changes. It is moved only if it is still the one that was read at the beginning, so of two
publishers one wins and the other gets an error. The objects of a publisher that was killed need not be sent again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fairway.deploy.publish.bundle import MAX_MANIFEST_BYTES, Bundle, BundleFile, read_manifest
from fairway.deploy.publish.destination import Published, Store
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.record.progress import EventSink, StageStarted

POINTER = "latest.json"
POINTER_FORMAT = 1
MIN_DIGEST_CHARACTERS = 8
"""Characters of a digest that are needed to name a version. Fewer might be a version number."""
MAX_TRIES = 2
"""A store may refuse a write because another publisher is writing the same object, and drop that write later."""


@dataclass(frozen=True)
class PublishedVersion:
    """A version in the list of the pointer."""

    number: int
    manifest: str
    at: str


@dataclass(frozen=True)
class ObjectDestination:
    """A destination in an object store."""

    store: Store

    def publish(self, bundle: Bundle, on_event: EventSink) -> Published:
        pointer = self.store.read(POINTER)
        before = [] if pointer is None else _parse_pointer(pointer.data, self.store.where)
        sent = [piece for piece in bundle.pieces if self._deliver(piece, on_event)]
        number = next((entry.number for entry in before[-1:] if entry.manifest == bundle.digest), None)
        if number is None:
            self.store.create(_make_manifest_key(bundle.digest), bundle.manifest)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            number = before[-1].number + 1 if before else 1
            after = [*before, PublishedVersion(number, bundle.digest, now)]
            if not self.store.swap(POINTER, _format_pointer(after), None if pointer is None else pointer.tag):
                number = self._accept_same_version(bundle)
        return Published(
            self.store.where,
            str(number),
            bundle.digest,
            bundle.names,
            tuple(piece.name for piece in sent),
            sum(piece.size for piece in sent),
            bundle.unverified,
        )

    def _accept_same_version(self, bundle: Bundle) -> int:
        """Return the version that another publisher has just made, if it has the same bytes; else raise FW803."""
        pointer = self.store.read(POINTER)
        last = _parse_pointer(pointer.data, self.store.where)[-1] if pointer is not None else None
        if last is None or last.manifest != bundle.digest:
            what = "the pointer was moved" if last is None else f"version {last.number} was published"
            raise complain(Code.OVERTAKEN, f"{self.store.where}: {what} while this file was being sent")
        return last.number

    def _deliver(self, piece: BundleFile, on_event: EventSink) -> bool:
        """Send an object unless it is there with the right bytes, and return whether it was sent.

        It is read back in any case, because an object under a hash may have other bytes.
        """
        assert piece.path is not None
        key = make_object_key(piece.sha256)
        if self.store.size(key) == piece.size and self._holds(key, piece, on_event):
            return False
        for _ in range(MAX_TRIES):
            self.store.send(key, piece.path, on_event, replace=self.store.size(key) is not None)
            if self._holds(key, piece, on_event):
                return True
        raise complain(
            Code.PUBLISHED_DIFFERS, f"{self.store.where}: {piece.name} has another sha256 there than in its record"
        )

    def _holds(self, key: str, piece: BundleFile, on_event: EventSink) -> bool:
        digest = hashlib.sha256()
        on_event(StageStarted(f"checking {piece.name}"))
        for part in self.store.stream(key):
            digest.update(part)
        return digest.hexdigest() == piece.sha256

    def pull(self, staged: Path, version: str | None, on_event: EventSink) -> tuple[Bundle, str]:
        pointer = self.store.read(POINTER)
        if pointer is None:
            raise complain(Code.NOTHING_PUBLISHED, f"{self.store.where}: nothing was published there")
        entry = _choose_version(_parse_pointer(pointer.data, self.store.where), version, self.store.where)
        text = self.store.read(_make_manifest_key(entry.manifest))
        if text is None or hashlib.sha256(text.data).hexdigest() != entry.manifest:
            raise complain(
                Code.PUBLISHED_DIFFERS, f"{self.store.where}: the manifest of version {entry.number} is gone or changed"
            )
        bundle = read_manifest(text.data, self.store.where)
        for piece in bundle.pieces:
            on_event(StageStarted(f"fetching {piece.name}"))
            path = staged / piece.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                for part in _limit_bytes(self.store.stream(make_object_key(piece.sha256)), piece.size):
                    file.write(part)
        return bundle, str(entry.number)


def _limit_bytes(parts: Iterable[bytes], size: int) -> Iterable[bytes]:
    """Yield at most one byte more than expected. That is enough to fail the check, and does not fill the disk."""
    left = size + 1
    for part in parts:
        yield part[:left]
        left -= len(part)
        if left <= 0:
            return


def make_object_key(sha256: str) -> str:
    return f"objects/{sha256[:2]}/{sha256}"


def _make_manifest_key(sha256: str) -> str:
    return f"versions/{sha256}.json"


def _format_pointer(versions: list[PublishedVersion]) -> bytes:
    content = {"format": POINTER_FORMAT, "versions": [vars(entry) for entry in versions]}
    return json.dumps(content, indent=1).encode() + b"\n"


def _parse_pointer(text: bytes, where: str) -> list[PublishedVersion]:
    try:
        if len(text) > MAX_MANIFEST_BYTES:
            raise ValueError("it is too large")
        content = json.loads(text)
        versions = [PublishedVersion(int(e["number"]), str(e["manifest"]), str(e["at"])) for e in content["versions"]]
        hexadecimal = all(len(e.manifest) == 64 and not set(e.manifest) - set("0123456789abcdef") for e in versions)
        if content["format"] != POINTER_FORMAT or not versions or not hexadecimal:
            raise ValueError("expected format 1 and at least one version")
        return versions
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise complain(
            Code.NOTHING_PUBLISHED, f"{where}: {POINTER} is not a version list of Fairway: {error!r:.200}"
        ) from error


def _choose_version(versions: list[PublishedVersion], version: str | None, where: str) -> PublishedVersion:
    """Return the last version, or the one with this number or beginning of a digest."""
    if version is None:
        return versions[-1]
    beginning = version if len(version) >= MIN_DIGEST_CHARACTERS else "-"
    matches = [e for e in versions if version == str(e.number) or e.manifest.startswith(beginning)]
    if not matches:
        known = ", ".join(str(entry.number) for entry in versions[-20:])
        raise complain(Code.NOTHING_PUBLISHED, f"{where}: there is no version {version!r:.80}; there are {known}")
    return matches[-1]
