"""A few of torch's own operators, modules and examples, as `benchmarks/operators` runs all of them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "operators"

NAMES = [
    "op/special.bessel_j1",
    "op/special.chebyshev_polynomial_t",
    "op/polygamma.polygamma_n_1",
    "op/linalg.qr",
    "op/linalg.pinv",
    "op/nn.functional.avg_pool2d",
    "op/nn.functional.batch_norm",
    "op/einsum",
    "op/scatter_add",
    "op/triu_indices",
    "op/istft",
    "module/nn.FractionalMaxPool2d/0",
    "exportdb/dynamic_shape_round",
    "exportdb/dynamic_shape_map",
]
"""Cases that need translations, replacements, substitutes or repairs."""


@pytest.fixture(scope="module")
def make_row() -> Iterator[Callable[[str, Path], dict[str, Any]]]:
    """Import the benchmark, and forget its modules afterwards: other benchmarks have modules of the same names."""
    before = set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    try:
        from first_files import make_row

        yield make_row
    finally:
        sys.path[:] = [path for path in sys.path if "benchmarks" not in path]
        for name in set(sys.modules) - before:
            if "benchmarks" in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_case_of_torch_is_right(make_row: Callable[[str, Path], dict[str, Any]], name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row = make_row(name, tmp_path)
    assert row["outcome"] == "right", row["note"]
