"""The requirements on a quantized file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fairway.tune.quantize.accuracy import JudgedVariant

SMALLER_SIZE_SHARE = 0.9
"""A file of at most this share of the float file's size counts as smaller if no share was requested."""


@dataclass(frozen=True)
class Budget:
    """Limits on a variant, as shares of 1.

    Without a limit on speed or size, a variant must be faster, or smaller and not slower.
    """

    max_drop: float = 0.01
    min_speedup: float | None = None
    max_size: float | None = None

    def is_drop_allowed(self, judged: JudgedVariant) -> bool:
        """Return whether the quality is good enough."""
        return judged.drop <= self.max_drop

    def is_met_by(self, judged: JudgedVariant) -> bool:
        return not self.list_shortfalls(judged)

    def list_shortfalls(self, judged: JudgedVariant) -> list[str]:
        """Describe each limit that is not met, with the number required and the number reached."""
        shortfalls = []
        if not self.is_drop_allowed(judged):
            shortfalls.append(f"drop {judged.drop:.2%} > {self.max_drop:.2%}")
        if self.max_size is not None and judged.size_share > self.max_size:
            shortfalls.append(f"size {judged.size_share:.0%} > {self.max_size:.0%}")
        speed = judged.speed
        if self.min_speedup is not None and (speed is None or speed.value < self.min_speedup):
            shortfalls.append(f"speed {speed.value:.2f}x < {self.min_speedup:g}x" if speed else "speed not measured")
        elif self.min_speedup is not None and self.min_speedup > 1 and speed is not None and not speed.is_faster:
            shortfalls.append(f"speed {speed.value:.2f}x is not shown to be above 1")
        if self.min_speedup is None and self.max_size is None and speed is not None:
            if speed.is_slower:
                shortfalls.append(f"slower than the float file: {speed.value:.2f}x")
            elif not speed.is_faster and judged.size_share > SMALLER_SIZE_SHARE:
                shortfalls.append(f"neither faster nor smaller: {speed}, size {judged.size_share:.0%}")
        return shortfalls

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
