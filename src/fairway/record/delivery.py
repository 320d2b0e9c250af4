"""Delivering a file: whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairway.diagnostics.errors import complain
from fairway.record.files import INSIDE, hash_checkpoint, hash_file, record_path, short
from fairway.workers.staging import Janitor, commit, open_workshop

if TYPE_CHECKING:
    from fairway.model.weight_storage import WeightStorage


def check_target(path: Path, overwrite: bool) -> None:
    """Refuses early what could not be written later."""
    folder = path.parent
    if not folder.is_dir():
        below = next(p for p in (folder, *folder.parents) if os.path.lexists(p))
        what = "does not exist" if below.is_dir() else f"cannot exist, because {below} is a file"
        raise complain("FW009", f"the folder {folder} {what}")
    if path.is_dir():
        raise complain("FW009", f"{path} is a folder")
    for file in (path, path.with_name(path.name + ".data"), record_path(path)):
        if file.is_dir():
            raise complain("FW009", f"{file} is a folder")
        if os.path.lexists(file) and not overwrite:
            raise complain("FW008", str(file))
    if not os.access(folder, os.W_OK):
        raise complain("FW009", f"the folder {folder} is read-only")


@contextmanager
def workshop(path: Path, janitor: Janitor) -> Iterator[Path]:
    """A folder for candidates beside the target, so that the last step is a rename; gone afterwards."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(open_workshop(path.parent, janitor))
        except OSError as error:
            raise complain("FW009", f"no file can be made in {path.parent}: {error.strerror}") from error
        yield folder


def deliver(
    folder: Path, candidate: Path, target: Path, record: dict[str, Any], stored: WeightStorage, overwrite: bool = False
) -> dict[str, Any]:
    """Writes the record into the file, then puts file, weights and record in place, all or none.

    `folder` is the workshop.
    """
    import onnx_ir as ir

    from fairway.model.weight_storage import from_home, save_delivered

    with _staging(folder / "deliver", target) as staged:
        model = ir.load(candidate)
        strip_traces(model)
        model.metadata_props[INSIDE] = short(record)
        data = save_delivered(model, candidate, staged / target.name, stored, target.parent)
        record = {**record, "file": {"name": target.name, "sha256": hash_file(staged / target.name)}}
        if data:
            record["file"]["data"] = {"name": data, "sha256": hash_file(staged / data)}
        if stored.mode == "link":
            record["file"]["linked"] = [
                {"name": from_home(path, target.parent), "blake3": hash_checkpoint(Path(path))}
                for path in sorted(stored.links.values())
            ]
        beside = record_path(target).name
        (staged / beside).write_text(json.dumps(record, indent=1, default=str) + "\n")
        # The model goes last: whoever sees it also sees its weights and its record.
        order = [*([data] if data else []), beside, target.name]
        stale = [] if data else [target.name + ".data"]
        commit(staged, order, stale if overwrite else (), () if overwrite else [*order, *stale])
    return record


def keep_aside(
    folder: Path, candidate: Path, target: Path, record: dict[str, Any], stored: WeightStorage
) -> dict[str, Any]:
    """Keeps a wrong candidate and its record for looking into, under a name that nobody ships by accident."""
    import onnx_ir as ir

    from fairway.model.weight_storage import save_delivered

    with _staging(folder / "aside", target) as staged:
        data = save_delivered(ir.load(candidate), candidate, staged / target.name, stored, target.parent)
        record = {**record, "file": {"name": target.name, "sha256": hash_file(staged / target.name)}}
        if data:
            record["file"]["data"] = {"name": data, "sha256": hash_file(staged / data)}
        beside = record_path(target).name
        (staged / beside).write_text(json.dumps(record, indent=1, default=str) + "\n")
        commit(staged, [*([data] if data else []), beside, target.name])
    return record


@contextmanager
def _staging(staged: Path, target: Path) -> Iterator[Path]:
    try:
        staged.mkdir()
        yield staged
    except FileExistsError as error:
        raise complain("FW008", str(error)) from error
    except OSError as error:
        raise complain("FW009", f"{target}: {error.strerror or error}") from error


def strip_traces(model: Any) -> None:
    """Takes out what names places on this machine: the exporter's stack traces."""
    for node in model.graph.all_nodes():
        for key in [k for k in node.metadata_props if "stack_trace" in k]:
            del node.metadata_props[key]
