"""Bundles in an object store: content-addressed objects, a manifest per version, and one pointer that is moved last.

    objects/ab/ab12…      a file, under its own sha256
    versions/cd34….json   a manifest: the files of a version by name, under the manifest's sha256
    latest.json           the pointer: every version in order; the last one counts

Nothing but the pointer ever changes. It is moved only if it is still the one that was read at the beginning, so of two
publishers one wins and the other is told. Whoever is killed before leaves objects that the next one need not send.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fairway.deploy.publish.bundle import LARGEST, Bundle, BundleFile, read_manifest
from fairway.deploy.publish.destination import Progress, Published, Store
from fairway.diagnostics.errors import complain

POINTER = "latest.json"
FORMAT = 1
SHORTEST = 8
"""Letters of a digest that name a version; fewer might be its number."""
TRIES = 2
"""A store may refuse a write because another publisher's of the same object is under way, and drop that one later."""


@dataclass(frozen=True)
class PublishedVersion:
    """A version in the pointer's list."""

    number: int
    manifest: str
    at: str


@dataclass(frozen=True)
class Objects:
    """A destination on top of any store."""

    store: Store

    def publish(self, bundle: Bundle, progress: Progress) -> Published:
        held = self.store.read(POINTER)
        before = [] if held is None else _versions(held.data, self.store.where)
        sent = [piece for piece in bundle.pieces if self._deliver(piece, progress)]
        number = next((entry.number for entry in before[-1:] if entry.manifest == bundle.digest), None)
        if number is None:
            self.store.create(_manifest_key(bundle.digest), bundle.manifest)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            number = before[-1].number + 1 if before else 1
            after = [*before, PublishedVersion(number, bundle.digest, now)]
            if not self.store.swap(POINTER, _pointer(after), None if held is None else held.tag):
                number = self._overtaken(bundle)
        return Published(
            self.store.where,
            str(number),
            bundle.digest,
            bundle.names,
            tuple(piece.name for piece in sent),
            sum(piece.size for piece in sent),
            bundle.unverified,
        )

    def _overtaken(self, bundle: Bundle) -> int:
        """Somebody else moved the pointer. Where they published the same bytes, nothing is lost."""
        held = self.store.read(POINTER)
        last = _versions(held.data, self.store.where)[-1] if held is not None else None
        if last is None or last.manifest != bundle.digest:
            what = "the pointer was moved" if last is None else f"version {last.number} was published"
            raise complain("FW803", f"{self.store.where}: {what} while this file was being sent")
        return last.number

    def _deliver(self, piece: BundleFile, progress: Progress) -> bool:
        """Sees to it that the object is there and holds the right bytes; answers whether it was sent.

        It is read back in any case: what lies under a hash need not have it.
        """
        assert piece.path is not None
        key = object_key(piece.sha256)
        if self.store.size(key) == piece.size and self._holds(key, piece, progress):
            return False
        for _ in range(TRIES):
            self.store.send(key, piece.path, progress, replace=self.store.size(key) is not None)
            if self._holds(key, piece, progress):
                return True
        raise complain("FW802", f"{self.store.where}: {piece.name} has another sha256 there than in its record")

    def _holds(self, key: str, piece: BundleFile, progress: Progress) -> bool:
        digest = hashlib.sha256()
        progress(("stage", f"checking {piece.name}"))
        for part in self.store.stream(key):
            digest.update(part)
        return digest.hexdigest() == piece.sha256

    def pull(self, staged: Path, version: str | None, progress: Progress) -> tuple[Bundle, str]:
        held = self.store.read(POINTER)
        if held is None:
            raise complain("FW804", f"{self.store.where}: nothing was published there")
        entry = _choose(_versions(held.data, self.store.where), version, self.store.where)
        text = self.store.read(_manifest_key(entry.manifest))
        if text is None or hashlib.sha256(text.data).hexdigest() != entry.manifest:
            raise complain("FW802", f"{self.store.where}: the manifest of version {entry.number} is gone or changed")
        bundle = read_manifest(text.data, self.store.where)
        for piece in bundle.pieces:
            progress(("stage", f"fetching {piece.name}"))
            path = staged / piece.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                for part in _at_most(self.store.stream(object_key(piece.sha256)), piece.size):
                    file.write(part)
        return bundle, str(entry.number)


def _at_most(parts: Iterable[bytes], size: int) -> Iterable[bytes]:
    """A byte more than promised is enough to be found wrong; the rest need not fill the disk."""
    left = size + 1
    for part in parts:
        yield part[:left]
        left -= len(part)
        if left <= 0:
            return


def object_key(sha256: str) -> str:
    return f"objects/{sha256[:2]}/{sha256}"


def _manifest_key(sha256: str) -> str:
    return f"versions/{sha256}.json"


def _pointer(versions: list[PublishedVersion]) -> bytes:
    whole = {"format": FORMAT, "versions": [vars(entry) for entry in versions]}
    return json.dumps(whole, indent=1).encode() + b"\n"


def _versions(text: bytes, where: str) -> list[PublishedVersion]:
    try:
        if len(text) > LARGEST:
            raise ValueError("it is too large")
        whole = json.loads(text)
        found = [PublishedVersion(int(e["number"]), str(e["manifest"]), str(e["at"])) for e in whole["versions"]]
        hexadecimal = all(len(e.manifest) == 64 and not set(e.manifest) - set("0123456789abcdef") for e in found)
        if whole["format"] != FORMAT or not found or not hexadecimal:
            raise ValueError("its format is another, or it names no version")
        return found
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise complain("FW804", f"{where}: {POINTER} is not a pointer of Fairway's: {error!r:.200}") from error


def _choose(versions: list[PublishedVersion], version: str | None, where: str) -> PublishedVersion:
    """The last one, or the one with this number or this beginning of its digest."""
    if version is None:
        return versions[-1]
    beginning = version if len(version) >= SHORTEST else "-"
    fitting = [e for e in versions if version == str(e.number) or e.manifest.startswith(beginning)]
    if not fitting:
        known = ", ".join(str(entry.number) for entry in versions[-20:])
        raise complain("FW804", f"{where}: there is no version {version!r:.80}; there are {known}")
    return fitting[-1]
