"""The capture's guards are checked at every point of the domain, and the points that break one are run."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import torch

import fairway
from fairway.judge.formulas import CannotEvaluate, evaluate, make_grid, thin_out
from fairway.judge.guards import check_guards, count_excluded
from fairway.model.dims import Dim, Domain

DOMAIN = Domain((Dim("batch", 1, 4), Dim("time", 1, 2000)))


@pytest.mark.parametrize(
    ("guard", "excluded"),
    [
        ("time != 1001", 4),
        ("time % 128 != 0", 4 * 15),
        ("batch != time", 4),
        ("max(1, (time - 3) // 9 + 1) <= 7", 4 * sum(max(1, (t - 3) // 9 + 1) > 7 for t in range(1, 2001))),
        ("time <= 2000 and not batch == 5", 0),
    ],
)
def test_every_point_is_checked(guard: str, excluded: int) -> None:
    coverage, points = check_guards(DOMAIN, [guard])
    assert (coverage.points, coverage.excluded, coverage.complete) == (8000, excluded, True)
    assert count_excluded([guard], points) == len(points) == min(excluded, 12)


def test_what_the_evidence_says_about_sizes() -> None:
    assert str(check_guards(DOMAIN, ["time > 0"])[0]) == "all 8,000 points satisfy the capture's guards"
    coverage, _ = check_guards(DOMAIN, ["time != 7"])
    assert str(coverage) == "the capture's guards exclude 4 of 8,000 points; 0 of 4 were run"


def test_a_guard_is_checked_at_all_sizes_even_in_huge_domains() -> None:
    domain = Domain(tuple(Dim(name, 1, 1000) for name in ("a", "b", "c")))
    coverage, points = check_guards(domain, ["b != 777"])
    assert not coverage.complete
    assert {point["b"] for point in points} == {777}


def test_what_is_not_arithmetic_is_not_evaluated() -> None:
    with pytest.raises(CannotEvaluate):
        evaluate(ast.parse("__import__('os')", mode="eval").body, {})
    coverage, _ = check_guards(DOMAIN, ["unknown > 3"])
    assert not coverage.complete


def test_a_grid_is_thinned_out_with_its_ends_kept() -> None:
    grid = thin_out(make_grid(DOMAIN), 1000)
    assert grid.points <= 1000
    assert [(axis[0], axis[-1]) for axis in grid.sizes] == [(1, 4), (1, 2000)]


class Rare(torch.nn.Module):
    """Answers differently at one size far from every sample."""

    def __init__(self, twice: bool = True) -> None:
        super().__init__()
        self.factor = 2.0 if twice else 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor if x.shape[1] == 1001 else x * 1.0


def test_a_file_that_is_wrong_at_one_size_is_refused(tmp_path: Path) -> None:
    found = fairway.export(
        Rare(),
        ["x: float32[batch, time]"],
        tmp_path / "a.onnx",
        bounds={"batch": (1, 4), "time": (1, 2000)},
        routes=("export-dynamic",),
        remedies=False,
    )
    assert found.verdict == "wrong"
    assert found.evidence is not None
    assert found.evidence.sizes.excluded == 4


def test_points_that_break_a_guard_without_harm_are_run_and_counted(tmp_path: Path) -> None:
    found = fairway.export(
        Rare(twice=False),
        ["x: float32[batch, time]"],
        tmp_path / "a.onnx",
        level="quick",
        bounds={"batch": (1, 4), "time": (1, 2000)},
        routes=("export-dynamic",),
    )
    assert found.verdict == "verified"
    assert found.evidence is not None
    sizes = found.evidence.sizes
    assert (sizes.excluded, sizes.excluded_run) == (4, 4)
    assert "time != 1001" in sizes.guards
    assert list(found.record.evidence.sizes.guards) == list(sizes.guards)
    assert "sizes: the capture's guards exclude 4 of 8,000 points; 4 of 4 were run" in str(found)


def test_a_trace_says_that_sizes_are_sampled(tmp_path: Path) -> None:
    found = fairway.export(torch.nn.ReLU(), ["input: float32[n]"], tmp_path / "a.onnx", routes=("trace",))
    assert found.verdict == "verified"
    assert "sizes: sampled" in str(found)


def test_conditions_are_evaluated_as_python_does() -> None:
    text = "(0 < n < 9 or n % 4 == 1) and not n == 5 and abs(-n) // 2 >= min(n, 1)"
    numbers = np.arange(-3, 30)
    expected = [bool(eval(text, {"n": int(n), "abs": abs, "min": min})) for n in numbers]
    assert np.asarray(evaluate(ast.parse(text, mode="eval").body, {"n": numbers})).tolist() == expected
