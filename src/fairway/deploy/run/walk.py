"""The walk along one recording: windows in, answers out, noted as it goes, so that a killed run goes on."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairway.deploy.run.parity import Eager
from fairway.deploy.run.recordings import Arrays, open_recording
from fairway.deploy.run.stitch import Stitched
from fairway.deploy.run.window_engine import Array, Engine, Feeds, Lane
from fairway.deploy.run.windows import Windows, WindowSettings, lay_out
from fairway.diagnostics.errors import complain

NOTED = 2.0
"""Seconds between two notes of progress."""
STATE, SCRAPS = "state.npz", ".scraps"

Progress = Callable[[Any], None]


def quiet(event: object) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class FinishedRecording:
    """One recording: how it was cut, and what came out."""

    recording: str
    samples: int
    windows: int
    window: int
    step: int
    seconds: float
    outputs: dict[str, tuple[int, ...]]
    difference: dict[str, float] | None
    """The largest absolute difference to PyTorch, by output; None where it was not asked for."""


class Walk:
    """One recording's."""

    def __init__(
        self, engine: Engine, how: WindowSettings, path: Path, folder: Path, eager: Eager | None, progress: Progress
    ) -> None:
        self._engine, self._how, self._path, self._folder = engine, how, path, folder
        self._eager, self._progress = eager, progress

    def go(self, verified: tuple[int, int] | None) -> FinishedRecording:
        started = time.monotonic()
        scraps = self._folder / SCRAPS
        shutil.rmtree(scraps, ignore_errors=True)
        scraps.mkdir()
        arrays = open_recording(self._path, list(self._engine.inputs), scraps)
        lanes = self._engine.lanes(arrays, self._path.name)
        samples = self._samples(lanes)
        window = self._how.window or (samples if self._engine.batched else min(self._how.batch, samples))
        windows, axes = self._cut(lanes, arrays, samples, window)
        self._check(windows, verified)
        outputs = self._walk(lanes, arrays, windows, axes)
        shutil.rmtree(scraps)
        (self._folder / STATE).unlink(missing_ok=True)
        return FinishedRecording(
            self._path.name,
            samples,
            windows.count,
            windows.window,
            windows.step,
            time.monotonic() - started,
            outputs,
            None if self._eager is None else dict(self._eager.largest),
        )

    def _samples(self, lanes: dict[str, Lane]) -> int:
        counts = {lane.samples for lane in lanes.values() if lane.samples is not None}
        if len(counts) != 1 or 0 in counts:
            told = ", ".join(f"{name} has {lane.samples}" for name, lane in lanes.items())
            raise complain("FW113", f"{self._path.name}: the arrays are not of one length: {told} samples")
        return int(counts.pop() or 0)

    def _cut(
        self, lanes: dict[str, Lane], arrays: Arrays, samples: int, window: int
    ) -> tuple[Windows, dict[str, int | None]]:
        found = self._engine.probe(window, lanes, self._engine.first_state(self._how, arrays))
        carried = set(self._how.carry.values())
        along = {lost for name, (axis, lost) in found.items() if axis is not None and name not in carried}
        if len(along) > 1:
            raise complain("FW810", f"outputs lose different numbers of samples: {', '.join(map(str, sorted(along)))}")
        windows = lay_out(self._how, samples, window, along.pop() if along else 0)
        return windows, {name: axis for name, (axis, _) in found.items() if name not in carried}

    def _check(self, windows: Windows, verified: tuple[int, int] | None) -> None:
        if not windows.count:
            raise complain("FW810", f"{self._path.name} is shorter than one window, and its tail is dropped")
        if verified is None:
            return
        full = windows.full or windows.tail == "pad"
        last = windows.window if windows.tail == "pad" else windows.span(windows.count - 1)[1]
        for length in (windows.window if full else last, last):
            if not verified[0] <= length <= verified[1]:
                bounds = f"{self._engine.over} {verified[0]}..{verified[1]}"
                raise complain("FW811", f"a window of {length} samples; the file is verified for {bounds}")

    def _walk(
        self, lanes: dict[str, Lane], arrays: Arrays, windows: Windows, axes: dict[str, int | None]
    ) -> dict[str, tuple[int, ...]]:
        state = self._engine.first_state(self._how, arrays)
        number, done, state = self._resume(windows, axes, state)
        kept: dict[str, Stitched] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        began, first, noted = time.monotonic(), number, time.monotonic()
        while number < windows.count:
            group = self._group(windows, number)
            answers, state = self._ask(lanes, windows, group, state)
            for name, axis in axes.items():
                for place, one in zip(group, answers[name], strict=True):
                    moved = one[None] if axis is None else np.moveaxis(one, axis, 0)
                    if name not in kept:
                        length = windows.count if axis is None else windows.answers
                        shapes[name] = (length, *moved.shape[1:])
                        stitch = "last" if axis is None else self._how.stitch
                        path = self._folder / f"{_plain(name)}.npy"
                        kept[name] = Stitched(path, length, moved.shape[1:], moved.dtype, stitch, done.get(name, 0))
                    start, count = windows.span(place)
                    said = moved if axis is None else moved[: count - windows.lost]
                    kept[name].add(place if axis is None else start, said)
            number += len(group)
            ready = windows.span(number)[0] if number < windows.count else windows.answers
            for name, stitched in kept.items():
                stitched.settle(number if axes[name] is None else ready)
            if time.monotonic() - noted > NOTED:
                self._note(number, kept, state)
                noted = time.monotonic()
            self._tell(windows, number, first, began)
        for stitched in kept.values():
            stitched.close()
        return shapes

    def _group(self, windows: Windows, number: int) -> list[int]:
        """Windows of one length that are run at once; groups begin at multiples of the batch, also after a resume."""
        size = self._how.batch if self._engine.batched else 1
        numbers = range(number, min(number + size - number % size, windows.count))
        first = windows.span(number)[1]
        return [one for one in numbers if self._how.tail == "pad" or windows.span(one)[1] == first] or [number]

    def _ask(
        self, lanes: dict[str, Lane], windows: Windows, group: list[int], state: Feeds
    ) -> tuple[dict[str, list[Array]], Feeds]:
        spans = [windows.span(one) for one in group]
        feeds = {**self._engine.feed(lanes, spans, windows.window if windows.tail == "pad" else 0), **state}
        answers = dict(zip(self._engine.outputs, self._engine.run(feeds), strict=True))
        if self._eager is not None:
            self._eager.compare(feeds, list(answers), list(answers.values()))
        state = {name: answers[output] for name, output in self._how.carry.items()}
        return {name: list(one) if self._engine.batched else [one] for name, one in answers.items()}, state

    def _note(self, number: int, kept: dict[str, Stitched], state: Feeds) -> None:
        """What is written is on the disk before the note says so; the note itself is renamed into place."""
        for stitched in kept.values():
            stitched.flush()
        fresh = self._folder / f"{STATE}.new"
        with fresh.open("wb") as file:
            note = json.dumps({"window": number, "done": {name: one.done for name, one in kept.items()}})
            arrays: dict[str, Any] = {f"carry:{name}": array for name, array in state.items()}
            np.savez(file, note=np.array(note), **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self._folder / STATE)

    def _resume(self, windows: Windows, axes: dict[str, int | None], state: Feeds) -> tuple[int, dict[str, int], Feeds]:
        """The window to go on with, and how far each output is written."""
        path = self._folder / STATE
        if not path.exists():
            return 0, {}, state
        with np.load(path, allow_pickle=False) as kept:
            note = json.loads(str(kept["note"]))
            if state:
                return note["window"], note["done"], {name: kept[f"carry:{name}"] for name in state}
        open_ones = [windows.first_over(at) for name, at in note["done"].items() if axes[name] is not None]
        number = min([note["window"], *open_ones])
        size = self._how.batch if self._engine.batched else 1
        return number - number % size, note["done"], state

    def _tell(self, windows: Windows, number: int, first: int, began: float) -> None:
        spent = time.monotonic() - began
        rate = (number - first) * windows.step / max(spent, 1e-9)
        self._progress(("count", number, windows.count, "windows", f"{self._path.name}, {rate:.3g} samples/s"))


def _plain(name: str) -> str:
    """A file's name for an output's."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
