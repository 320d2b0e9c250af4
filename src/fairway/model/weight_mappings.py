"""The kernel knows which file a tensor's bytes lie in: safetensors, torch.load(mmap=True) and transformers map theirs.

So it does not matter who loaded a checkpoint, under which names, in how many shards, or which tensors are tied; nor
what the file is called: a hub's cache keeps files under their hashes, and links to them. Linux only: elsewhere no
tensor is said to lie in a file.
"""

from __future__ import annotations

import bisect
import ctypes
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ByteRange:
    """Bytes of a file."""

    path: str
    offset: int
    length: int


@dataclass(frozen=True)
class _Area:
    start: int
    end: int
    offset: int
    path: str
    written: bool
    """Pages of it were written to in memory, so that they no longer are what the file holds."""


class Mappings:
    """The files that are mapped into this process, as of now; without programs and libraries."""

    def __init__(self) -> None:
        self._areas = _read()
        self._starts = [area.start for area in self._areas]

    def __bool__(self) -> bool:
        return bool(self._areas)

    def find(self, address: int, length: int) -> ByteRange | None:
        """Where in a file these bytes of memory lie; nothing where they lie in none, or differ from it."""
        i = bisect.bisect_right(self._starts, address) - 1
        if i < 0 or length == 0:
            return None
        first = self._areas[i]
        span = ByteRange(first.path, first.offset + address - first.start, length)
        while True:  # one mapping may be cut into several areas, whose access differs
            area = self._areas[i]
            if address >= area.end or area.written or area.path != span.path:
                return None
            if address + length <= area.end:
                return span
            length -= area.end - address
            address = area.end
            i += 1
            if i == len(self._areas) or self._areas[i].start != address:
                return None

    def forget(self) -> None:
        """Gives the memory back that reading them took; the kernel reads again what is asked for again."""
        for area in self._areas:
            if not area.written:
                length = ctypes.c_size_t(area.end - area.start)
                _LIBC.madvise(ctypes.c_void_p(area.start), length, _DONTNEED)


def let_go() -> None:
    """Forgets all of them, and what malloc keeps of memory that was freed.

    Building a large model without room for its parameters leaves malloc a gigabyte of addresses, into which it puts
    whatever is large from then on, and of which it gives nothing back by itself.
    """
    Mappings().forget()
    if hasattr(_LIBC, "malloc_trim"):  # glibc's; others have none
        _LIBC.malloc_trim(0)


_LIBC = ctypes.CDLL(None)
_DONTNEED = 4
"""MADV_DONTNEED. What was written to in memory would be lost by it."""


_DELETED = " (deleted)"


def _read() -> list[_Area]:
    """smaps: a line of addresses for each area, then what is known of it; `Anonymous` is what was written to."""
    try:
        text = Path("/proc/self/smaps").read_text()
    except OSError:
        return []
    areas: list[_Area] = []
    fields: list[str] = []
    programs: set[str] = set()
    for line in text.splitlines():
        head, _, rest = line.partition(" ")
        if "-" in head and not head.endswith(":"):
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and "x" in fields[1]:
                programs.add(fields[5])
        elif head == "Anonymous:" and len(fields) == 6 and fields[5][0] == "/" and not fields[5].endswith(_DELETED):
            start, end = (int(number, 16) for number in fields[0].split("-"))
            areas.append(_Area(start, end, int(fields[2], 16), fields[5], not rest.strip().startswith("0 ")))
    return [area for area in areas if area.path not in programs and os.path.isfile(area.path)]
