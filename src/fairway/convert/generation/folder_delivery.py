"""Delivers a folder completely or not at all, whatever process is killed.

A new folder is put in place by one rename. An existing one keeps its other files, such as a tokenizer's, and the
export's files in it are replaced as a set (see workers/workshop.py).
"""

from __future__ import annotations

from pathlib import Path

from fairway.convert.generation.file_names import WRITTEN
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.record.delivery import check_target
from fairway.workers.workshop import Janitor, commit_files, flush_to_disk, open_workshop


def check_folder(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that could not be written later."""
    if folder.exists() and not folder.is_dir():
        raise complain(Code.CANNOT_WRITE, f"{folder} is a file; the graphs go into a folder")
    if not folder.exists():
        check_target(folder, overwrite=True)
        return
    for name in WRITTEN:
        check_target(folder / name, overwrite)


def deliver_folder(made: Path, folder: Path, overwrite: bool, janitor: Janitor) -> None:
    """Move everything in `made` to `folder`, and remove files there that an earlier export left."""
    names = sorted(path.name for path in made.iterdir())
    new = not folder.exists()
    beside = folder.absolute().parent if new else folder.absolute()
    try:
        with open_workshop(beside, janitor) as shop:
            staged = shop / "deliver"
            if new:
                staged.mkdir()
                made.rename(staged / folder.name)
                for path in (staged / folder.name).iterdir():
                    flush_to_disk(path)
                commit_files(staged, [folder.name], fresh=[folder.name])
            else:
                made.rename(staged)
                gone = [name for name in WRITTEN if name not in names]
                commit_files(staged, names, gone if overwrite else (), () if overwrite else [*names, *gone])
    except FileExistsError as error:
        raise complain(Code.FILE_EXISTS, str(error)) from error
    except OSError as error:
        raise complain(Code.CANNOT_WRITE, f"{folder}: {error.strerror or error}") from error
