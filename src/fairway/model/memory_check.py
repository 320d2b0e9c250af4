"""What asks for more memory than the machine has is refused by its own description, before any is asked for."""

from __future__ import annotations

import os
import stat
from functools import cache
from pathlib import Path

UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


@cache
def room() -> int:
    """The memory of this machine, or of the container it is."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine


def amount(size: int) -> str:
    """`12 bytes`, `3.5 GB`; beyond the last unit a power of ten, since a header can name any number."""
    for power, unit in enumerate(UNITS):
        if size < 1000 ** (power + 1):
            return f"{size} bytes" if power == 0 else f"{size / 1000**power:.1f} {unit}"
    return f"10^{len(str(size)) - 1} bytes" if size < 10**4000 else "10^4000 bytes or more"


def is_regular(path: Path) -> bool:
    """A plain file. A pipe or device would block whoever opens it, or never end; odd names are no file either."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False
