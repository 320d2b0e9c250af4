"""The bundle of a model: the file, the files of its weights, and its record, each with the sha256 that was verified."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import complain
from fairway.model.onnx_file import OnnxHeader, open_header
from fairway.record.files import get_record_path, hash_checkpoint, hash_file, read_versions
from fairway.record.reader import compare_with_record, parse_record
from fairway.record.schema import RECORD_FORMAT, UNKNOWN_SUBJECT, Record
from fairway.record.schema_parts import FileRecord, LinkedFileRecord, PublishedRecord, SubjectRecord
from fairway.record.writer import format_record

MAX_MANIFEST_BYTES = 64 * 2**20
"""Bytes that a manifest or a pointer may have."""


@dataclass(frozen=True)
class BundleFile:
    """One file of a bundle. `name` is its path from the model's folder."""

    name: str
    sha256: str
    size: int
    path: Path | None = None
    """The place on this machine, if it is here."""


@dataclass(frozen=True)
class Bundle:
    """The files of a model. The digest covers everything but the places on this machine."""

    model: str
    record: str
    verdict: str
    unverified: str | None
    pieces: tuple[BundleFile, ...]
    header: OnnxHeader | None = None
    """The header of the model file, if it is on this machine."""
    stored: Record | None = None
    """The parsed record."""

    @property
    def manifest(self) -> bytes:
        content = {
            "format": RECORD_FORMAT,
            "model": self.model,
            "record": self.record,
            "verdict": self.verdict,
            "unverified": self.unverified,
            "files": {piece.name: {"sha256": piece.sha256, "size": piece.size} for piece in self.pieces},
        }
        return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.manifest).hexdigest()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(piece.name for piece in self.pieces)

    @property
    def model_sha256(self) -> str:
        return next(piece.sha256 for piece in self.pieces if piece.name == self.model)


def gather_bundle(model: Path, unverified: bool, scratch: Path) -> Bundle:
    """Gather the bundle of a model file. A file whose bytes are not verified is refused unless `unverified` is true.

    The record is used as it is. Only for an unverified file another record, which says so, is written into `scratch`.
    """
    header = open_header(model)
    stored, finding = compare_with_record(model)
    doubt = _find_doubt(model, header, stored, finding)
    if doubt is not None and not unverified:
        raise complain(Code.NOT_VERIFIED, doubt)
    stored_path = get_record_path(model)
    about = stored if finding is None else None
    if doubt is None:
        text = stored_path.read_bytes()
    else:
        text = _mark_record(model, header, about, doubt)
    record = scratch / stored_path.name
    record.write_bytes(text)
    known = {} if about is None else _list_hashes(model, about)
    named = [(model.name, model), *((name, model.parent / name) for name in sorted(set(header.external)))]
    pieces = [BundleFile(name, known.get(name) or hash_file(path), path.stat().st_size, path) for name, path in named]
    pieces.append(BundleFile(stored_path.name, hashlib.sha256(text).hexdigest(), len(text), record))
    read = parse_record(text)
    return Bundle(model.name, stored_path.name, read.verdict, doubt, tuple(pieces), header, read)


def _find_doubt(model: Path, header: OnnxHeader, stored: Record | None, finding: Finding | None) -> str | None:
    """Return why these bytes are not verified, or None if they are."""
    if finding is not None:
        return finding.seen
    if stored is None:
        return f"{model.name} has no record: {get_record_path(model).name} does not exist"
    if not stored.is_verified:
        return f"{model.name} is {stored.verdict}"
    if stored.unverified_reason is not None:
        return stored.unverified_reason
    unknown = sorted(set(header.external) - {*_list_hashes(model, stored), *stored.linked_hashes})
    if unknown:
        return f"{unknown[0]}, which {model.name} reads, is not in its record"
    return None


def _list_hashes(model: Path, stored: Record) -> dict[str, str]:
    """Return the hashes by file name. The model has its current name, since it may be renamed with its record."""
    (_, own), *others = stored.hashes.items()
    return {model.name: own, **dict(others)}


def _mark_record(model: Path, header: OnnxHeader, about: Record | None, doubt: str) -> bytes:
    """Return a record that says the file was published unverified, and why: the existing one, or a new one."""
    record = _describe_unknown(model, header) if about is None else about
    record = record.model_copy(update={"published": PublishedRecord(unverified=doubt)})
    return format_record(record).encode()


def _describe_unknown(model: Path, header: OnnxHeader) -> Record:
    """Return a record for a file without any other record."""
    file = FileRecord(name=model.name, sha256=hash_file(model))
    if header.external:
        links = [
            LinkedFileRecord(name=name, blake3=hash_checkpoint(model.parent / name))
            for name in sorted(set(header.external))
        ]
        file = file.model_copy(update={"linked": tuple(links)})
    return Record(
        format=RECORD_FORMAT,
        subject=SubjectRecord(name=model.stem, sha256=UNKNOWN_SUBJECT, domain={}),
        versions=read_versions(),
        verdict="unproven",
        route=None,
        remedies=(),
        evidence=None,
        findings=(),
        file=file,
    )


def read_manifest(text: bytes, where: str) -> Bundle:
    """Parse a manifest. It comes from outside, so everything in it is checked."""
    try:
        content = json.loads(text)
        pieces = tuple(_parse_piece(name, entry) for name, entry in content["files"].items())
        names = [piece.name for piece in pieces]
        main = [content["model"], content["record"]]
        if content["format"] != RECORD_FORMAT or not set(main) <= set(names) or any("/" in name for name in main):
            raise ValueError(f"expected format {RECORD_FORMAT} and the names of a model and its record")
        mark = content["unverified"]
        if mark is not None and not isinstance(mark, str):
            raise ValueError("unverified is not a text")
        return Bundle(content["model"], content["record"], str(content["verdict"]), mark, pieces)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise complain(Code.NOTHING_PUBLISHED, f"{where}: the manifest cannot be used: {error!r:.200}") from error


def _parse_piece(name: Any, entry: Any) -> BundleFile:
    parts = name.split("/")
    if not all(parts) or {".", ".."} & set(parts) or not name.isprintable() or "\\" in name or len(name) > 1000:
        raise ValueError(f"a file's name is {name!r:.80}")
    digest, size = entry["sha256"], entry["size"]
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise ValueError(f"the sha256 of {name} is {digest!r:.80}")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError(f"the size of {name} is {size!r:.80}")
    return BundleFile(name, digest, size)
