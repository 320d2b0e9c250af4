"""What this machine is and has, as far as it matters to an export. Nothing is imported for it that could be broken."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from fairway.diagnostics import Finding

PACKAGES = (
    "torch",
    "onnx",
    "onnx-ir",
    "onnxscript",
    "onnxruntime",
    "openvino",
    "numpy",
    "ml-dtypes",
    "protobuf",
    "transformers",
    "safetensors",
    "sympy",
)

NEEDED = ("numpy", "torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime")
"""What every export imports, in an order in which the one to blame comes first."""

WISHED = ("openvino", "transformers")
"""What is imported where it is installed."""

FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "avx512_bf16",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
)
"""What decides which kernels a runtime takes, and with them speed and the last digits, int8 above all."""

LITTLE = 2**30
"""Bytes of memory or disk below which an export of anything but a toy is likely to fail."""

_IMPORT = """
import importlib, json, os, sys, warnings
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
warnings.simplefilter("ignore")
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        problem = ""
    except BaseException as error:
        problem = f"{type(error).__name__}: {error}"
    out.write(json.dumps([name, problem]) + "\\n")
    out.flush()
if "onnxruntime" in sys.modules:
    out.write(json.dumps(["providers", sys.modules["onnxruntime"].get_available_providers()]) + "\\n")
"""


@dataclass(frozen=True)
class Machine:
    """Versions, platform, room, and what can be imported."""

    versions: dict[str, str]
    platform: str
    libc: str
    cpus: int
    flags: tuple[str, ...]
    memory: int
    """Bytes that are available, within the container's limit where there is one."""
    memory_total: int
    disk: int
    """Bytes free in the folder for temporary files."""
    providers: tuple[str, ...] = ()
    broken: dict[str, str] = field(default_factory=dict)
    """Modules that cannot be imported, and why."""


def look_around() -> Machine:
    """Looks at everything; each import happens in a process of its own, which it may take down."""
    imports, providers = try_imports((*NEEDED, *(name for name in WISHED if _installed(name))))
    available, total = _memory()
    return Machine(
        versions=versions(),
        platform=f"{platform.system()} {platform.release()}, {platform.machine()}",
        libc=" ".join(platform.libc_ver()).strip() or "unknown",
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        flags=tuple(flag for flag in FLAGS if flag in _cpu_flags()),
        memory=available,
        memory_total=total,
        disk=shutil.disk_usage(tempfile.gettempdir()).free,
        providers=tuple(providers),
        broken={name: problem for name, problem in imports.items() if problem},
    )


def versions() -> dict[str, str]:
    """What is installed, by the names to install it by; Python among them."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def try_imports(names: Sequence[str], seconds: float = 120.0) -> tuple[dict[str, str], list[str]]:
    """Why each module cannot be imported, empty where it can; and ONNX Runtime's providers.

    An import that kills its process, as an illegal instruction does, is a result; the rest are tried without it.
    """
    found: dict[str, str] = {}
    providers: list[str] = []
    while left := [name for name in names if name not in found]:
        said, ending = _run([sys.executable, "-c", _IMPORT, *left], seconds)
        for line in said.splitlines():
            with contextlib.suppress(ValueError):
                name, answer = json.loads(line)
                if name == "providers":
                    providers = answer
                else:
                    found[name] = answer
        silent = next((name for name in left if name not in found), None)
        if silent is not None:
            found[silent] = ending
    return found, providers


def _run(command: list[str], seconds: float) -> tuple[str, str]:
    """What a process printed, and how it ended where it did not end well."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode(errors="replace"), f"no answer within {seconds:.0f} s"
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    return done.stdout.decode(errors="replace"), f"the import ended its process with {how}"


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _cpu_flags() -> set[str]:
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return set(found[1].split()) if found else set()


def _memory() -> tuple[int, int]:
    """Bytes available and in all; a container's limit counts where it is lower."""
    sizes = {name: int(kb) * 1024 for name, kb in re.findall(r"^(\w+):\s+(\d+) kB$", _read("/proc/meminfo"), re.M)}
    total, available = sizes.get("MemTotal", 0), sizes.get("MemAvailable", 0)
    limit, used = _read("/sys/fs/cgroup/memory.max").strip(), _read("/sys/fs/cgroup/memory.current").strip()
    if limit.isdigit() and used.isdigit() and int(limit) < total:
        total, available = int(limit), min(available, max(int(limit) - int(used), 0))
    return available, total


def complaints(machine: Machine) -> list[Finding]:
    """What is wrong with the machine as it stands, before anything is exported."""
    found = [
        Finding(
            "FW604",
            f"import {name}: {problem}",
            todo=(f"Run python -c 'import {name}' and read its error.", f"Install it again: pip install {name}"),
        )
        for name, problem in machine.broken.items()
        if name in NEEDED
    ]
    for what, size in (("memory", machine.memory), ("disk for temporary files", machine.disk)):
        if 0 < size < LITTLE:
            found.append(Finding("FW605", f"{size / 2**20:.0f} MB of {what}"))
    return found
