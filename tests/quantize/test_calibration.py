"""Ranges from samples taken one by one equal those from all at once, and memory does not grow with their number."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator
from tests.quantize.nets import mlp, of_file

from fairway.tune.quantize.calibration import calibrate
from fairway.tune.quantize.prepare import FUSED_OPERATORS, WEIGHTED_OPERATORS, prepare_graph
from fairway.tune.quantize.sample_split import open_samples

KINDS = {
    "minmax": CalibrationMethod.MinMax,
    "entropy": CalibrationMethod.Entropy,
    "percentile": CalibrationMethod.Percentile,
}


class All:
    def __init__(self, samples: list[Any]) -> None:
        self._left = iter(samples)

    def get_next(self) -> Any:
        return next(self._left, None)


@pytest.mark.parametrize("method", KINDS)
def test_one_by_one_gives_the_ranges_that_all_at_once_give(method: str, tmp_path: Path) -> None:
    path = mlp(tmp_path / "net.onnx")
    prepared = prepare_graph(path, tmp_path)
    # Of one size: onnxruntime itself cannot make one histogram of several.
    samples = list(open_samples(of_file(path, batch=(2, 2)), None, 10).read_calibration())
    result = calibrate(prepared, iter(samples), method, tmp_path)
    assert result.samples == 10
    with contextlib.redirect_stdout(io.StringIO()):
        stock = create_calibrator(
            prepared.path,
            [*WEIGHTED_OPERATORS, *FUSED_OPERATORS],
            str(tmp_path / "stock.onnx"),
            KINDS[method],
            extra_options={"symmetric": False},
        )
        stock.collect_data(All(samples))
        expected = stock.compute_data()
    assert set(result.tensors.keys()) == {"x", "r0", "r1"}, "what the layers are given, and nothing else"
    for name in result.tensors.keys():  # noqa: SIM118  # not a dict
        item = expected[name]
        # A histogram that grew sample by sample has other bins; an entropy's threshold jumps with them.
        off = {"minmax": 1e-6, "percentile": 0.01, "entropy": 0.25}[method] * float(np.ptp(np.ravel(item.range_value)))
        np.testing.assert_allclose(
            np.ravel(result.tensors[name].range_value), np.ravel(item.range_value), rtol=0, atol=off, err_msg=name
        )


PEAK = """
import resource, sys
from pathlib import Path
import numpy as np
from fairway.tune.quantize.calibration import calibrate
from fairway.tune.quantize.prepare import prepare_graph
folder = Path(sys.argv[1])
prepared = prepare_graph(folder / "net.onnx", folder)
draw = np.random.default_rng(0)
for count in (2, 16):
    samples = ({"x": draw.standard_normal((6000, 3, 48)).astype(np.float32)} for _ in range(count))
    calibrate(prepared, samples, "percentile", folder)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_samples(tmp_path: Path) -> None:
    """A sample's tensors have 21 MB here; fourteen more of them kept would be 290 MB."""
    mlp(tmp_path / "net.onnx")
    done = subprocess.run([sys.executable, "-c", PEAK, str(tmp_path)], capture_output=True, text=True, check=True)
    few, many = map(int, done.stdout.split()[-2:])
    assert many < few + 60_000, f"{few} kB, then {many} kB"
