"""One command, measured: CPU and wall time, the peak memory of all its processes together, the bytes it wrote.

Memory is the sum of the processes' proportional shares (`Pss`), so that pages which several of them map count once;
mapped pages of the checkpoint count, too.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

EVERY = 0.25
MB = 1_000_000


def family(pid: int) -> Iterator[int]:
    yield pid
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from family(int(child))
    except OSError:
        return


def share(pid: int) -> int:
    """Bytes."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def measured(command: Sequence[str], folder: Path, timeout: float) -> dict[str, Any]:
    """Runs the command, whose files go into the folder."""
    load = os.getloadavg()[0]
    before = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    started, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    log = folder.parent / f"{folder.name}.log"
    peak = 0
    with log.open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as running:
        while running.poll() is None:
            peak = max(peak, sum(share(pid) for pid in family(running.pid)))
            if time.monotonic() - started > timeout:
                running.kill()
            time.sleep(EVERY)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    after = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    text = log.read_text(errors="replace")
    told = re.findall(r"^the call alone: ([\d.]+)", text, re.MULTILINE)
    return {
        "exit": running.returncode,
        "cpu_seconds": round(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, 1),
        "wall_seconds": round(time.monotonic() - started, 1),
        "peak_mb": round(peak / MB),
        "written_mb": round(sum(size for path, size in after.items() if path not in before) / MB, 1),
        "load": load,
        "call_cpu_seconds": float(told[-1]) if told else None,
        "tail": text.strip().splitlines()[-1][:200] if text.strip() else "",
    }
