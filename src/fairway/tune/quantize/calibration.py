"""Ranges of activations, computed from samples that are read once and not kept.

onnxruntime's calibrators keep everything until the last sample was read. Given a few samples at a time they merge
ranges or histograms and keep nothing else, so memory does not grow with the number of samples.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.tune.quantize.graph_cuts import collect_value_infos
from fairway.tune.quantize.prepare import FLOAT_OUTPUT_OPERATORS, RECURRENT_OPERATORS, PreparedGraph

if TYPE_CHECKING:
    from fairway.tune.quantize.sample_split import InputArrays

CALIBRATION_METHODS = ("minmax", "entropy", "percentile")
SAMPLES_PER_BATCH = {"minmax": 8, "entropy": 1, "percentile": 1}
"""Samples passed on together. The minmax method keeps two numbers for each tensor, the others keep all of it."""
MIN_SAMPLES = 4
"""Samples that are read however short the time is."""


@dataclass(frozen=True)
class ActivationRanges:
    """The lowest and highest value of each tensor that may be quantized."""

    method: str
    samples: int
    tensors: Any
    """A `TensorsData` of onnxruntime.quantization."""

    def as_dict(self) -> dict[str, Any]:
        return {"method": self.method, "samples": self.samples, "tensors": len(self.tensors.data)}


class _SampleBatch:
    """A data reader with a few samples, as onnxruntime's calibrators expect it."""

    def __init__(self, samples: Iterator[InputArrays], limit: int) -> None:
        self._left = islice(samples, limit)
        self.count = 0

    def get_next(self) -> InputArrays | None:
        sample = next(self._left, None)
        self.count += sample is not None
        return sample


def calibrate(
    prepared: PreparedGraph, samples: Iterator[InputArrays], method: str, folder: Path, until: float | None = None
) -> ActivationRanges:
    """Run the samples through the prepared graph and return the ranges; fail if a range is NaN or infinite.

    Stops early, with at least MIN_SAMPLES samples, when the clock passes `until`.
    """
    from onnxruntime.quantization import calibrate as stock

    calibrators = {
        "minmax": stock.MinMaxCalibrater,
        "entropy": stock.EntropyCalibrater,
        "percentile": stock.PercentileCalibrater,
    }
    count = 0
    with contextlib.redirect_stdout(io.StringIO()):  # onnxruntime prints every histogram
        # Forced symmetric ranges would waste half of the values of an unsigned byte.
        calibrator = calibrators[method](prepared.path, [], str(folder / "augmented.onnx"), symmetric=False)
        names = _list_tensors(prepared, calibrator.model)
        calibrator.select_tensors_to_calibrate = lambda model: (names, collect_value_infos(model))
        calibrator.augment_graph()
        calibrator.create_inference_session()
        for first in samples:
            batch = _SampleBatch(chain([first], samples), SAMPLES_PER_BATCH[method])
            calibrator.collect_data(batch)
            count += batch.count
            if until is not None and count >= MIN_SAMPLES and time.monotonic() > until:
                break
        ranges = calibrator.compute_data()
    (folder / "augmented.onnx").unlink(missing_ok=True)
    infinite = [name for name, range_ in ranges.items() if not np.all(np.isfinite([*map(np.max, range_.range_value)]))]
    if infinite:
        raise complain(
            Code.SAMPLES_USELESS, f"with these samples the tensor {infinite[0]} of the float model is not finite"
        )
    return ActivationRanges(method, count, ranges)


def _list_tensors(prepared: PreparedGraph, model: Any) -> set[str]:
    """List the inputs of units, and the outputs that are rounded.

    onnxruntime by itself would observe every tensor around them.
    """
    inside = {name for unit in prepared.units if unit.operator not in RECURRENT_OPERATORS for name in unit.nodes}
    nodes = [node for node in model.graph.node if node.name in inside]
    inputs = {node.input[0] for node in nodes}
    return inputs | {node.output[0] for node in nodes if node.op_type not in FLOAT_OUTPUT_OPERATORS}
