"""A model repository that Triton loads: `FOLDER/NAME/config.pbtxt`, and a folder per version.

The folder of a version is put in place by one rename, so that Triton, which may be polling, never sees a part of it.
Sizes in the config come from the record: a size that varies is -1, and a verified batch dim becomes `max_batch_size`.
Triton's own batching of requests is not turned on, because it was not verified that samples are independent.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

from fairway.deploy.publish.bundle import Bundle, BundleFile
from fairway.deploy.publish.checksums import CHECKSUM_FILE as SUMS
from fairway.deploy.publish.checksums import read_checksums, write_checksums
from fairway.deploy.publish.destination import Published
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.onnx_file import OnnxHeader, OnnxValue
from fairway.record.files import get_record_path, hash_file
from fairway.record.progress import EventSink, StageStarted
from fairway.record.reader import read_record
from fairway.workers.workshop import Janitor, flush_to_disk, lock_folder, open_workshop

CONFIG = "config.pbtxt"
MODEL = "model.onnx"
"""The name that Triton looks for. The record is renamed too."""
RECORD = get_record_path(Path(MODEL)).name

TYPES = {
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "uint16": "TYPE_UINT16",
    "uint32": "TYPE_UINT32",
    "uint64": "TYPE_UINT64",
    "int8": "TYPE_INT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float16": "TYPE_FP16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
    "bfloat16": "TYPE_BF16",
    "string": "TYPE_STRING",
}


class TritonRepository:
    """`triton:FOLDER`: each model is a subfolder with the name of its file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.where = f"triton:{root}"

    def publish(self, bundle: Bundle, on_event: EventSink) -> Published:
        name = Path(bundle.model).stem
        bundle = _rename_files(bundle)
        assert bundle.header is not None
        config = write_config(name, bundle.header, _find_largest_batch(bundle)).encode()
        janitor = Janitor()
        try:
            self.root.mkdir(exist_ok=True)
            with open_workshop(self.root, janitor) as shop:
                version = shop / "version"
                _fill_version(version, bundle, on_event)
                with lock_folder(self.root):
                    number, new = self._place(name, config, version, bundle)
        except OSError as error:
            raise complain(Code.CANNOT_WRITE, f"{self.where}: {error.strerror or error}") from error
        finally:
            janitor.dismiss()
        sent = bundle.pieces if new else ()
        return Published(
            f"triton:{self.root / name}",
            str(number),
            bundle.digest,
            bundle.names,
            tuple(p.name for p in sent),
            sum(p.size for p in sent),
            bundle.unverified,
        )

    def _place(self, name: str, config: bytes, version: Path, bundle: Bundle) -> tuple[int, bool]:
        """Move the finished version to its number, with the repository locked. Equal files keep the last number."""
        home = self.root / name
        if not home.exists():
            staged = version.parent / "home"
            staged.mkdir()
            version.rename(staged / "1")
            (staged / CONFIG).write_bytes(config)
            staged.rename(home)
            return 1, True
        existing = home / CONFIG
        if not existing.is_file() or existing.read_bytes() != config:
            raise complain(Code.TRITON_CANNOT, f"{existing} is not the configuration that this model needs")
        number = max(_list_versions(home), default=0)
        last = home / str(number) / SUMS
        if last.is_file() and last.read_bytes() == (version / SUMS).read_bytes():
            return number, False
        version.rename(home / str(number + 1))
        return number + 1, True

    def pull(self, staged: Path, version: str | None, on_event: EventSink) -> tuple[Bundle, str]:
        """Pull from the folder of a model, or from a repository that holds only one."""
        home = self.root if (self.root / CONFIG).is_file() else self._find_only_model()
        numbers = _list_versions(home)
        number = max(numbers, default=0) if version is None else int(version) if version.isdecimal() else 0
        if number not in numbers:
            known = ", ".join(map(str, numbers)) or "none"
            raise complain(Code.NOTHING_PUBLISHED, f"triton:{home}: there is no such version; there are {known}")
        folder = home / str(number)
        sums = read_checksums(folder)
        pieces = []
        for name, digest in sums.items():
            on_event(StageStarted(f"fetching {name}"))
            (staged / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copyfile(folder / name, staged / name)
            except OSError as error:
                raise complain(
                    Code.PUBLISHED_DIFFERS, f"triton:{folder}: {name} cannot be read: {error.strerror}"
                ) from error
            pieces.append(BundleFile(name, digest, (staged / name).stat().st_size))
        stored = read_record(staged / RECORD)
        bundle = Bundle(MODEL, RECORD, stored.verdict, stored.unverified_reason, tuple(pieces))
        return bundle, str(number)

    def _find_only_model(self) -> Path:
        homes = sorted(path.parent for path in self.root.glob(f"*/{CONFIG}"))
        if len(homes) != 1:
            names = ", ".join(path.name for path in homes) or "none"
            raise complain(
                Code.NOTHING_PUBLISHED, f"{self.where} holds {names}; name one model's folder: triton:{self.root}/NAME"
            )
        return homes[0]


def _list_versions(home: Path) -> list[int]:
    return sorted(int(path.name) for path in home.iterdir() if path.name.isdecimal())


def _rename_files(bundle: Bundle) -> Bundle:
    """Return the bundle with the file names that Triton looks for."""
    names = {bundle.model: MODEL, bundle.record: RECORD}
    pieces = tuple(replace(piece, name=names.get(piece.name, piece.name)) for piece in bundle.pieces)
    if len({piece.name for piece in pieces}) != len(pieces):
        raise complain(Code.TRITON_CANNOT, f"{MODEL} is also the name of a file that holds weights")
    return replace(bundle, model=MODEL, record=RECORD, pieces=pieces)


def _fill_version(version: Path, bundle: Bundle, on_event: EventSink) -> None:
    """Fill the folder of a version with the files, checked after they were copied, and their checksums."""
    for piece in bundle.pieces:
        assert piece.path is not None
        on_event(StageStarted(f"copying {piece.name}"))
        path = version / piece.name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(piece.path, path)
        if hash_file(path) != piece.sha256:
            raise complain(Code.PUBLISHED_DIFFERS, f"{piece.name} changed while it was published")
    write_checksums(version, bundle.names)
    for path in version.rglob("*"):
        flush_to_disk(path)


def _find_largest_batch(bundle: Bundle) -> int:
    """Return the verified bound of the first dim if all inputs and outputs have the same one, else 0."""
    assert bundle.header is not None
    assert bundle.stored is not None
    firsts = {value.shape[0] if value.shape else None for value in (*bundle.header.inputs, *bundle.header.outputs)}
    name = firsts.pop() if len(firsts) == 1 else None
    dim = bundle.stored.subject.domain.get(name) if isinstance(name, str) else None
    return dim.high if dim is not None and dim.low <= 1 and dim.multiple == 1 else 0


def write_config(name: str, header: OnnxHeader, batch: int) -> str:
    """Return Triton's configuration as text."""
    lines = [f"name: {json.dumps(name)}", 'backend: "onnxruntime"', f"default_model_filename: {json.dumps(MODEL)}"]
    lines.append(f"max_batch_size: {batch}")
    for label, values in (("input", header.inputs), ("output", header.outputs)):
        lines += [line for value in values for line in _format_tensor(label, value, batch)]
    return "\n".join(lines) + "\n"


def _format_tensor(label: str, value: OnnxValue, batch: int) -> list[str]:
    if value.dtype not in TYPES or value.shape is None:
        raise complain(Code.TRITON_CANNOT, f"{value} has a type or rank that Triton does not support")
    sizes = [size if isinstance(size, int) else -1 for size in value.shape][1 if batch else 0 :]
    dims = ", ".join(map(str, sizes)) or "1"
    scalar = [] if sizes else ["  reshape: { shape: [ ] }"]
    fields = [f"  name: {json.dumps(value.name)}", f"  data_type: {TYPES[value.dtype]}", f"  dims: [ {dims} ]"]
    return [f"{label} {{", *fields, *scalar, "}"]
