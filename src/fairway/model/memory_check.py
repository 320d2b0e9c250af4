"""Checks what a file claims to need against the machine's memory, before anything is allocated."""

from __future__ import annotations

import os
import stat
from functools import cache
from pathlib import Path

BYTE_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


@cache
def read_memory_bytes() -> int:
    """Return the memory of this machine, or the limit of the container."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine


def format_bytes(size: int) -> str:
    """Return `12 bytes` or `3.5 GB`; beyond the last unit a power of ten, since a header can name any number."""
    for power, unit in enumerate(BYTE_UNITS):
        if size < 1000 ** (power + 1):
            return f"{size} bytes" if power == 0 else f"{size / 1000**power:.1f} {unit}"
    return f"10^{len(str(size)) - 1} bytes" if size < 10**4000 else "10^4000 bytes or more"


def is_regular_file(path: Path) -> bool:
    """Return whether the path is a regular file. Reading from a pipe or device may block or never end."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False
