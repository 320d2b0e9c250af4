"""The properties of this machine that matter to an export. Imports no package that could be broken."""

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

from fairway.diagnostics import Code, Finding

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

REQUIRED_MODULES = ("numpy", "torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime")
"""The modules that every export imports, ordered so that the one to blame comes first."""

OPTIONAL_MODULES = ("openvino", "transformers")
"""Imported if they are installed."""

CPU_FLAGS = (
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
"""They decide which kernels a runtime uses, and so speed and the last digits, above all for int8."""

MIN_FREE_BYTES = 2**30
"""With less memory or disk an export of any real model is likely to fail."""

_IMPORT_PROGRAM = """
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
    """Versions, platform, free memory and disk, and the modules that can be imported."""

    versions: dict[str, str]
    platform: str
    libc: str
    cpus: int
    flags: tuple[str, ...]
    memory: int
    """Available bytes, within the container's limit if there is one."""
    memory_total: int
    disk: int
    """Bytes free in the folder for temporary files."""
    providers: tuple[str, ...] = ()
    broken: dict[str, str] = field(default_factory=dict)
    """Modules that cannot be imported, with the error."""


def inspect_machine() -> Machine:
    """Collect everything; imports run in a separate process, which they may crash."""
    imports, providers = try_imports((*REQUIRED_MODULES, *(name for name in OPTIONAL_MODULES if _is_installed(name))))
    available, total = _read_memory()
    return Machine(
        versions=list_versions(),
        platform=f"{platform.system()} {platform.release()}, {platform.machine()}",
        libc=" ".join(platform.libc_ver()).strip() or "unknown",
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        flags=tuple(flag for flag in CPU_FLAGS if flag in _read_cpu_flags()),
        memory=available,
        memory_total=total,
        disk=shutil.disk_usage(tempfile.gettempdir()).free,
        providers=tuple(providers),
        broken={name: problem for name, problem in imports.items() if problem},
    )


def list_versions() -> dict[str, str]:
    """Return installed versions by package name, including Python's."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def try_imports(names: Sequence[str], seconds: float = 120.0) -> tuple[dict[str, str], list[str]]:
    """Return the import error of each module, empty if it works; and ONNX Runtime's providers.

    An import that kills its process, such as by an illegal instruction, is a result; the remaining ones are tried
    again.
    """
    problems: dict[str, str] = {}
    providers: list[str] = []
    while pending := [name for name in names if name not in problems]:
        output, ending = _run_command([sys.executable, "-c", _IMPORT_PROGRAM, *pending], seconds)
        for line in output.splitlines():
            with contextlib.suppress(ValueError):
                name, value = json.loads(line)
                if name == "providers":
                    providers = value
                else:
                    problems[name] = value
        killed_by = next((name for name in pending if name not in problems), None)
        if killed_by is not None:
            problems[killed_by] = ending
    return problems, providers


def _run_command(command: list[str], seconds: float) -> tuple[str, str]:
    """Return what a process printed, and how it ended if it failed."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode(errors="replace"), f"no answer within {seconds:.0f} s"
    ending = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    return done.stdout.decode(errors="replace"), f"the import ended its process with {ending}"


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _read_cpu_flags() -> set[str]:
    match = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", _read_text("/proc/cpuinfo"), re.MULTILINE)
    return set(match[1].split()) if match else set()


def _read_memory() -> tuple[int, int]:
    """Return available and total bytes; a container's limit counts if it is lower."""
    sizes = {name: int(kb) * 1024 for name, kb in re.findall(r"^(\w+):\s+(\d+) kB$", _read_text("/proc/meminfo"), re.M)}
    total, available = sizes.get("MemTotal", 0), sizes.get("MemAvailable", 0)
    limit, used = _read_text("/sys/fs/cgroup/memory.max").strip(), _read_text("/sys/fs/cgroup/memory.current").strip()
    if limit.isdigit() and used.isdigit() and int(limit) < total:
        total, available = int(limit), min(available, max(int(limit) - int(used), 0))
    return available, total


def find_problems(machine: Machine) -> list[Finding]:
    """Return the problems of the machine itself, before anything is exported."""
    findings = [
        Finding(
            Code.IMPORT_FAILS,
            f"import {name}: {problem}",
            todo=(f"Run python -c 'import {name}' and read its error.", f"Install it again: pip install {name}"),
        )
        for name, problem in machine.broken.items()
        if name in REQUIRED_MODULES
    ]
    for resource, size in (("memory", machine.memory), ("disk for temporary files", machine.disk)):
        if 0 < size < MIN_FREE_BYTES:
            findings.append(Finding(Code.LITTLE_ROOM, f"{size / 2**20:.0f} MB of {resource}"))
    return findings
