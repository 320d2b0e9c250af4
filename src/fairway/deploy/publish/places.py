"""Where a destination's words lead, and the two roads there and back."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from fairway.convert.generation.folder_delivery import put_folder
from fairway.deploy.publish.bundle import Bundle, gather, unverified_mark
from fairway.deploy.publish.destination import Destination, Progress, Published, Pulled
from fairway.diagnostics.errors import complain
from fairway.record.files import hash_file
from fairway.record.reader import StoredRecord, compare_with_record
from fairway.workers.staging import Janitor, open_workshop

FORMS = "s3://BUCKET/PREFIX, mlflow:NAME, triton:FOLDER, ort:FOLDER, or a folder"
_BUCKET = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/?(.*)")


def quiet(event: object) -> None:
    """Nobody watches."""


def publish(model: str | Path, where: str, unverified: bool = False, progress: Progress = quiet) -> Published:
    """Publishes a model file with its weights, its record and their checksums: all of it, or nothing.

    A file that is not verified, byte for byte, is refused unless `unverified` is said, which then stands in the record.
    """
    with tempfile.TemporaryDirectory() as scratch:
        bundle = gather(Path(model), unverified, Path(scratch))
        return find(where).publish(bundle, progress)


def pull(where: str, folder: str | Path, version: str | None = None, progress: Progress = quiet) -> Pulled:
    """Brings a version back into a new folder. Every file must be the one that was published, and its record's."""
    folder = Path(folder)
    if folder.exists():
        raise complain("FW008", str(folder), todo=("Name a folder that does not exist yet: -o FOLDER.",))
    if not folder.absolute().parent.is_dir():
        raise complain("FW009", f"the folder {folder.absolute().parent} does not exist")
    destination = find(where)
    janitor = Janitor()
    try:
        with open_workshop(folder.absolute().parent, janitor) as shop:
            staged = shop / "pulled"
            staged.mkdir()
            bundle, name = destination.pull(staged, version, progress)
            stored = _check(bundle, staged, where)
            put_folder(staged, folder, False, janitor)
    finally:
        janitor.dismiss()
    return Pulled(
        where, name, bundle.digest, folder / bundle.model, bundle.names, stored.proven.verdict, unverified_mark(stored)
    )


def _check(bundle: Bundle, staged: Path, where: str) -> StoredRecord:
    """Nothing else may be there than what was published, and all of it must have the sha256 that it had."""
    there = {str(path.relative_to(staged)) for path in staged.rglob("*") if not path.is_dir() or path.is_symlink()}
    if there != set(bundle.names):
        differing = sorted(there ^ set(bundle.names))
        raise complain("FW802", f"{where}: {differing[0]} is missing, or there and not in the manifest")
    for piece in bundle.pieces:
        path = staged / piece.name
        if path.is_symlink() or hash_file(path) != piece.sha256:
            raise complain("FW802", f"{where}: {piece.name} has another sha256 than when it was published")
    stored, finding = compare_with_record(staged / bundle.model)
    if stored is None or finding is not None:
        raise complain("FW802", f"{where}: {'the record is missing' if finding is None else finding.seen}")
    return stored


def find(where: str) -> Destination:
    """The destination that the words name."""
    kind, _, rest = where.partition(":")
    if where.startswith("s3:"):
        found = _BUCKET.fullmatch(where)
        if found is None:
            raise _unknown(where)
        from fairway.deploy.publish.objects import Objects
        from fairway.deploy.publish.s3 import S3Store

        return Objects(S3Store(found[1], found[2].strip("/")))
    if kind == "mlflow":
        from fairway.deploy.publish.mlflow import MlflowRegistry

        if not rest or not rest.isprintable() or set(rest) & set("/:.%\"'`"):
            raise _unknown(where)
        return MlflowRegistry(rest)
    if kind in ("triton", "ort"):
        if not rest:
            raise _unknown(where)
        from fairway.deploy.publish.ort_format import OrtFolder
        from fairway.deploy.publish.triton import TritonRepository

        return TritonRepository(Path(rest)) if kind == "triton" else OrtFolder(Path(rest))
    if "://" in where or not where:
        raise _unknown(where)
    from fairway.deploy.publish.folder_store import FolderStore
    from fairway.deploy.publish.objects import Objects

    return Objects(FolderStore(Path(where)))


def _unknown(where: str) -> Exception:
    return complain("FW006", f"{where!r:.120} is no destination", todo=(f"Write {FORMS}.",))


def default_folder(where: str) -> Path:
    """The last part of a destination's name."""
    return Path(re.split(r"[:/]", where.rstrip("/"))[-1] or "pulled")
