"""The CPU's 8-bit arithmetic, and the case in which its sums overflow.

x86 without VNNI multiplies unsigned by signed bytes in pairs and adds each pair in 16 bits (`vpmaddubsw`): two large
products saturate without a warning. One bit less in the weights leaves room for the sum. With VNNI, and on ARM, sums
have 32 bits. So the file that is best for one CPU may be wrong on another, and a record names its CPU.
"""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from fairway.diagnostics import Code, Finding

CPUINFO = Path("/proc/cpuinfo")
RELEVANT_FLAGS = (
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
    """The properties of a machine that matter for quantized arithmetic."""

    machine: str
    name: str
    flags: tuple[str, ...]

    @property
    def x86(self) -> bool:
        return self.machine.lower() in ("x86_64", "amd64", "i686")

    @property
    def saturates(self) -> bool:
        """True if sums of unsigned times signed bytes may overflow."""
        return self.x86 and not WIDE_SUMS & set(self.flags)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "flags": list(self.flags), "saturates": self.saturates}


@dataclass(frozen=True)
class Int8Types:
    """The 8-bit types to use, and the reason."""

    activations: str
    weights: str
    reduce_range: bool
    why: str


def detect_cpu(cpuinfo: Path = CPUINFO) -> Cpu:
    """Return what Linux reports about the first core. On other systems no flags are known, and none are assumed."""
    fields: dict[str, str] = {}
    try:
        for line in cpuinfo.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    return Cpu(platform.machine(), fields.get("model name", "unknown"), tuple(f for f in RELEVANT_FLAGS if f in flags))


def choose_arithmetic(cpu: Cpu) -> Int8Types:
    """Return the 8-bit types that this CPU computes correctly."""
    if not cpu.x86:
        return Int8Types("int8", "int8", False, "ARM kernels take signed bytes and sum in 32 bits")
    if cpu.saturates:
        why = "without VNNI, sums of byte products saturate at 16 bits: weights keep one bit free"
        return Int8Types("uint8", "int8", True, why)
    return Int8Types("uint8", "int8", False, "with VNNI, sums of byte products have 32 bits")


class RecordedCpu(Protocol):
    """A CPU as the record of a quantized file describes it."""

    @property
    def machine(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def saturates(self) -> bool: ...


def check_cpu(made_on: RecordedCpu, reduce_range: bool, cpu: Cpu) -> Finding | None:
    """Return a warning if a quantized file was made for a CPU that computes it differently, else None."""
    if cpu.saturates and not made_on.saturates and not reduce_range:
        lacking = ", ".join(sorted(WIDE_SUMS))
        seen = f"it was made on {made_on.name}, with full 8-bit weights; this CPU has none of {lacking}"
        return Finding(Code.MADE_FOR_ANOTHER_CPU, seen)
    if made_on.machine != cpu.machine:
        seen = f"it was made on {made_on.machine} ({made_on.name}); this is {cpu.machine} ({cpu.name})"
        return Finding(Code.MADE_FOR_ANOTHER_CPU, seen)
    return None
