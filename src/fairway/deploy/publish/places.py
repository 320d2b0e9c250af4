"""Publish to a destination and pull from it."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from fairway.convert.generation.folder_delivery import deliver_folder
from fairway.deploy.publish.bundle import Bundle, gather_bundle
from fairway.deploy.publish.destination import Destination, Published, Pulled
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.record.files import hash_file
from fairway.record.progress import EventSink, ignore_event
from fairway.record.reader import compare_with_record
from fairway.record.schema import Record
from fairway.workers.workshop import Janitor, open_workshop

FORMS = "s3://BUCKET/PREFIX, mlflow:NAME, triton:FOLDER, ort:FOLDER, or a folder"
_BUCKET = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/?(.*)")


def publish(model: str | Path, where: str, unverified: bool = False, on_event: EventSink = ignore_event) -> Published:
    """Publish a model file with its weights, its record and their checksums: all of it, or nothing.

    A file whose bytes are not verified is refused unless `unverified` is true; then its record says so.
    """
    with tempfile.TemporaryDirectory() as scratch:
        bundle = gather_bundle(Path(model), unverified, Path(scratch))
        return find_destination(where).publish(bundle, on_event)


def pull(where: str, folder: str | Path, version: str | None = None, on_event: EventSink = ignore_event) -> Pulled:
    """Pull a version into a new folder, and check that every file is the one that was published."""
    folder = Path(folder)
    if folder.exists():
        raise complain(Code.FILE_EXISTS, str(folder), todo=("Name a folder that does not exist yet: -o FOLDER.",))
    if not folder.absolute().parent.is_dir():
        raise complain(Code.CANNOT_WRITE, f"the folder {folder.absolute().parent} does not exist")
    destination = find_destination(where)
    janitor = Janitor()
    try:
        with open_workshop(folder.absolute().parent, janitor) as shop:
            staged = shop / "pulled"
            staged.mkdir()
            bundle, name = destination.pull(staged, version, on_event)
            stored = _check_pulled(bundle, staged, where)
            deliver_folder(staged, folder, False, janitor)
    finally:
        janitor.dismiss()
    return Pulled(
        where, name, bundle.digest, folder / bundle.model, bundle.names, stored.verdict, stored.unverified_reason
    )


def _check_pulled(bundle: Bundle, staged: Path, where: str) -> Record:
    """Check that the folder holds exactly the published files, each with its sha256. Returns the record."""
    files = {str(path.relative_to(staged)) for path in staged.rglob("*") if not path.is_dir() or path.is_symlink()}
    if files != set(bundle.names):
        differing = sorted(files ^ set(bundle.names))
        raise complain(Code.PUBLISHED_DIFFERS, f"{where}: {differing[0]} is missing, or is not in the manifest")
    for piece in bundle.pieces:
        path = staged / piece.name
        if path.is_symlink() or hash_file(path) != piece.sha256:
            raise complain(
                Code.PUBLISHED_DIFFERS, f"{where}: {piece.name} has another sha256 than when it was published"
            )
    stored, finding = compare_with_record(staged / bundle.model)
    if stored is None or finding is not None:
        raise complain(
            Code.PUBLISHED_DIFFERS, f"{where}: {'the record is missing' if finding is None else finding.seen}"
        )
    return stored


def find_destination(where: str) -> Destination:
    """Return the destination of an address such as `s3://BUCKET/PREFIX`."""
    kind, _, rest = where.partition(":")
    if where.startswith("s3:"):
        match = _BUCKET.fullmatch(where)
        if match is None:
            raise _unknown_destination(where)
        from fairway.deploy.publish.objects import ObjectDestination
        from fairway.deploy.publish.s3 import S3Store

        return ObjectDestination(S3Store(match[1], match[2].strip("/")))
    if kind == "mlflow":
        from fairway.deploy.publish.mlflow import MlflowRegistry

        if not rest or not rest.isprintable() or set(rest) & set("/:.%\"'`"):
            raise _unknown_destination(where)
        return MlflowRegistry(rest)
    if kind in ("triton", "ort"):
        if not rest:
            raise _unknown_destination(where)
        from fairway.deploy.publish.ort_format import OrtFolder
        from fairway.deploy.publish.triton import TritonRepository

        return TritonRepository(Path(rest)) if kind == "triton" else OrtFolder(Path(rest))
    if "://" in where or not where:
        raise _unknown_destination(where)
    from fairway.deploy.publish.folder_store import FolderStore
    from fairway.deploy.publish.objects import ObjectDestination

    return ObjectDestination(FolderStore(Path(where)))


def _unknown_destination(where: str) -> Exception:
    return complain(Code.UNKNOWN_OPTION, f"expected a destination, got {where!r:.120}", todo=(f"Write {FORMS}.",))


def choose_default_folder(where: str) -> Path:
    """Return the last part of a destination's address."""
    return Path(re.split(r"[:/]", where.rstrip("/"))[-1] or "pulled")
