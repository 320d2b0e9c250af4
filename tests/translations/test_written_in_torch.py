"""Operators that are written in torch, against PyTorch's own, in eager mode."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mpmath import mp

from fairway.convert.translations import (
    bessel,
    error_functions,
    float_parts,
    fractional_pools,
    matrix_functions,
    rearrangements,
)
from fairway.convert.translations.substitutes import SUBSTITUTES
from fairway.torch_internals import aten_histogramdd_bin_edges

ATEN = torch.ops.aten
INF, NAN = math.inf, math.nan


def line() -> torch.Tensor:
    ends = torch.tensor([0.0, -0.0, 1e-30, 2, 8, -8, INF, -INF, NAN, 1e-8], dtype=torch.float64)
    return torch.cat([torch.linspace(-30, 30, 1501, dtype=torch.float64), ends])


def normal(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


SPECIAL = {**bessel.DECOMPOSITIONS, **error_functions.DECOMPOSITIONS}
TRUTHS: dict[Any, Callable[[Any], Any]] = {
    ATEN.special_airy_ai.default: mp.airyai,
    ATEN.special_bessel_j0.default: lambda x: mp.besselj(0, x),
    ATEN.special_bessel_j1.default: lambda x: mp.besselj(1, x),
    ATEN.special_bessel_y0.default: lambda x: mp.bessely(0, x),
    ATEN.special_bessel_y1.default: lambda x: mp.bessely(1, x),
    ATEN.special_i0e.default: lambda x: mp.besseli(0, x) * mp.exp(-x),
    ATEN.special_i1e.default: lambda x: mp.besseli(1, x) * mp.exp(-x),
    ATEN.special_modified_bessel_k0.default: lambda x: mp.besselk(0, x),
    ATEN.special_modified_bessel_k1.default: lambda x: mp.besselk(1, x),
    ATEN.special_erfcx.default: lambda x: mp.erfc(x) * mp.exp(x * x),
}


@pytest.mark.parametrize("operator", TRUTHS, ids=str)
def test_special_functions_are_right_to_twelve_digits(operator: Any) -> None:
    """PyTorch's own Bessel functions are off by 2e-7 between 5 and 10, also in double."""
    places = [0.01, 0.7, 1.9, 2.1, 2.9, 3.1, 4.5, 5.4, 7.9, 8.1, 12.3, 40.7]
    truths = torch.tensor([float(TRUTHS[operator](mp.mpf(x))) for x in places], dtype=torch.float64)
    ours = SPECIAL[operator](torch.tensor(places, dtype=torch.float64))
    torch.testing.assert_close(ours, truths, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("operator", SPECIAL, ids=str)
def test_special_functions_follow_pytorch_over_the_line(operator: Any) -> None:
    x = line()
    # PyTorch's own Airy function is off by 2.5e-6 at -2.1.
    torch.testing.assert_close(SPECIAL[operator](x), operator(x), rtol=1e-9, atol=3e-6, equal_nan=True)
    assert SPECIAL[operator](x.float()).dtype == torch.float32
    assert SPECIAL[operator](torch.tensor([1, 2])).dtype == torch.float32


@pytest.mark.parametrize("name", ["erfcx", "log_ndtr"])
def test_error_functions_keep_their_digits_far_from_zero(name: str) -> None:
    operator = getattr(ATEN, f"special_{name}").default
    x = torch.linspace(-25, 25, 999, dtype=torch.float64)
    torch.testing.assert_close(error_functions.DECOMPOSITIONS[operator](x), operator(x), rtol=1e-11, atol=0)


def numbers() -> torch.Tensor:
    powers = torch.exp2(torch.arange(-149, 128).float())
    wide = normal(500) * torch.exp2(normal(500, seed=2) * 40)
    return torch.cat([powers, -powers, wide, torch.tensor([0.0, -0.0, INF, -INF, NAN, 3.4028235e38, 1e-45])])


def test_mantissas_and_exponents_are_exact() -> None:
    for x in (numbers(), numbers().double() * 1e-300, numbers().half()):
        for ours, theirs in zip(float_parts.frexp(x), torch.frexp(x), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("goal", [0.0, 1.0, INF, -INF, NAN])
def test_neighbors_of_numbers_are_exact(goal: float) -> None:
    for x in (numbers(), numbers().half()):
        other = torch.full_like(x, goal)
        torch.testing.assert_close(
            float_parts.nextafter(x, other), torch.nextafter(x, other), rtol=0, atol=0, equal_nan=True
        )
    assert float_parts.nextafter(x.double(), x.double()) is NotImplemented


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_matrix_exponentials_are_right_for_small_and_large_norms(scale: float) -> None:
    matrix = normal(3, 4, 4).double() * scale
    ours, theirs = matrix_functions.matrix_exp(matrix), torch.linalg.matrix_exp(matrix)
    assert (ours - theirs).abs().amax() <= 1e-12 * theirs.abs().amax()


def test_pseudoinverses_are_right_for_each_kind_of_tolerance() -> None:
    matrix = normal(2, 5, 3) @ normal(2, 3, 4, seed=3)
    symmetric = matrix @ matrix.mT
    for hermitian, value in ((False, matrix), (True, symmetric)):
        ours = matrix_functions.pinv(value, rtol=torch.tensor(1e-3), hermitian=hermitian)
        torch.testing.assert_close(ours, torch.linalg.pinv(value, rtol=1e-3, hermitian=hermitian), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(matrix_functions.pinv_by_ratio(normal(4, 3)), torch.linalg.pinv(normal(4, 3)))


@pytest.mark.parametrize("driver", [None, "gels", "gelsd", "gelss"])
def test_least_squares_return_all_that_a_driver_returns(driver: str | None) -> None:
    matrix, right = normal(3, 6, 4), normal(3, 6, 2, seed=5)
    ours = SUBSTITUTES[torch.linalg.lstsq](matrix, right, driver=driver)
    for own, plain in zip(ours, torch.linalg.lstsq(matrix, right, driver=driver), strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-4, atol=1e-4, check_dtype=True)


@pytest.mark.parametrize("shape", [(2, 3, 8, 11), (3, 8, 11), (1, 2, 8, 9, 6)])
@pytest.mark.parametrize("output", [(3, 4), (1, 2)])
def test_fractional_pooling_places_its_windows_as_pytorch(shape: tuple[int, ...], output: tuple[int, int]) -> None:
    rank = 3 if len(shape) == 5 else 2
    operator = getattr(ATEN, f"fractional_max_pool{rank}d").default
    generator = torch.Generator().manual_seed(0)
    samples = torch.rand(shape[0] if len(shape) != 3 else 1, shape[-rank - 1], rank, generator=generator)
    call = normal(*shape), (2, 3, 2)[:rank], (*output, 2)[:rank], samples
    torch.testing.assert_close(fractional_pools.DECOMPOSITIONS[operator](*call), operator(*call))


@pytest.mark.parametrize("steps", [0, 1, 4, 7])
def test_numbers_on_a_logarithmic_line(steps: int) -> None:
    ends = torch.tensor(0.3), torch.tensor(2.0)
    torch.testing.assert_close(rearrangements.logspace(*ends, steps, 1.7), torch.logspace(*ends, steps, 1.7))


EDGES = torch.tensor([-2.0, -0.5, 0.0, 1.5])
CALLS: dict[Any, list[tuple[Any, ...]]] = {
    ATEN.diagonal_scatter.default: [
        (normal(4, 5), normal(4), 1),
        (normal(4, 5), normal(3), -1),
        (normal(4, 5, 4), normal(5, 3), 1, 0, 2),
    ],
    ATEN.as_strided_scatter.default: [
        (normal(3, 4), normal(2, 2), (2, 2), (4, 1), 1),
        (normal(6), normal(2), (2,), (3,)),
    ],
    ATEN.put.default: [
        (normal(3, 4), torch.tensor([0, -1, 5]), normal(3)),
        (normal(3, 4), torch.tensor([2, 2]), normal(2), True),
    ],
    ATEN.histogram.bin_ct: [(normal(50), 7), (torch.ones(4), 3)],
    ATEN.histogram.bins_tensor: [(normal(50), EDGES)],
    aten_histogramdd_bin_edges: [(normal(20, 2), [3, 2])],
    torch.ops.aten._histogramdd_from_bin_cts.default: [(normal(20, 2), [3, 2])],
    torch.ops.aten._histogramdd_from_bin_tensors.default: [(normal(20, 2), [EDGES, EDGES])],
}


@pytest.mark.parametrize("operator", CALLS, ids=str)
def test_rearranged_tensors_are_those_of_pytorch(operator: Any) -> None:
    for call in CALLS[operator]:
        torch.testing.assert_close(rearrangements.DECOMPOSITIONS[operator](*call), operator(*call))


def test_densities_and_weights_of_histograms() -> None:
    x, weight = normal(40), normal(40, seed=4).abs()
    ours = rearrangements.histogram(x, 5, range=(-1, 1), weight=weight, density=True)
    torch.testing.assert_close(ours, tuple(torch.histogram(x, 5, range=(-1, 1), weight=weight, density=True)))


def test_extremes_with_and_without_a_dim() -> None:
    for x, settings in ((normal(3, 4), {}), (normal(3, 4), {"dim": 1, "keepdim": True}), (normal(1)[0], {})):
        torch.testing.assert_close(rearrangements.aminmax(x, **settings), tuple(torch.aminmax(x, **settings)))  # type: ignore[arg-type]


WEIGHTS = torch.tensor([1, 2, 1, 3])
SUBSTITUTED: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (torch.cov, (normal(3, 4),), {}),
    (torch.cov, (normal(4),), {"correction": 0}),
    (torch.cov, (normal(3, 4),), {"fweights": WEIGHTS, "aweights": normal(4).abs()}),
    (torch.cov, (normal(3, 4),), {"aweights": normal(4).abs(), "correction": 0}),
    (torch.corrcoef, (normal(3, 4),), {}),
    (torch.combinations, (normal(4),), {}),
    (torch.combinations, (normal(4), 3), {"with_replacement": True}),
    (torch.linalg.matrix_norm, (normal(2, 3, 4), "nuc"), {"keepdim": True}),
    (torch.linalg.matrix_norm, (normal(3, 2, 4), 2, (0, 2)), {"keepdim": True}),
    (torch.linalg.matrix_norm, (normal(3, 4), -2), {"dtype": torch.float64}),
    (torch.narrow, (normal(5, 3), 0, torch.tensor(-3), 2), {}),
    *((function, (3, 4, offset), {}) for function in (torch.triu_indices, torch.tril_indices) for offset in (0, 5, -5)),
    (torch.nn.functional.one_hot, (WEIGHTS,), {}),
    (torch.nn.functional.gaussian_nll_loss, (normal(3, 4), normal(3, 4), normal(3).abs()), {"full": True}),
    (torch.nn.functional.gaussian_nll_loss, (normal(3, 4), normal(3, 4), 0.5), {"reduction": "sum"}),
    *(
        (torch.segment_reduce, (normal(7, 2), kind), {"lengths": WEIGHTS, "initial": start})
        for kind in ("sum", "mean", "max", "min", "prod")
        for start in (None, 0.5)
    ),
]


@pytest.mark.parametrize("place", range(len(SUBSTITUTED)))
def test_functions_that_cannot_be_captured_have_equal_substitutes(place: int) -> None:
    function, args, settings = SUBSTITUTED[place]
    torch.testing.assert_close(SUBSTITUTES[function](*args, **settings), function(*args, **settings))
