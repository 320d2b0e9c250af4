"""The bundle: a model file, the files its weights lie in, and its record, each with the sha256 that was verified."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.diagnostics import Finding
from fairway.diagnostics.errors import complain
from fairway.model.onnx_file import OnnxHeader, open_header
from fairway.record.files import FORMAT, hash_checkpoint, hash_file, record_path, versions
from fairway.record.reader import StoredRecord, compare_with_record, parse_record

LARGEST = 64 * 2**20
"""Bytes of a manifest or a pointer that are read."""
NOBODY = "0" * 64
"""The subject's hash in the record of a file that nobody knows the model of."""


@dataclass(frozen=True)
class BundleFile:
    """One file of a bundle. `name` is its path from the model's folder."""

    name: str
    sha256: str
    size: int
    path: Path | None = None
    """Where it lies on this machine, if it does."""


@dataclass(frozen=True)
class Bundle:
    """Files that belong together. Its digest is a hash over everything but the places on this machine."""

    model: str
    record: str
    verdict: str
    unverified: str | None
    pieces: tuple[BundleFile, ...]
    header: OnnxHeader | None = None
    """What the model file says of itself, where it lies on this machine."""
    stored: StoredRecord | None = None
    """The record, read."""

    @property
    def manifest(self) -> bytes:
        whole = {
            "format": FORMAT,
            "model": self.model,
            "record": self.record,
            "verdict": self.verdict,
            "unverified": self.unverified,
            "files": {piece.name: {"sha256": piece.sha256, "size": piece.size} for piece in self.pieces},
        }
        return json.dumps(whole, indent=1, sort_keys=True).encode() + b"\n"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.manifest).hexdigest()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(piece.name for piece in self.pieces)

    @property
    def model_sha256(self) -> str:
        return next(piece.sha256 for piece in self.pieces if piece.name == self.model)


def gather(model: Path, unverified: bool, scratch: Path) -> Bundle:
    """The bundle of a model file. What is not verified, byte for byte, is refused unless `unverified` is said.

    The record is taken as it lies there. Only where the file is not verified another one is written, into `scratch`,
    that says so.
    """
    header = open_header(model)
    stored, finding = compare_with_record(model)
    doubt = _doubt(model, header, stored, finding)
    if doubt is not None and not unverified:
        raise complain("FW801", doubt)
    beside = record_path(model)
    about = stored if finding is None else None
    if doubt is None:
        text = beside.read_bytes()
    else:
        text = _marked(model, header, about, doubt)
    record = scratch / beside.name
    record.write_bytes(text)
    known = {} if about is None else _hashes(model, about)
    named = [(model.name, model), *((name, model.parent / name) for name in sorted(set(header.external)))]
    pieces = [BundleFile(name, known.get(name) or hash_file(path), path.stat().st_size, path) for name, path in named]
    pieces.append(BundleFile(beside.name, hashlib.sha256(text).hexdigest(), len(text), record))
    read = parse_record(text)
    return Bundle(model.name, beside.name, read.proven.verdict, doubt, tuple(pieces), header, read)


def _doubt(model: Path, header: OnnxHeader, stored: StoredRecord | None, finding: Finding | None) -> str | None:
    """Why these bytes are not verified; None where they are."""
    if finding is not None:
        return finding.seen
    if stored is None:
        return f"{model.name} has no record: {record_path(model).name} is not there"
    if stored.proven.verdict != "verified":
        return f"{model.name} is {stored.proven.verdict}"
    if (marked := unverified_mark(stored)) is not None:
        return marked
    unknown = sorted(set(header.external) - {*_hashes(model, stored), *stored.linked})
    if unknown:
        return f"{unknown[0]}, which {model.name} reads, is not in its record"
    return None


def unverified_mark(stored: StoredRecord) -> str | None:
    """What an earlier publisher wrote into the record of an unverified file."""
    published = stored.whole.get("published")
    mark = published.get("unverified") if isinstance(published, dict) else None
    return mark if isinstance(mark, str) else None


def _hashes(model: Path, stored: StoredRecord) -> dict[str, str]:
    """By name, with the model's own name of today: a file and its record may be renamed together."""
    (_, own), *others = stored.files.items()
    return {model.name: own, **dict(others)}


def _marked(model: Path, header: OnnxHeader, about: StoredRecord | None, doubt: str) -> bytes:
    """A record that says the file was published unverified, and why: the one that is there, or a new one."""
    whole: Mapping[str, Any]
    if about is not None:
        whole = about.whole
    else:
        outside = sorted(set(header.external))
        linked = [{"name": name, "blake3": hash_checkpoint(model.parent / name)} for name in outside]
        whole = {
            "format": FORMAT,
            "subject": {"name": model.stem, "sha256": NOBODY, "domain": {}},
            "versions": versions(),
            "verdict": "unproven",
            "route": None,
            "remedies": [],
            "evidence": None,
            "findings": [],
            "file": {"name": model.name, "sha256": hash_file(model), **({"linked": linked} if linked else {})},
        }
    return json.dumps({**whole, "published": {"unverified": doubt}}, indent=1, default=str).encode() + b"\n"


def read_manifest(text: bytes, where: str) -> Bundle:
    """The bundle that a manifest describes. It comes from elsewhere, so nothing in it is believed unchecked."""
    try:
        whole = json.loads(text)
        pieces = tuple(_piece(name, entry) for name, entry in whole["files"].items())
        names = [piece.name for piece in pieces]
        told = [whole["model"], whole["record"]]
        if whole["format"] != FORMAT or not set(told) <= set(names) or any("/" in name for name in told):
            raise ValueError("it names no model with a record, or is of another format")
        mark = whole["unverified"]
        if mark is not None and not isinstance(mark, str):
            raise ValueError("unverified is no text")
        return Bundle(whole["model"], whole["record"], str(whole["verdict"]), mark, pieces)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise complain("FW804", f"{where}: the manifest cannot be used: {error!r:.200}") from error


def _piece(name: Any, entry: Any) -> BundleFile:
    parts = name.split("/")
    if not all(parts) or {".", ".."} & set(parts) or not name.isprintable() or "\\" in name or len(name) > 1000:
        raise ValueError(f"a file's name is {name!r:.80}")
    digest, size = entry["sha256"], entry["size"]
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise ValueError(f"the sha256 of {name} is {digest!r:.80}")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError(f"the size of {name} is {size!r:.80}")
    return BundleFile(name, digest, size)
