"""Finds the file that a tensor's bytes are mapped from: safetensors, torch.load(mmap=True) and transformers map files.

The kernel has this information. So it does not matter who loaded a checkpoint, under which names, in how many shards,
which tensors are tied, or what the file is called: a hub's cache names files by their hashes, and links to them. This
works on Linux only; on other systems no tensor is found in a file.
"""

from __future__ import annotations

import bisect
import ctypes
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ByteRange:
    """A range of bytes in a file."""

    path: str
    offset: int
    length: int


@dataclass(frozen=True)
class _MappedArea:
    start: int
    end: int
    offset: int
    path: str
    written: bool
    """True if pages of it were written to in memory, so that they differ from the file."""


class Mappings:
    """The files that are mapped into this process at this moment, without programs and libraries."""

    def __init__(self) -> None:
        self._areas = _read_areas()
        self._starts = [area.start for area in self._areas]

    def __bool__(self) -> bool:
        return bool(self._areas)

    def find(self, address: int, length: int) -> ByteRange | None:
        """Return the bytes of a file that are at this address, or None if there are none, or if they were changed."""
        i = bisect.bisect_right(self._starts, address) - 1
        if i < 0 or length == 0:
            return None
        first = self._areas[i]
        span = ByteRange(first.path, first.offset + address - first.start, length)
        while True:  # a mapping may consist of several areas with different access rights
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
        """Free the memory that holds their pages. The kernel reads a page again when it is needed again."""
        for area in self._areas:
            if not area.written:
                length = ctypes.c_size_t(area.end - area.start)
                _LIBC.madvise(ctypes.c_void_p(area.start), length, _DONTNEED_ADVICE)


def release_mapped_memory() -> None:
    """Free the pages of all mapped files, and the freed memory that malloc keeps.

    Building a large model on the meta device leaves malloc a gigabyte of addresses. It puts every large block there
    from then on, and does not return the memory by itself.
    """
    Mappings().forget()
    if hasattr(_LIBC, "malloc_trim"):  # only in glibc
        _LIBC.malloc_trim(0)


_LIBC = ctypes.CDLL(None)
_DONTNEED_ADVICE = 4
"""MADV_DONTNEED. It discards what was written to the pages in memory."""

_DELETED = " (deleted)"


def _read_areas() -> list[_MappedArea]:
    """Parse smaps: a line of addresses for each area, then its properties. `Anonymous` counts the bytes written to."""
    try:
        text = Path("/proc/self/smaps").read_text()
    except OSError:
        return []
    areas: list[_MappedArea] = []
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
            areas.append(_MappedArea(start, end, int(fields[2], 16), fields[5], not rest.strip().startswith("0 ")))
    return [area for area in areas if area.path not in programs and os.path.isfile(area.path)]
