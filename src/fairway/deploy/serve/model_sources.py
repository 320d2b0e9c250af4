"""Where a model comes from: a file beside its record, or any place that `fairway publish` writes."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fairway.deploy.publish import pull
from fairway.deploy.publish.bundle import gather, unverified_mark
from fairway.deploy.publish.places import default_folder
from fairway.diagnostics.errors import complain
from fairway.model.onnx_file import OnnxHeader, check_room, open_header
from fairway.record.files import hash_file
from fairway.record.reader import StoredRecord, compare_with_record

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_WORDS = re.compile(r"(?:(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]*)=)?(?P<place>.+?)(?:@(?P<version>[A-Za-z0-9._-]+))?")


@dataclass(frozen=True)
class ModelSource:
    """`NAME=PLACE@VERSION`. Without a version, each load takes the newest."""

    name: str
    place: str
    version: str | None
    label: str | None = None
    """The version that a plain file is served as; what is published has its own."""

    @property
    def plain(self) -> bool:
        return self.place.endswith(".onnx")


@dataclass(frozen=True)
class Fetched:
    """A model's files in a folder of the server's own, checked: nobody changes them while they are served."""

    source: ModelSource
    version: str
    path: Path
    header: OnnxHeader
    stored: StoredRecord | None
    unverified: str | None
    digest: str


def parse_source(text: str, seen: dict[str, int]) -> ModelSource:
    """Reads `NAME=PLACE@VERSION`; the name is the file's or the place's last part where none is said.

    `seen` counts the plain files under each name, which are its versions in the order they are named.
    """
    found = _WORDS.fullmatch(text)
    if found is None:
        raise complain("FW006", f"{text!r:.120} is no model", todo=("Write NAME=PLACE@VERSION, or PLACE.",))
    place, version = found["place"], found["version"]
    if found["version"] and not place.endswith(".onnx") and Path(text.partition("=")[2] or text).exists():
        place, version = f"{place}@{version}", None  # a folder with an @ in its name
    plain = place.endswith(".onnx")
    name = found["name"] or (Path(place).stem if plain else default_folder(place).name)
    if not _NAME.fullmatch(name):
        raise complain("FW006", f"{name!r:.80} cannot be a model's name", todo=("Write NAME=PLACE.",))
    if not plain:
        return ModelSource(name, place, version)
    seen[name] = seen.get(name, 0) + 1
    return ModelSource(name, place, None, version or str(seen[name]))


def fetch(source: ModelSource, version: str | None, scratch: Path, unverified: bool) -> Fetched:
    """Brings the files into a new folder below `scratch`. What is not verified is refused unless that is said."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    if source.plain:
        path, label = _copy(Path(source.place), folder, unverified), source.label or "1"
    else:
        pulled = pull(source.place, folder / "pulled", version or source.version)
        path, label = pulled.model, pulled.version
        if (pulled.unverified is not None or pulled.verdict != "verified") and not unverified:
            raise complain("FW801", f"{source.place}: {pulled.unverified or f'it is {pulled.verdict}'}")
    header = open_header(path)
    check_room(header)
    stored, _ = compare_with_record(path)
    mark = None if stored is None else unverified_mark(stored)
    return Fetched(source, label, path, header, stored, mark, hash_file(path))


def _copy(model: Path, folder: Path, unverified: bool) -> Path:
    """The file, its weights and its record, each compared with what was verified after it was copied."""
    bundle = gather(model, unverified, folder)
    for piece in bundle.pieces:
        assert piece.path is not None
        target = folder / piece.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if piece.path != target:
            shutil.copyfile(piece.path, target)
        if hash_file(target) != piece.sha256:
            raise complain("FW802", f"{piece.name} changed while it was read")
    return folder / bundle.model


def forget(fetched: Fetched, scratch: Path) -> None:
    """Removes the folder that was made for it."""
    top = fetched.path.relative_to(scratch).parts[0]
    shutil.rmtree(scratch / top, ignore_errors=True)
