"""What this CPU computes with 8-bit numbers, and which of them it gets wrong.

x86 without VNNI multiplies unsigned by signed bytes in pairs and adds each pair in 16 bits (`vpmaddubsw`): two large
products saturate, silently. One bit less in the weights leaves room for the sum. With VNNI, and on ARM, sums have 32
bits. So the file that is best for one CPU may be wrong on another, and a record names the CPU it was made for.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fairway.diagnostics import Finding

CPUINFO = Path("/proc/cpuinfo")
TOLD = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimddp",
    "i8mm",
    "bf16",
    "fphp",
)
"""The flags that matter for 8-bit and 16-bit arithmetic."""
WIDE_SUMS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
"""x86 flags with which sums of byte products have 32 bits."""


@dataclass(frozen=True)
class Cpu:
    """The machine as far as quantised arithmetic goes."""

    machine: str
    name: str
    flags: tuple[str, ...]

    @property
    def x86(self) -> bool:
        return self.machine.lower() in ("x86_64", "amd64", "i686")

    @property
    def saturates(self) -> bool:
        """Whether unsigned times signed bytes may overflow on the way."""
        return self.x86 and not WIDE_SUMS & set(self.flags)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "flags": list(self.flags), "saturates": self.saturates}


@dataclass(frozen=True)
class Int8Types:
    """The 8-bit types to use, and why."""

    activations: str
    weights: str
    reduce_range: bool
    why: str


def this_cpu(cpuinfo: Path = CPUINFO) -> Cpu:
    """What the kernel says of the first core; without a kernel that says, the flags are unknown and none is assumed."""
    said: dict[str, str] = {}
    try:
        for line in cpuinfo.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            said.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    flags = set(said.get("flags", said.get("Features", "")).split())
    return Cpu(platform.machine(), said.get("model name", "unknown"), tuple(f for f in TOLD if f in flags))


def choose_arithmetic(cpu: Cpu) -> Int8Types:
    if not cpu.x86:
        return Int8Types("int8", "int8", False, "ARM kernels take signed bytes and sum in 32 bits")
    if cpu.saturates:
        why = "without VNNI, sums of byte products saturate at 16 bits: weights keep one bit free"
        return Int8Types("uint8", "int8", True, why)
    return Int8Types("uint8", "int8", False, "with VNNI, sums of byte products have 32 bits")


def made_elsewhere(record: Mapping[str, Any], cpu: Cpu) -> Finding | None:
    """A warning where a quantised file was made for a CPU that computes it in another way than this one."""
    made = record.get("quantised")
    if not isinstance(made, Mapping) or not isinstance(made.get("cpu"), Mapping):
        return None
    theirs, arithmetic = made["cpu"], made.get("arithmetic") or {}
    family = theirs.get("machine")
    if cpu.saturates and not theirs.get("saturates") and not arithmetic.get("reduce_range"):
        lacking = ", ".join(sorted(WIDE_SUMS))
        seen = f"it was made on {theirs.get('name')}, with full 8-bit weights; this CPU has none of {lacking}"
        return Finding("FW706", seen)
    if family != cpu.machine:
        return Finding("FW706", f"it was made on {family} ({theirs.get('name')}); this is {cpu.machine} ({cpu.name})")
    return None
