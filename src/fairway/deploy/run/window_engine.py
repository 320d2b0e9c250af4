"""The file as a function from windows to answers: which axis runs along the recording, and how answers lie along it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairway.deploy.run.recordings import Arrays
from fairway.deploy.run.windows import WindowSettings
from fairway.diagnostics.errors import UserError, complain
from fairway.model.onnx_file import OnnxHeader, OnnxValue

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]


@dataclass(frozen=True)
class Lane:
    """How one input's array is read: its axis along the recording (None: it is the same for every window)."""

    value: OnnxValue
    array: Any
    axis: int | None
    batched: bool
    """The file wants a batch dim in front of what the array holds for one window."""
    extra: int
    """Dims of size 1 that the array has in front (1) or behind (-1) and a window has not; 0: none."""

    def read(self, start: int, length: int) -> Array:
        """A window of it, in the file's dtype and without a batch dim, unless that is the dim walked along."""
        index: list[Any] = [slice(None)] * len(self.array.shape)
        if self.axis is not None:
            index[self.axis + (self.extra == 1)] = slice(start, start + length)
        got = np.asarray(self.array[tuple(index)])
        if self.extra:
            got = got.reshape(got.shape[1:] if self.extra == 1 else got.shape[:-1])
        return _cast(got, self.value)

    @property
    def samples(self) -> int | None:
        return None if self.axis is None else int(self.array.shape[self.axis + (self.extra == 1)])


def _cast(array: Array, value: OnnxValue) -> Array:
    made = array.astype(value.dtype)
    if not np.issubdtype(made.dtype, np.floating) and not np.array_equal(made, array):
        raise complain("FW113", f"{value.name}: the data holds numbers that are none of {value.dtype}")
    return np.asarray(made, order="C")


