"""What a variant must reach to be shipped, and how near it came."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fairway.tune.quantize.accuracy import Judged

SMALLER = 0.9
"""A share of the float file's size that counts as smaller, where no share was asked for."""


@dataclass(frozen=True)
class Budget:
    """Shares of 1. Without a wish for speed or size, a variant must be faster, or smaller and not slower."""

    max_drop: float = 0.01
    min_speedup: float | None = None
    max_size: float | None = None

    def within(self, judged: Judged) -> bool:
        """Whether the quality is good enough."""
        return judged.drop <= self.max_drop

    def met(self, judged: Judged) -> bool:
        return not self.lacking(judged)

    def lacking(self, judged: Judged) -> list[str]:
        """Each wish that is not met, with the number asked for and the number reached."""
        found = []
        if not self.within(judged):
            found.append(f"drop {judged.drop:.2%} > {self.max_drop:.2%}")
        if self.max_size is not None and judged.size_share > self.max_size:
            found.append(f"size {judged.size_share:.0%} > {self.max_size:.0%}")
        speed = judged.speed
        if self.min_speedup is not None and (speed is None or speed.value < self.min_speedup):
            found.append(f"speed {speed.value:.2f}x < {self.min_speedup:g}x" if speed else "speed not taken")
        elif self.min_speedup is not None and self.min_speedup > 1 and speed is not None and not speed.faster:
            found.append(f"speed {speed.value:.2f}x is not shown to be above 1")
        if self.min_speedup is None and self.max_size is None and speed is not None:
            if speed.slower:
                found.append(f"slower than the float file: {speed.value:.2f}x")
            elif not speed.faster and judged.size_share > SMALLER:
                found.append(f"neither faster nor smaller: {speed}, size {judged.size_share:.0%}")
        return found

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
