"""Run the windows of one recording in order. Progress is stored, so that a killed run can be continued."""

from __future__ import annotations

import io
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairway.deploy.run.parity import EagerComparison
from fairway.deploy.run.recordings import Arrays, open_recording
from fairway.deploy.run.stitch import StitchedOutput
from fairway.deploy.run.window_engine import Array, Engine, Feeds, Lane
from fairway.deploy.run.windows import Windows, WindowSettings, plan_windows
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.record.progress import EventSink, ItemsCounted
from fairway.workers.workshop import replace_file

NOTE_SECONDS = 2.0
"""Seconds between two stored states."""
STATE_FILE, SCRAPS_FOLDER = "state.npz", ".scraps"


@dataclass(frozen=True)
class FinishedRecording:
    """The windows and outputs of one recording."""

    recording: str
    samples: int
    windows: int
    window: int
    step: int
    seconds: float
    outputs: dict[str, tuple[int, ...]]
    difference: dict[str, float] | None
    """The largest absolute difference from PyTorch, by output; None if it was not requested."""


class Walk:
    """The run of one recording."""

    def __init__(
        self,
        engine: Engine,
        how: WindowSettings,
        path: Path,
        folder: Path,
        eager: EagerComparison | None,
        on_event: EventSink,
    ) -> None:
        self._engine, self._how, self._path, self._folder = engine, how, path, folder
        self._eager, self._on_event = eager, on_event

    def go(self, verified: tuple[int, int] | None) -> FinishedRecording:
        started = time.monotonic()
        scraps = self._folder / SCRAPS_FOLDER
        shutil.rmtree(scraps, ignore_errors=True)
        scraps.mkdir()
        arrays = open_recording(self._path, list(self._engine.inputs), scraps)
        lanes = self._engine.make_lanes(arrays, self._path.name)
        samples = self._samples(lanes)
        window = self._how.window or (samples if self._engine.batched else min(self._how.batch, samples))
        windows, axes = self._cut(lanes, arrays, samples, window)
        self._check(windows, verified)
        outputs = self._walk(lanes, arrays, windows, axes)
        shutil.rmtree(scraps)
        (self._folder / STATE_FILE).unlink(missing_ok=True)
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
            lengths = ", ".join(f"{name} has {lane.samples}" for name, lane in lanes.items())
            raise complain(
                Code.DATA_UNREADABLE, f"{self._path.name}: the arrays have different lengths: {lengths} samples"
            )
        return int(counts.pop() or 0)

    def _cut(
        self, lanes: dict[str, Lane], arrays: Arrays, samples: int, window: int
    ) -> tuple[Windows, dict[str, int | None]]:
        axes = self._engine.probe(window, lanes, self._engine.first_state(self._how, arrays))
        carried = set(self._how.carry.values())
        along = {lost for name, (axis, lost) in axes.items() if axis is not None and name not in carried}
        if len(along) > 1:
            raise complain(
                Code.WINDOWS_DO_NOT_FIT,
                f"outputs lose different numbers of samples: {', '.join(map(str, sorted(along)))}",
            )
        windows = plan_windows(self._how, samples, window, along.pop() if along else 0)
        return windows, {name: axis for name, (axis, _) in axes.items() if name not in carried}

    def _check(self, windows: Windows, verified: tuple[int, int] | None) -> None:
        if not windows.count:
            raise complain(Code.WINDOWS_DO_NOT_FIT, f"{self._path.name} is shorter than one window, and --tail is drop")
        if verified is None:
            return
        full = windows.full or windows.tail == "pad"
        last = windows.window if windows.tail == "pad" else windows.span(windows.count - 1)[1]
        for length in (windows.window if full else last, last):
            if not verified[0] <= length <= verified[1]:
                bounds = f"{self._engine.over} {verified[0]}..{verified[1]}"
                raise complain(Code.OUTSIDE_DOMAIN, f"a window has {length} samples; the file is verified for {bounds}")

    def _walk(
        self, lanes: dict[str, Lane], arrays: Arrays, windows: Windows, axes: dict[str, int | None]
    ) -> dict[str, tuple[int, ...]]:
        state = self._engine.first_state(self._how, arrays)
        number, done, state = self._resume(windows, axes, state)
        kept: dict[str, StitchedOutput] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        began, first, noted = time.monotonic(), number, time.monotonic()
        while number < windows.count:
            group = self._group(windows, number)
            answers, state = self._ask(lanes, windows, group, state)
            for name, axis in axes.items():
                for window, answer in zip(group, answers[name], strict=True):
                    moved = answer[None] if axis is None else np.moveaxis(answer, axis, 0)
                    if name not in kept:
                        length = windows.count if axis is None else windows.answers
                        shapes[name] = (length, *moved.shape[1:])
                        stitch = "last" if axis is None else self._how.stitch
                        path = self._folder / f"{_make_file_name(name)}.npy"
                        kept[name] = StitchedOutput(
                            path, length, moved.shape[1:], moved.dtype, stitch, done.get(name, 0)
                        )
                    start, count = windows.span(window)
                    part = moved if axis is None else moved[: count - windows.lost]
                    kept[name].add(window if axis is None else start, part)
            number += len(group)
            ready = windows.span(number)[0] if number < windows.count else windows.answers
            for name, stitched in kept.items():
                stitched.settle(number if axes[name] is None else ready)
            if time.monotonic() - noted > NOTE_SECONDS:
                self._note(number, kept, state)
                noted = time.monotonic()
            self._tell(windows, number, first, began)
        for stitched in kept.values():
            stitched.close()
        return shapes

    def _group(self, windows: Windows, number: int) -> list[int]:
        """Return the windows of one length to run at once. Groups begin at multiples of the batch even when resumed."""
        size = self._how.batch if self._engine.batched else 1
        numbers = range(number, min(number + size - number % size, windows.count))
        first = windows.span(number)[1]
        return [index for index in numbers if self._how.tail == "pad" or windows.span(index)[1] == first] or [number]

    def _ask(
        self, lanes: dict[str, Lane], windows: Windows, group: list[int], state: Feeds
    ) -> tuple[dict[str, list[Array]], Feeds]:
        spans = [windows.span(number) for number in group]
        feeds = {**self._engine.feed(lanes, spans, windows.window if windows.tail == "pad" else 0), **state}
        answers = dict(zip(self._engine.outputs, self._engine.run(feeds), strict=True))
        if self._eager is not None:
            self._eager.compare(feeds, list(answers), list(answers.values()))
        state = {name: answers[output] for name, output in self._how.carry.items()}
        return {name: list(answer) if self._engine.batched else [answer] for name, answer in answers.items()}, state

    def _note(self, number: int, kept: dict[str, StitchedOutput], state: Feeds) -> None:
        """Store the state atomically, after the outputs that it names are on the disk."""
        for stitched in kept.values():
            stitched.flush()
        note = json.dumps({"window": number, "done": {name: output.done for name, output in kept.items()}})
        arrays: dict[str, Any] = {f"carry:{name}": array for name, array in state.items()}
        content = io.BytesIO()
        np.savez(content, note=np.array(note), **arrays)
        replace_file(self._folder / STATE_FILE, content.getvalue(), is_durable=True)

    def _resume(self, windows: Windows, axes: dict[str, int | None], state: Feeds) -> tuple[int, dict[str, int], Feeds]:
        """Return the next window, how far each output is written, and the carried state."""
        path = self._folder / STATE_FILE
        if not path.exists():
            return 0, {}, state
        with np.load(path, allow_pickle=False) as kept:
            note = json.loads(str(kept["note"]))
            if state:
                return note["window"], note["done"], {name: kept[f"carry:{name}"] for name in state}
        starts = [windows.find_first_window(at) for name, at in note["done"].items() if axes[name] is not None]
        number = min([note["window"], *starts])
        size = self._how.batch if self._engine.batched else 1
        return number - number % size, note["done"], state

    def _tell(self, windows: Windows, number: int, first: int, began: float) -> None:
        spent = time.monotonic() - began
        rate = (number - first) * windows.step / max(spent, 1e-9)
        self._on_event(ItemsCounted(number, windows.count, "windows", f"{self._path.name}, {rate:.3g} samples/s"))


def _make_file_name(name: str) -> str:
    """Return a file name for an output."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
