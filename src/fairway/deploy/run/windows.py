"""The windows that a recording is cut into, and the treatment of its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain

Tail = Literal["short", "shift", "pad", "drop"]
"""The window at the end, where too few samples are left: shorter, moved back, padded with zeros, or none."""
Stitch = Literal["blend", "mean", "last"]
"""The output where windows overlap: a mean with weights that fade in and out, a plain mean, or the last one."""
TAILS: tuple[Tail, ...] = get_args(Tail)
STITCHES: tuple[Stitch, ...] = get_args(Stitch)


@dataclass(frozen=True)
class WindowSettings:
    """The options of a run that concern windows."""

    window: int | None = None
    """Samples in a window; None: the whole recording at once, or `batch` samples where only the batch varies."""
    step: int | None = None
    """Samples from one window to the next; None: as many as possible without a gap."""
    tail: Tail = "short"
    stitch: Stitch = "blend"
    batch: int = 1
    """Windows that are run at once."""
    over: str | None = None
    """The dim along the recording, by its name, or by its number if its size is fixed in the file."""
    carry: Mapping[str, str] = field(default_factory=dict)
    """Inputs that get the value of an output in the window before, from the second window on."""


@dataclass(frozen=True)
class Windows:
    """The windows of one recording. The output for a window of `length` samples has `length - lost`."""

    samples: int
    window: int
    step: int
    tail: Tail
    lost: int = 0

    @property
    def full(self) -> int:
        return (self.samples - self.window) // self.step + 1 if self.samples >= self.window else 0

    @property
    def covered_samples(self) -> int:
        """Samples that full windows cover."""
        return (self.full - 1) * self.step + self.window if self.full else 0

    @property
    def count(self) -> int:
        return self.full + (self.covered_samples < self.samples and self.tail != "drop")

    @property
    def answers(self) -> int:
        """The length of the stitched output."""
        used = self.covered_samples if self.tail == "drop" else self.samples
        return max(used - self.lost, 0)

    def span(self, number: int) -> tuple[int, int]:
        """Return the start of a window and its number of samples."""
        start = number * self.step
        if number < self.full:
            return start, self.window
        if self.tail == "shift" and self.samples >= self.window:
            start = self.samples - self.window
        return start, self.samples - start

    def find_first_window(self, position: int) -> int:
        """Return the first window whose output reaches a position."""
        reach = self.window - self.lost
        return min(max(-(-(position - reach + 1) // self.step), 0), self.count)


def plan_windows(how: WindowSettings, samples: int, window: int, lost: int) -> Windows:
    """Plan the windows. Refuses gaps, and carried state if windows overlap."""
    if window <= lost:
        seen = f"the model returns no output for {lost} samples of each window, and a window has {window}"
        raise complain(Code.WINDOWS_DO_NOT_FIT, seen)
    step = how.step or window - lost
    if step > window - lost:
        seen = f"steps of {step} with windows of {window}, of which {lost} have no output, leave gaps"
        raise complain(Code.WINDOWS_DO_NOT_FIT, seen, todo=(f"Take --step {window - lost} or less.",))
    if how.carry and (step != window or lost or how.batch > 1 or how.tail == "shift"):
        seen = "--carry needs windows that follow each other: --step equal to --window, --batch 1, no --tail shift"
        raise complain(Code.WINDOWS_DO_NOT_FIT, seen)
    return Windows(samples, window, step, how.tail, lost)
