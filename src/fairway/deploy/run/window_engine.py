"""Run a file on windows: find the axis along the recording, feed the windows, and find the axes of the outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fairway.deploy.run.recordings import Arrays, LazyArray
from fairway.deploy.run.windows import WindowSettings
from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.model.onnx_file import OnnxHeader, OnnxValue
from fairway.model.ort_session import open_session

Array = npt.NDArray[Any]
Feeds = dict[str, Array]


@dataclass(frozen=True)
class Lane:
    """The array of one input, and its axis along the recording (None: it is the same for every window)."""

    value: OnnxValue
    array: LazyArray
    axis: int | None
    batched: bool
    """The file has a batch dim that the array does not have."""
    extra: int
    """The place of a dim of size 1 that only the array has: 1 for first, -1 for last; 0: none."""

    def read(self, start: int, length: int) -> Array:
        """Read a window in the dtype of the file. It has no batch dim, unless windows run along that."""
        index: list[object] = [slice(None)] * len(self.array.shape)
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
    converted = array.astype(value.dtype)
    if not np.issubdtype(converted.dtype, np.floating) and not np.array_equal(converted, array):
        raise complain(Code.DATA_UNREADABLE, f"{value.name}: the data holds numbers that do not fit {value.dtype}")
    return np.asarray(converted, order="C")


class Engine:
    """A loaded file, with the dim along the recording and the batch dim."""

    def __init__(self, model: Path, header: OnnxHeader, how: WindowSettings) -> None:
        try:
            self._session: Any = open_session(model)
        except Exception as error:
            raise complain(Code.RUNTIME_REFUSES, f"{model.name}: {error!s:.300}") from error
        self.header = header
        self.inputs = {value.name: value for value in header.inputs}
        self.outputs = [value.name for value in header.outputs]
        for source, target in how.carry.items():
            if source not in self.inputs or target not in self.outputs:
                known = f"inputs {', '.join(self.inputs)}; outputs {', '.join(self.outputs)}"
                raise complain(
                    Code.UNKNOWN_OPTION,
                    f"--carry {source}={target}: expected an input and an output of the file: {known}",
                )
        self.walking = {name: value for name, value in self.inputs.items() if name not in how.carry}
        self.over = how.over or self._guess_dim()
        firsts = {value.shape[0] if value.shape else None for value in self.walking.values()}
        first = firsts.pop() if len(firsts) == 1 else None
        self.batched = self.over != "0" and first != self.over and (isinstance(first, str) or first == 1)
        if all(self._find_axis(value) is None for value in self.walking.values()):
            raise complain(
                Code.UNKNOWN_OPTION, f"--over {self.over}: no input has such a dim; {self._describe_inputs()}"
            )

    def _find_axis(self, value: OnnxValue) -> int | None:
        """Return the axis along the recording, by the name of the dim or by its number."""
        shape = value.shape or ()
        if self.over.isdecimal():
            return int(self.over) if int(self.over) < len(shape) else None
        return shape.index(self.over) if self.over in shape else None

    def _describe_inputs(self) -> str:
        return "; ".join(map(str, self.walking.values()))

    def _guess_dim(self) -> str:
        """Return the only dim that varies besides the batch, or the batch if no other dim does."""
        names = dict.fromkeys(s for v in self.walking.values() for s in v.shape or () if isinstance(s, str))
        first = {value.shape[0] if value.shape else None for value in self.walking.values()}
        others = [name for name in names if name not in first] or list(names)
        if len(others) != 1:
            raise complain(
                Code.UNKNOWN_OPTION,
                f"the dim along the recording is not clear: {self._describe_inputs()}",
                todo=("Add --over DIM.",),
            )
        return others[0]

    def make_lanes(self, arrays: Arrays, where: str) -> dict[str, Lane]:
        """Match the inputs with arrays. Refuses a missing array or a shape that does not fit."""
        missing = [name for name in self.walking if name not in arrays]
        if missing:
            raise complain(
                Code.DATA_UNREADABLE, f"{where} lacks {', '.join(missing)}; it holds {', '.join(arrays) or 'nothing'}"
            )
        return {name: self._make_lane(value, arrays[name], where) for name, value in self.walking.items()}

    def _make_lane(self, value: OnnxValue, array: LazyArray, where: str) -> Lane:
        axis = self._find_axis(value)
        shape: list[object] = [None if number == axis else size for number, size in enumerate(value.shape or ())]
        if self.batched:
            axis, shape = None if axis is None else axis - 1, shape[1:]
        for extra, seen in ((0, array.shape), (1, array.shape[1:]), (-1, array.shape[:-1])):
            dropped = 1 if extra == 0 else array.shape[0] if extra == 1 else array.shape[-1]
            fits = len(seen) == len(shape) and all(
                size == got for size, got in zip(shape, seen, strict=True) if isinstance(size, int)
            )
            if array.shape and fits and dropped == 1:
                return Lane(value, array, axis, self.batched, extra)
        raise complain(
            Code.DATA_UNREADABLE, f"{where}: {value.name} has the shape {tuple(array.shape)}, the file takes {value}"
        )

    def first_state(self, how: WindowSettings, arrays: Arrays) -> Feeds:
        """Return the state before the first window: from the recording, or zeros."""
        state = {}
        for name in how.carry:
            value = self.inputs[name]
            if name in arrays:
                state[name] = _cast(np.asarray(arrays[name][...]), value)
                continue
            state[name] = np.zeros([1 if isinstance(s, str) else s or 1 for s in value.shape or ()], value.dtype)
        return state

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        try:
            return list(self._session.run(self.outputs, dict(feeds)))
        except Exception as error:
            shapes = ", ".join(f"{name}{list(array.shape)}" for name, array in feeds.items())
            raise complain(Code.RUNTIME_FAILS, f"{shapes}: {error!s:.300}") from error

    def feed(self, lanes: Mapping[str, Lane], spans: list[tuple[int, int]], padded: int) -> Feeds:
        """Stack the windows, each padded with zeros to `padded` samples."""
        feeds = {}
        for name, lane in lanes.items():
            parts = [_pad(lane.read(*span), lane.axis, padded) for span in spans]
            feeds[name] = np.stack(parts) if lane.batched else parts[0]
        return feeds

    def probe(self, window: int, lanes: Mapping[str, Lane], state: Feeds) -> dict[str, tuple[int | None, int]]:
        """Return for each output its axis along the recording (None: it has none) and the number of samples lost.

        They are found by running two lengths, because names of output dims are not reliable.
        """
        samples = min(lane.samples or 0 for lane in lanes.values() if lane.samples is not None)
        here = self.run({**self.feed(lanes, [(0, min(window, samples))], window), **state})
        there: list[Array] = []  # stays empty if the file takes one length only
        for other in (window + 1, window - 1) if window > 1 else (2,):
            with contextlib.suppress(UserError):
                there = self.run({**self.feed(lanes, [(0, min(other, samples))], other), **state})
                break
        axes: dict[str, tuple[int | None, int]] = {}
        for number, name in enumerate(self.outputs):
            shape = here[number].shape[1 if self.batched else 0 :]
            seen = there[number].shape[1 if self.batched else 0 :] if there else tuple(s - (s == window) for s in shape)
            moved = [a for a, (x, y) in enumerate(zip(shape, seen, strict=True)) if x != y]
            if not moved:
                axes[name] = (None, 0)
                continue
            rate = shape[moved[0]] - seen[moved[0]]
            if (there and (rate != window - other or len(moved) > 1)) or shape[moved[0]] > window:
                shapes = f"{other} samples give {list(seen)}, {window} give {list(shape)}"
                raise complain(Code.WINDOWS_DO_NOT_FIT, f"{name} does not have one output for each sample: {shapes}")
            axes[name] = (moved[0], window - shape[moved[0]])
        return axes


def _pad(array: Array, axis: int | None, length: int) -> Array:
    if axis is None or array.shape[axis] >= length:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, length - array.shape[axis])
    return np.pad(array, widths)