class Engine:
    """A loaded file, and the dims by which it is fed."""

    def __init__(self, model: Path, header: OnnxHeader, how: WindowSettings) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            self._session: Any = onnxruntime.InferenceSession(str(model), options, ["CPUExecutionProvider"])
        except Exception as error:
            raise complain("FW407", f"{model.name}: {error!s:.300}") from error
        self.header = header
        self.inputs = {value.name: value for value in header.inputs}
        self.outputs = [value.name for value in header.outputs]
        for source, target in how.carry.items():
            if source not in self.inputs or target not in self.outputs:
                known = f"inputs {', '.join(self.inputs)}; outputs {', '.join(self.outputs)}"
                raise complain("FW006", f"--carry {source}={target}: the file has the {known}")
        self.walking = {name: value for name, value in self.inputs.items() if name not in how.carry}
        self.over = how.over or self._guess()
        firsts = {value.shape[0] if value.shape else None for value in self.walking.values()}
        first = firsts.pop() if len(firsts) == 1 else None
        self.batched = self.over != "0" and first != self.over and (isinstance(first, str) or first == 1)
        if all(self._axis_of(value) is None for value in self.walking.values()):
            raise complain("FW006", f"--over {self.over}: no input has such a dim; {self._dims()}")

    def _axis_of(self, value: OnnxValue) -> int | None:
        """The axis that is walked along, by the dim's name or by its number."""
        shape = value.shape or ()
        if self.over.isdecimal():
            return int(self.over) if int(self.over) < len(shape) else None
        return shape.index(self.over) if self.over in shape else None

    def _dims(self) -> str:
        return "; ".join(map(str, self.walking.values()))

    def _guess(self) -> str:
        """The one dim that varies besides the batch; the batch where nothing else does."""
        names = dict.fromkeys(s for v in self.walking.values() for s in v.shape or () if isinstance(s, str))
        first = {value.shape[0] if value.shape else None for value in self.walking.values()}
        others = [name for name in names if name not in first] or list(names)
        if len(others) != 1:
            raise complain("FW006", f"which dim runs along the recording? {self._dims()}", todo=("Say --over DIM.",))
        return others[0]

    def lanes(self, arrays: Arrays, where: str) -> dict[str, Lane]:
        """How each input is read; refused where an array is missing or its shape does not fit."""
        missing = [name for name in self.walking if name not in arrays]
        if missing:
            raise complain("FW113", f"{where} lacks {', '.join(missing)}; it holds {', '.join(arrays) or 'nothing'}")
        return {name: self._lane(value, arrays[name], where) for name, value in self.walking.items()}

    def _lane(self, value: OnnxValue, array: Any, where: str) -> Lane:
        axis = self._axis_of(value)
        shape: list[Any] = [None if number == axis else size for number, size in enumerate(value.shape or ())]
        if self.batched:
            axis, shape = None if axis is None else axis - 1, shape[1:]
        for extra, seen in ((0, array.shape), (1, array.shape[1:]), (-1, array.shape[:-1])):
            dropped = 1 if extra == 0 else array.shape[0] if extra == 1 else array.shape[-1]
            fits = len(seen) == len(shape) and all(
                wanted == got for wanted, got in zip(shape, seen, strict=True) if isinstance(wanted, int)
            )
            if array.shape and fits and dropped == 1:
                return Lane(value, array, axis, self.batched, extra)
        raise complain("FW113", f"{where}: {value.name} is {tuple(array.shape)}, the file takes {value}")

    def first_state(self, how: WindowSettings, arrays: Arrays) -> Feeds:
        """What is carried into the first window: the recording's own, or zeros."""
        found = {}
        for name in how.carry:
            value = self.inputs[name]
            if name in arrays:
                found[name] = _cast(np.asarray(arrays[name][...]), value)
                continue
            found[name] = np.zeros([1 if isinstance(s, str) else s or 1 for s in value.shape or ()], value.dtype)
        return found

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        try:
            return list(self._session.run(self.outputs, dict(feeds)))
        except Exception as error:
            shapes = ", ".join(f"{name}{list(array.shape)}" for name, array in feeds.items())
            raise complain("FW408", f"{shapes}: {error!s:.300}") from error

    def feed(self, lanes: Mapping[str, Lane], spans: list[tuple[int, int]], padded: int) -> Feeds:
        """The windows side by side, each filled up with zeros to `padded` samples where it has fewer."""
        feeds = {}
        for name, lane in lanes.items():
            parts = [_pad(lane.read(*span), lane.axis, padded) for span in spans]
            feeds[name] = np.stack(parts) if lane.batched else parts[0]
        return feeds

    def probe(self, window: int, lanes: Mapping[str, Lane], state: Feeds) -> dict[str, tuple[int | None, int]]:
        """For each output: its axis along the recording, None where it has none, and the samples lost on the way.

        Found by running two lengths: names of output dims are not to be relied on.
        """
        samples = min(lane.samples or 0 for lane in lanes.values() if lane.samples is not None)
        here = self.run({**self.feed(lanes, [(0, min(window, samples))], window), **state})
        there: list[Array] = []  # where the file takes one length only
        for other in (window + 1, window - 1) if window > 1 else (2,):
            with contextlib.suppress(UserError):
                there = self.run({**self.feed(lanes, [(0, min(other, samples))], other), **state})
                break
        found: dict[str, tuple[int | None, int]] = {}
        for number, name in enumerate(self.outputs):
            shape = here[number].shape[1 if self.batched else 0 :]
            seen = there[number].shape[1 if self.batched else 0 :] if there else tuple(s - (s == window) for s in shape)
            moved = [a for a, (x, y) in enumerate(zip(shape, seen, strict=True)) if x != y]
            if not moved:
                found[name] = (None, 0)
                continue
            rate = shape[moved[0]] - seen[moved[0]]
            if (there and (rate != window - other or len(moved) > 1)) or shape[moved[0]] > window:
                what = f"{other} samples give {list(seen)}, {window} give {list(shape)}"
                raise complain("FW810", f"{name} has not one answer for each sample: {what}")
            found[name] = (moved[0], window - shape[moved[0]])
        return found


def _pad(array: Array, axis: int | None, length: int) -> Array:
    if axis is None or array.shape[axis] >= length:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, length - array.shape[axis])
    return np.pad(array, widths)
