"""Delivering a folder: whole or not at all, whatever is killed.

A folder that is not there yet is put in place by one rename. One that is there keeps what else lies in it, such as a
tokenizer's files, and its own files are replaced as a set (see workshop.py).
"""

from __future__ import annotations

import os
from pathlib import Path

from fairway.convert.generation.file_names import WRITTEN
from fairway.diagnostics.errors import complain
from fairway.record.delivery import check_target
from fairway.workers.staging import Janitor, commit, open_workshop


def check_folder(folder: Path, overwrite: bool) -> None:
    """Refuses early what could not be written later."""
    if folder.exists() and not folder.is_dir():
        raise complain("FW009", f"{folder} is a file; the graphs go into a folder")
    if not folder.exists():
        check_target(folder, overwrite=True)
        return
    for name in WRITTEN:
        check_target(folder / name, overwrite)


def put_folder(made: Path, folder: Path, overwrite: bool, janitor: Janitor) -> None:
    """Moves everything in `made` to `folder`; what an earlier export left there goes with it."""
    names = sorted(path.name for path in made.iterdir())
    new = not folder.exists()
    beside = folder.absolute().parent if new else folder.absolute()
    try:
        with open_workshop(beside, janitor) as shop:
            staged = shop / "deliver"
            if new:
                staged.mkdir()
                made.rename(staged / folder.name)
                _flush(staged / folder.name)
                commit(staged, [folder.name], fresh=[folder.name])
            else:
                made.rename(staged)
                gone = [name for name in WRITTEN if name not in names]
                commit(staged, names, gone if overwrite else (), () if overwrite else [*names, *gone])
    except FileExistsError as error:
        raise complain("FW008", str(error)) from error
    except OSError as error:
        raise complain("FW009", f"{folder}: {error.strerror or error}") from error


def _flush(folder: Path) -> None:
    """The files' bytes reach the disk before the folder's new name does."""
    for path in folder.iterdir():
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
