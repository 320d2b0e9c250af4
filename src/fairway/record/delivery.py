"""Deliver a file with its weights and its record: all of them, or none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.record.files import METADATA_KEY, get_record_path, hash_checkpoint, hash_file
from fairway.record.schema import Record
from fairway.record.schema_parts import DataFileRecord, FileRecord, LinkedFileRecord
from fairway.record.writer import format_short, write_record
from fairway.workers.workshop import Janitor, commit_files, open_workshop

if TYPE_CHECKING:
    import onnx_ir as ir

    from fairway.model.weight_storage import WeightStorage


def check_target(path: Path, overwrite: bool) -> None:
    """Refuse a target that could not be written later."""
    folder = path.parent
    if not folder.is_dir():
        below = next(p for p in (folder, *folder.parents) if os.path.lexists(p))
        what = "does not exist" if below.is_dir() else f"cannot exist, because {below} is a file"
        raise complain(Code.CANNOT_WRITE, f"the folder {folder} {what}")
    if path.is_dir():
        raise complain(Code.CANNOT_WRITE, f"{path} is a folder")
    for file in (path, path.with_name(path.name + ".data"), get_record_path(path)):
        if file.is_dir():
            raise complain(Code.CANNOT_WRITE, f"{file} is a folder")
        if file.exists() and not file.is_file():
            raise complain(Code.CANNOT_WRITE, f"{file} is a device or a pipe, and a file would take its place")
        if os.path.lexists(file) and not overwrite:
            raise complain(Code.FILE_EXISTS, str(file))
    if not os.access(folder, os.W_OK):
        raise complain(Code.CANNOT_WRITE, f"the folder {folder} is read-only")


@contextmanager
def make_workshop(path: Path, janitor: Janitor) -> Iterator[Path]:
    """A temporary folder for candidates beside the target, so that the last step is a rename."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(open_workshop(path.parent, janitor))
        except OSError as error:
            raise complain(Code.CANNOT_WRITE, f"no file can be made in {path.parent}: {error.strerror}") from error
        yield folder


def deliver(
    folder: Path, candidate: Path, target: Path, record: Record, stored: WeightStorage, overwrite: bool = False
) -> Record:
    """Put the file, its weights and its record in place: all of them, or none. The file gets the short record.

    `folder` is the workshop. Return the record with the hashes of what was delivered.
    """
    import onnx_ir as ir

    from fairway.model.weight_storage import save_for_delivery

    with _make_staging_folder(folder / "deliver", target) as staged:
        model = ir.load(candidate)
        strip_traces(model)
        model.metadata_props[METADATA_KEY] = format_short(record)
        data = save_for_delivery(model, candidate, staged / target.name, stored, target.parent)
        record = record.model_copy(update={"file": _describe_file(staged / target.name, data, stored, target.parent)})
        beside = get_record_path(target).name
        write_record(staged / beside, record)
        # The model goes last. Its weights and its record are in place when it appears.
        order = [*([data] if data else []), beside, target.name]
        stale = [] if data else [target.name + ".data"]
        commit_files(staged, order, stale if overwrite else (), () if overwrite else [*order, *stale])
    return record


def keep_aside(folder: Path, candidate: Path, target: Path, record: Record, stored: WeightStorage) -> Record:
    """Keep a wrong candidate and its record to look into, under a name that is not shipped by accident."""
    import onnx_ir as ir

    from fairway.model.weight_storage import save_for_delivery

    with _make_staging_folder(folder / "aside", target) as staged:
        data = save_for_delivery(ir.load(candidate), candidate, staged / target.name, stored, target.parent)
        record = record.model_copy(update={"file": _describe_file(staged / target.name, data)})
        beside = get_record_path(target).name
        write_record(staged / beside, record)
        commit_files(staged, [*([data] if data else []), beside, target.name])
    return record


def _describe_file(
    path: Path, data: str | None, stored: WeightStorage | None = None, home: Path | None = None
) -> FileRecord:
    """Return the names and hashes of a staged file, of its data file, and of the checkpoints that it links to."""
    from fairway.model.weight_storage import find_relative_path

    file = FileRecord(name=path.name, sha256=hash_file(path))
    if data:
        entry = DataFileRecord(name=data, sha256=hash_file(path.with_name(data)))
        file = file.model_copy(update={"data": entry})
    if stored is not None and home is not None and stored.mode == "link":
        links = tuple(
            LinkedFileRecord(name=find_relative_path(link, home), blake3=hash_checkpoint(Path(link)))
            for link in sorted(stored.links.values())
        )
        file = file.model_copy(update={"linked": links})
    return file


@contextmanager
def _make_staging_folder(staged: Path, target: Path) -> Iterator[Path]:
    try:
        staged.mkdir()
        yield staged
    except FileExistsError as error:
        raise complain(Code.FILE_EXISTS, str(error)) from error
    except OSError as error:
        raise complain(Code.CANNOT_WRITE, f"{target}: {error.strerror or error}") from error


def strip_traces(model: ir.Model) -> None:
    """Remove the exporter's stack traces, which hold paths of this machine."""
    for node in model.graph.all_nodes():
        for key in [k for k in node.metadata_props if "stack_trace" in k]:
            del node.metadata_props[key]
