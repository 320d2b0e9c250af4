"""Checks a file that torch would load, without loading it, and refuses one that grows when it is unpacked.

torch's unpickler for tensors runs no code, but two kinds of file keep it busy or fill the memory: an archive whose
members are compressed, and a pickle that nests a tuple in itself again and again through its memo. Two hundred bytes
make a key whose hash takes years to compute.
"""

from __future__ import annotations

import io
import mmap
import pickletools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypeAlias, cast

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain

Pickled: TypeAlias = IO[bytes] | mmap.mmap

MAX_TUPLE_DEPTH = 8
"""Nested tuples. A tensor's description has three levels."""

LEGACY_PICKLES = 5
"""The number of pickles at the start of a file in torch's format before archives."""

LFS_MAGIC = b"version https://git-lfs.github.com/spec/"
MAX_POINTER_BYTES = 1024

ZIP_MAGIC = b"PK\x03\x04"
PICKLE_MAGIC = b"\x80"


def starts_with(path: Path, *magics: bytes) -> bool:
    """Return whether the file starts with one of these bytes."""
    with path.open("rb") as file:
        return file.read(4).startswith(magics)


def refuse_lfs_pointer(path: Path) -> None:
    """Refuse a file of a few lines that Git LFS puts in the place of a large one until it is downloaded."""
    with path.open("rb") as file:
        head = file.read(MAX_POINTER_BYTES)
    if head.startswith(LFS_MAGIC):
        size = re.search(rb"\nsize (\d+)", head)
        bytes_there = f" of {int(size[1])} bytes" if size else ""
        raise complain(
            Code.CHECKPOINT_UNREADABLE,
            f"{path.name} is a Git LFS pointer; the file{bytes_there} that it stands for was not downloaded",
            todo=("Run `git lfs pull` in the repository, or download the file itself.",),
        )


def find_unpacking_risk(path: Path) -> str | None:
    """Return in words why the file must not be unpacked, or None if it may."""
    if not starts_with(path, ZIP_MAGIC):
        with path.open("rb") as file:
            return _check_file_start(file)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if any("/code/" in member.filename for member in members):
                return "it is TorchScript, which is code and not a checkpoint"
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                return "it is compressed, which torch.save never does"
            if sum(member.file_size for member in members) > path.stat().st_size:
                return "it declares more than it holds"
            for member in members:
                pickled = archive.read(member) if member.filename.endswith(".pkl") else b""
                if problem := _check_tuple_depth(io.BytesIO(pickled), 1):
                    return problem
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, EOFError):
        return None  # torch reports what is wrong
    return None


def _check_file_start(file: IO[bytes]) -> str | None:
    """Check a mapped file. A pickle can claim that exabytes of text follow; reading from a file would allocate them."""
    try:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return _check_tuple_depth(mapped, LEGACY_PICKLES)
    except (ValueError, OSError):
        return None  # an empty file


def _check_tuple_depth(file: Pickled, pickles: int) -> str | None:
    try:
        for _ in range(pickles):
            for depth in _find_tuple_depths(file):
                if depth > MAX_TUPLE_DEPTH:
                    return f"it nests tuples more than {MAX_TUPLE_DEPTH} deep"
    except (ValueError, IndexError, KeyError, UnicodeDecodeError, OverflowError):
        return None  # not a pickle, or a broken one: the unpickler fails at the same place
    return None


def _find_tuple_depths(file: Pickled) -> Iterator[int]:
    """Yield the depth of each tuple that a pickle makes, by following its stack of values without making any."""
    stack: list[int] = []
    marks: list[int] = []
    memo: dict[int, int] = {}
    for opcode, argument, _ in pickletools.genops(cast(IO[bytes], file)):
        match opcode.name:
            case "MARK":
                marks.append(len(stack))
            case "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3" as name:
                start = marks.pop() if name == "TUPLE" else len(stack) - int(name[-1])
                stack[start:] = [1 + max(stack[start:], default=0)]
                yield stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(memo[int(argument or 0)])
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                memo[int(argument or 0)] = stack[-1]
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case _:
                taken = [item.name for item in opcode.stack_before]
                if "mark" in taken:
                    del stack[marks.pop() :]
                    taken = taken[: taken.index("mark")]
                del stack[len(stack) - len(taken) :]
                stack += [0] * len(opcode.stack_after)
