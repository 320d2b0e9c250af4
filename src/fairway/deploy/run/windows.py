"""Which windows a recording is cut into, and what becomes of its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from fairway.diagnostics.errors import complain

Tail = Literal["short", "shift", "pad", "drop"]
"""The last samples, too few for a window: a shorter one, one moved back, one filled up with zeros, or none."""
Stitch = Literal["blend", "mean", "last"]
"""Where windows overlap: weights that fade in and out, the average, or what the later one says."""
TAILS: tuple[Tail, ...] = get_args(Tail)
STITCHES: tuple[Stitch, ...] = get_args(Stitch)


@dataclass(frozen=True)
class WindowSettings:
    """What was asked for."""

    window: int | None = None
    """Samples in a window; None: the whole recording at once, or `batch` samples where only the batch varies."""
    step: int | None = None
    """Samples from one window to the next; None: as far as leaves no gap."""
    tail: Tail = "short"
    stitch: Stitch = "blend"
    batch: int = 1
    """Windows that are run at once."""
    over: str | None = None
    """The dim that runs along the recording, by its name, or by its number where the file fixes it."""
    carry: Mapping[str, str] = field(default_factory=dict)
    """Inputs that get, from the second window on, what an output said in the window before."""


@dataclass(frozen=True)
class Windows:
    """The windows of one recording. A window of `length` samples answers with `length - lost`."""

    samples: int
    window: int
    step: int
    tail: Tail
    lost: int = 0

    @property
    def full(self) -> int:
        return (self.samples - self.window) // self.step + 1 if self.samples >= self.window else 0

    @property
    def covered(self) -> int:
        """Samples that full windows reach."""
        return (self.full - 1) * self.step + self.window if self.full else 0

    @property
    def count(self) -> int:
        return self.full + (self.covered < self.samples and self.tail != "drop")

    @property
    def answers(self) -> int:
        """How long the stitched output is."""
        reached = self.covered if self.tail == "drop" else self.samples
        return max(reached - self.lost, 0)

    def span(self, number: int) -> tuple[int, int]:
        """Where a window begins, and how many samples of the recording it holds."""
        start = number * self.step
        if number < self.full:
            return start, self.window
        if self.tail == "shift" and self.samples >= self.window:
            start = self.samples - self.window
        return start, self.samples - start

    def first_over(self, position: int) -> int:
        """The first window that says something about an output position or later ones."""
        reach = self.window - self.lost
        return min(max(-(-(position - reach + 1) // self.step), 0), self.count)


def lay_out(how: WindowSettings, samples: int, window: int, lost: int) -> Windows:
    """The windows; refused where they would leave gaps, or where state would be carried over samples seen twice."""
    if window <= lost:
        raise complain("FW810", f"a window of {window} samples answers with nothing; {lost} are lost in each")
    step = how.step or window - lost
    if step > window - lost:
        seen = f"steps of {step} with windows of {window}, of which {lost} give no answer, leave gaps"
        raise complain("FW810", seen, todo=(f"Take --step {window - lost} or less.",))
    if how.carry and (step != window or lost or how.batch > 1 or how.tail == "shift"):
        why = "windows must follow one another, one by one: --step as --window, --batch 1, no --tail shift"
        raise complain("FW810", f"state is carried from window to window: {why}")
    return Windows(samples, window, step, how.tail, lost)
