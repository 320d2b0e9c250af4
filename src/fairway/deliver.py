"""Delivering a file: whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairway.errors import complain
from fairway.record import INSIDE, hash_file, record_path, short


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
def workshop(path: Path) -> Iterator[Path]:
    """A folder for candidates beside the target, so that the last step is a rename; gone afterwards."""
    try:
        folder = tempfile.mkdtemp(prefix=".fairway-", dir=path.parent)
    except OSError as error:
        raise complain("FW009", f"no file can be made in {path.parent}: {error.strerror}") from error
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def deliver(candidate: Path, target: Path, record: dict[str, Any]) -> dict[str, Any]:
    """Writes the record into the file, then puts file, weights and record in place by renaming."""
    import onnx_ir as ir

    staged = candidate.parent / "deliver"
    try:
        staged.mkdir()
        model = ir.load(candidate)
        strip_traces(model)
        model.metadata_props[INSIDE] = short(record)
        data = target.name + ".data" if candidate.with_name(candidate.name + ".data").exists() else None
        ir.save(model, staged / target.name, external_data=data)
        record = {**record, "file": {"name": target.name, "sha256": hash_file(staged / target.name)}}
        if data:
            record["file"]["data"] = {"name": data, "sha256": hash_file(staged / data)}
        (staged / record_path(target).name).write_text(json.dumps(record, indent=1, default=str) + "\n")
        # The model goes last: whoever sees it also sees its weights and its record.
        for name in sorted((p.name for p in staged.iterdir()), key=lambda n: n == target.name):
            os.replace(staged / name, target.with_name(name))
    except OSError as error:
        raise complain("FW009", f"{target}: {error.strerror or error}") from error
    return record


def keep_aside(candidate: Path, target: Path) -> None:
    """Keeps a wrong candidate for looking into, under a name that nobody ships by accident."""
    import onnx_ir as ir

    data = target.name + ".data" if candidate.with_name(candidate.name + ".data").exists() else None
    staged = candidate.parent / "aside"
    try:
        staged.mkdir()
        ir.save(ir.load(candidate), staged / target.name, external_data=data)
        for one in staged.iterdir():
            os.replace(one, target.with_name(one.name))
    except OSError as error:
        raise complain("FW009", f"{target}: {error.strerror or error}") from error


def strip_traces(model: Any) -> None:
    """Takes out what names places on this machine: the exporter's stack traces."""
    for node in model.graph.all_nodes():
        for key in [k for k in node.metadata_props if "stack_trace" in k]:
            del node.metadata_props[key]
