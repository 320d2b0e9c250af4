"""Shows that a planted file differs from PyTorch by more than rounding, with nothing of Fairway's judge.

The right file's largest distance from PyTorch in float32 is the unit. A planted error counts if some output is at least
ten times as far from PyTorch at one of two inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import torch
from drawing import Tensors, choose_sizes, draw_inputs
from models import RECIPES

LEAST_TIMES = 10.0
PROOF_SEED = 77

Answers = list[npt.NDArray[np.float32]]


def choose_points(name: str) -> list[dict[str, int]]:
    """The largest batch with the other dims small; a batch of the least size with the others at their largest."""
    bounds = RECIPES[name].bounds
    points = [choose_sizes(name, 0.05) | {"batch": bounds["batch"][1]}]
    if len(bounds) > 1:
        points.append({dim: low if dim == "batch" else high for dim, (low, high) in bounds.items()})
    return points


class Proof:
    """PyTorch's and the right file's outputs at a few inputs, to hold planted files against."""

    def __init__(self, name: str, model: torch.nn.Module, right: Path) -> None:
        self._model = model
        self._inputs = [draw_inputs(name, point, PROOF_SEED) for point in choose_points(name)]
        for tensors in self._inputs:
            for key in [key for key in tensors if "mask" in key]:
                tensors[key][:, tensors[key].shape[1] // 2 :] = 0  # half of every row is padding
        self._own = [self._run_pytorch(tensors) for tensors in self._inputs]
        session = open_session(right)
        self._rounding = [
            measure_distance(own, run_file(session, tensors))
            for own, tensors in zip(self._own, self._inputs, strict=True)
        ]

    def count_times(self, planted: Path, required_ids: Mapping[str, int]) -> float:
        """The planted file's distance from PyTorch in units of the right file's, at the worst input and output."""
        session = open_session(planted)
        worst = 0.0
        for tensors, own, rounding in zip(self._inputs, self._own, self._rounding, strict=True):
            if required_ids:
                tensors = {key: tensor.clone() for key, tensor in tensors.items()}
                for key, number in required_ids.items():
                    tensors[key][0, 0] = number
                own = self._run_pytorch(tensors)
            distances = measure_distance(own, run_file(session, tensors))
            worst = max(worst, *(a / b for a, b in zip(distances, rounding, strict=True)))
        return worst

    def _run_pytorch(self, tensors: Tensors) -> Answers:
        with torch.no_grad():
            outputs = self._model(**tensors)
        values = [outputs] if isinstance(outputs, torch.Tensor) else [*outputs.values()]
        return [value.numpy() for value in values]


def open_session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run_file(session: onnxruntime.InferenceSession, tensors: Tensors) -> Answers:
    return list(session.run(None, {key: tensor.numpy() for key, tensor in tensors.items()}))


def measure_distance(own: Answers, theirs: Answers) -> list[float]:
    """The largest difference of each output; infinite if shapes differ or a value is not finite in one of the two."""
    distances = []
    for a, b in zip(own, theirs, strict=True):
        if a.shape != b.shape or not (np.isfinite(a) == np.isfinite(b)).all():
            distances.append(float("inf"))
            continue
        difference = np.abs(a.astype(np.float64) - b)
        distances.append(max(float(difference[np.isfinite(difference)].max(initial=0.0)), 1e-30))
    return distances
