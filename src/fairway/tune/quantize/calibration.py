"""The ranges of activations, from samples that are looked at and let go.

onnxruntime's calibrators keep what every sample gave until the last one is through. Handed a few at a time they merge
ranges, or histograms, and keep nothing else; so memory does not grow with the number of samples.
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

from fairway.diagnostics.errors import complain
from fairway.tune.quantize.graph_cuts import value_infos
from fairway.tune.quantize.prepare import FLOAT_OUTPUT, RECURRENT, Prepared

if TYPE_CHECKING:
    from fairway.tune.quantize.sample_split import Sample

METHODS = ("minmax", "entropy", "percentile")
AT_ONCE = {"minmax": 8, "entropy": 1, "percentile": 1}
"""Samples handed over together: of each tensor two numbers are kept, or all of it."""
FEWEST = 4
"""Samples that are looked at however short the time is."""


@dataclass(frozen=True)
class Ranges:
    """Lowest and highest value of each tensor that may be quantised."""

    method: str
    samples: int
    tensors: Any
    """As onnxruntime.quantization takes them."""

    def as_dict(self) -> dict[str, Any]:
        return {"method": self.method, "samples": self.samples, "tensors": len(self.tensors.data)}


class _Some:
    """A reader of a few samples."""

    def __init__(self, samples: Iterator[Sample], most: int) -> None:
        self._left = islice(samples, most)
        self.count = 0

    def get_next(self) -> Sample | None:
        sample = next(self._left, None)
        self.count += sample is not None
        return sample


def calibrate(
    prepared: Prepared, samples: Iterator[Sample], method: str, folder: Path, until: float | None = None
) -> Ranges:
    """Runs the samples through the prepared graph, some of them where time is short; refuses what comes out as NaN."""
    from onnxruntime.quantization import calibrate as stock

    kinds = {
        "minmax": stock.MinMaxCalibrater,
        "entropy": stock.EntropyCalibrater,
        "percentile": stock.PercentileCalibrater,
    }
    count = 0
    with contextlib.redirect_stdout(io.StringIO()):  # onnxruntime tells of every histogram
        # Ranges that are symmetric by force would waste half of what unsigned bytes can say.
        calibrator = kinds[method](prepared.path, [], str(folder / "augmented.onnx"), symmetric=False)
        wanted = _wanted(prepared, calibrator.model)
        calibrator.select_tensors_to_calibrate = lambda model: (wanted, value_infos(model))
        calibrator.augment_graph()
        calibrator.create_inference_session()
        for first in samples:
            some = _Some(chain([first], samples), AT_ONCE[method])
            calibrator.collect_data(some)
            count += some.count
            if until is not None and count >= FEWEST and time.monotonic() > until:
                break
        ranges = calibrator.compute_data()
    (folder / "augmented.onnx").unlink(missing_ok=True)
    wild = [name for name, found in ranges.items() if not np.all(np.isfinite([*map(np.max, found.range_value)]))]
    if wild:
        raise complain("FW703", f"with these samples {wild[0]} of the float model is not finite")
    return Ranges(method, count, ranges)


def _wanted(prepared: Prepared, model: Any) -> set[str]:
    """What units are given, and what those give that round it: onnxruntime would look at every tensor around."""
    inside = {name for unit in prepared.units if unit.operator not in RECURRENT for name in unit.nodes}
    nodes = [node for node in model.graph.node if node.name in inside]
    given = {node.input[0] for node in nodes}
    return given | {node.output[0] for node in nodes if node.op_type not in FLOAT_OUTPUT}
