"""Looks at a file that torch would load, without loading it: what swells when unpacked is refused.

torch's unpickler for tensors runs no code, but two kinds of file keep it busy or fill the memory: an archive whose
members are compressed, and a pickle that nests a tuple in itself again and again through its memo. Two hundred bytes
make a key whose hash takes years.
"""

from __future__ import annotations

import io
import mmap
import pickletools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

DEEPEST = 8
"""Levels of tuples. A tensor's description has three."""

PICKLES = 5
"""A file of the format before archives starts with this many, one after the other."""

ZIP = b"PK\x03\x04"
PICKLE = b"\x80"


def starts(path: Path, *marks: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(4).startswith(marks)


def what_swells(path: Path) -> str | None:
    """Why the file must not be unpacked, in words; None where nothing speaks against it."""
    if not starts(path, ZIP):
        with path.open("rb") as file:
            return _too_deep_at_its_start(file)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if any("/code/" in one.filename for one in members):
                return "it is TorchScript, which is code and not a checkpoint"
            if any(one.compress_type != zipfile.ZIP_STORED for one in members):
                return "it is compressed, which torch.save never does"
            if sum(one.file_size for one in members) > path.stat().st_size:
                return "it promises more than it holds"
            for one in members:
                pickled = archive.read(one) if one.filename.endswith(".pkl") else b""
                if problem := _too_deep(io.BytesIO(pickled), 1):
                    return problem
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, EOFError):
        return None  # torch says in its own words what is wrong
    return None


def _too_deep_at_its_start(file: IO[bytes]) -> str | None:
    """Reads a map of the file: a pickle can say that exabytes of text follow, and a file would make room for them."""
    try:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return _too_deep(mapped, PICKLES)
    except (ValueError, OSError):
        return None  # an empty file


def _too_deep(file: Any, pickles: int) -> str | None:
    try:
        for _ in range(pickles):
            for depth in _tuples(file):
                if depth > DEEPEST:
                    return f"it nests tuples more than {DEEPEST} deep"
    except (ValueError, IndexError, KeyError, UnicodeDecodeError, OverflowError):
        return None  # no pickle, or a broken one: the unpickler stumbles over the same place
    return None


def _tuples(file: Any) -> Iterator[int]:
    """The depth of each tuple that a pickle makes, by following its stack of values without making any."""
    stack: list[int] = []
    marks: list[int] = []
    memo: dict[int, int] = {}
    for opcode, argument, _ in pickletools.genops(file):
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
                taken = [one.name for one in opcode.stack_before]
                if "mark" in taken:
                    del stack[marks.pop() :]
                    taken = taken[: taken.index("mark")]
                del stack[len(stack) - len(taken) :]
                stack += [0] * len(opcode.stack_after)
