"""The sources of models: a file beside its record, or any destination of `fairway publish`."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fairway.deploy.publish import pull
from fairway.deploy.publish.bundle import gather_bundle
from fairway.deploy.publish.places import choose_default_folder
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.onnx_file import OnnxHeader, open_model
from fairway.record.files import hash_file
from fairway.record.reader import compare_with_record
from fairway.record.schema import Record

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_SOURCE = re.compile(r"(?:(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]*)=)?(?P<place>.+?)(?:@(?P<version>[A-Za-z0-9._-]+))?")


@dataclass(frozen=True)
class ModelSource:
    """`NAME=PLACE@VERSION`. Without a version, each load takes the newest."""

    name: str
    place: str
    version: str | None
    label: str | None = None
    """The version of a plain file. Published models have versions already."""

    @property
    def is_file(self) -> bool:
        return self.place.endswith(".onnx")


@dataclass(frozen=True)
class FetchedModel:
    """A model's checked files, in a private folder where nothing changes them while they are served."""

    source: ModelSource
    version: str
    path: Path
    header: OnnxHeader
    stored: Record | None
    unverified: str | None
    digest: str


def parse_source(text: str, seen: dict[str, int]) -> ModelSource:
    """Read `NAME=PLACE@VERSION`. The default name is the last part of the place.

    `seen` counts the plain files of each name: these are its versions, in the order in which they are given.
    """
    match = _SOURCE.fullmatch(text)
    if match is None:
        todo = ("Write NAME=PLACE@VERSION, or PLACE.",)
        raise complain(
            Code.UNKNOWN_OPTION, f"expected a model such as NAME=PLACE@VERSION, got {text!r:.120}", todo=todo
        )
    place, version = match["place"], match["version"]
    if version and not place.endswith(".onnx") and Path(text.partition("=")[2] or text).exists():
        place, version = f"{place}@{version}", None  # a folder with an @ in its name
    is_file = place.endswith(".onnx")
    name = match["name"] or (Path(place).stem if is_file else choose_default_folder(place).name)
    if not _NAME.fullmatch(name):
        raise complain(
            Code.UNKNOWN_OPTION,
            f"expected a model's name of letters, digits and ._-, got {name!r:.80}",
            todo=("Write NAME=PLACE.",),
        )
    if not is_file:
        return ModelSource(name, place, version)
    seen[name] = seen.get(name, 0) + 1
    return ModelSource(name, place, None, version or str(seen[name]))


def fetch_model(source: ModelSource, version: str | None, scratch: Path, unverified: bool) -> FetchedModel:
    """Copy the files into a new folder below `scratch`. An unverified file is refused unless `unverified` is true."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    if source.is_file:
        path, label = _copy_checked(Path(source.place), folder, unverified), source.label or "1"
    else:
        pulled = pull(source.place, folder / "pulled", version or source.version)
        path, label = pulled.model, pulled.version
        if (pulled.unverified is not None or pulled.verdict != "verified") and not unverified:
            raise complain(
                Code.NOT_VERIFIED,
                f"{source.place}: {pulled.unverified or f'expected a verified file, got {pulled.verdict}'}",
            )
    header = open_model(path)
    stored, _ = compare_with_record(path)
    mark = None if stored is None else stored.unverified_reason
    return FetchedModel(source, label, path, header, stored, mark, hash_file(path))


def _copy_checked(model: Path, folder: Path, unverified: bool) -> Path:
    """Copy the file, its weights and its record, and compare each copy with what was verified."""
    bundle = gather_bundle(model, unverified, folder)
    for piece in bundle.pieces:
        assert piece.path is not None
        target = folder / piece.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if piece.path != target:
            shutil.copyfile(piece.path, target)
        if hash_file(target) != piece.sha256:
            raise complain(Code.PUBLISHED_DIFFERS, f"{piece.name} changed while it was read")
    return folder / bundle.model


def delete_fetched(fetched: FetchedModel, scratch: Path) -> None:
    """Remove the folder that was made for a model."""
    top = fetched.path.relative_to(scratch).parts[0]
    shutil.rmtree(scratch / top, ignore_errors=True)
