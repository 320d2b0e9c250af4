"""One output of a recording, stitched from windows and written as soon as no later window can change it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fairway.deploy.run.windows import Stitch
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain

Array = npt.NDArray[Any]


class StitchedOutput:
    """Takes the outputs of windows in order. Only the part that may still change is in memory."""

    def __init__(self, path: Path, length: int, shape: tuple[int, ...], dtype: Any, how: Stitch, done: int) -> None:
        self._floats = np.issubdtype(dtype, np.floating)
        self._how: Stitch = how if self._floats else "last"
        self._row = shape
        self._dtype = np.dtype(dtype)
        self._file = path.open("r+b" if done else "w+b")
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(self._file, {**header, "shape": (length, *shape)})
        self._file.seek(done * int(np.prod(shape, dtype=int)) * self._dtype.itemsize, os.SEEK_CUR)
        self.done = done
        self._sums = np.zeros((0, *shape), np.float64 if self._how != "last" else dtype)
        self._weights = np.zeros(0)

    def add(self, start: int, answer: Array) -> None:
        """Add the output of a window from the position `start` on. Positions that are written already do not change."""
        if len(answer) and (self._row != answer.shape[1:] or start > self.done + len(self._sums)):
            raise complain(
                Code.WINDOWS_DO_NOT_FIT,
                f"an output of shape {answer.shape} does not continue the outputs of the earlier windows",
            )
        weights = self._fade(len(answer))
        late = max(self.done - start, 0)
        answer, weights, start = answer[late:], weights[late:], start + late
        begin, end = start - self.done, start - self.done + len(answer)
        grow = end - len(self._sums)
        if grow > 0:
            self._sums = np.concatenate([self._sums, np.zeros((grow, *self._sums.shape[1:]), self._sums.dtype)])
            self._weights = np.concatenate([self._weights, np.zeros(grow)])
        if self._how == "last":
            self._sums[begin:end] = answer
            self._weights[begin:end] = 1
        else:
            self._sums[begin:end] += answer * weights.reshape(-1, *[1] * (answer.ndim - 1))
            self._weights[begin:end] += weights

    def _fade(self, length: int) -> Array:
        """Return the weights of a window. For blending they rise to the middle and fall after it, but not to zero."""
        if self._how != "blend":
            return np.ones(length)
        return np.minimum(np.arange(1, length + 1), np.arange(length, 0, -1)).astype(np.float64)

    def settle(self, position: int) -> None:
        """Write all output before `position` to the file, because no later window changes it, and free its memory."""
        count = min(position - self.done, len(self._sums))
        if count <= 0:
            return
        settled = self._sums[:count]
        if self._how != "last":
            settled = settled / self._weights[:count].reshape(-1, *[1] * (settled.ndim - 1))
        self._file.write(np.ascontiguousarray(settled, self._dtype).tobytes())
        self._sums, self._weights = self._sums[count:].copy(), self._weights[count:].copy()
        self.done += count

    def flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self.flush()
        self._file.close()
