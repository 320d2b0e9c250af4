"""Rows that depend on each other are found on the file itself, and independent rows are not blamed for rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fairway
from fairway.judge import rows
from fairway.judge.evidence import RowIndependence
from fairway.judge.judge import Judge
from fairway.judge.lattice import Level, make_sample
from fairway.judge.row_batches import Batch, choose_sizes, divide_batch
from fairway.judge.rows import compare_rows
from fairway.judge.runtimes.eager import run_eager, to_array
from fairway.model.dims import Dim
from fairway.model.subject import Subject, build_subject

Forward = Callable[..., Any]


class Net(torch.nn.Module):
    """A model made of one function."""

    def __init__(self, function: Forward, count: int = 1) -> None:
        super().__init__()
        self.function = function
        self.forward = self.two if count == 2 else self.one  # type: ignore[method-assign]

    def one(self, x: torch.Tensor) -> Any:
        return self.function(x)

    def two(self, x: torch.Tensor, z: torch.Tensor) -> Any:
        return self.function(x, z)


def make_judge(function: Forward, lines: Sequence[str] = ("x: float32[batch, 6]",), **bounds: Any) -> Judge:
    """Return a judge that has learned PyTorch's own error from some samples. The runtime is PyTorch itself."""
    given = {"bounds": {"batch": (1, 8)}, **bounds}
    subject = build_subject(Net(function, len(lines)).eval(), list(lines), **given)
    count = len(run_eager(subject, subject.make(subject.example, 1, "normal")))
    judge = Judge(subject, run_in(subject), [f"y{number}" for number in range(count)])
    for seed in range(1, 5):
        for flavor in subject.flavors:
            judge.take(make_sample(subject.example, seed, flavor))
    return judge


def run_in(subject: Subject) -> Any:
    def run(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[Any]:
        return [to_array(tensor) for tensor in run_eager(subject, tensors)]

    return run


def compare(function: Forward, level: Level = "standard", **given: Any) -> RowIndependence:
    judge = make_judge(function, **given)
    found, findings = compare_rows(judge, run_in(judge.subject), level)
    assert [finding.code for finding in findings] in ([], ["FW421"])
    assert not (found.independent and findings)
    return found


WEIGHT = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))

DEPENDENT: dict[str, Forward] = {
    "cumsum": lambda x: x.cumsum(0),
    "minus row 0": lambda x: x - x[:1],
    "minus the mean": lambda x: x - x.mean(0, keepdim=True),
    "sorted": lambda x: x.sort(0).values,
    "scaled by the largest": lambda x: x / x.abs().max(),
    "neighbor of the last row": lambda x: torch.cat([x[:-1], x[-1:] + 0.01 * x[:1]]),
    "number of rows": lambda x: x * x.shape[0],
    "clipped by a far neighbor": lambda x: x * (x.abs().max() < 50),
    "order of the batch": lambda x: x.sum(1).argsort(0),
    "rows from five on": lambda x: torch.cat([x[:4], x[4:] - x[3:-1]]) if x.shape[0] > 4 else x,
    "as wide as the last row asks": lambda x: x[:, : 3 + 3 * int(x[-1, 4] > x[-1, 5])],
    "last output only": lambda x: (x, x.flip(0)),
}


@pytest.mark.parametrize("level", ["quick", "standard"])
@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_depend_on_each_other_are_found(name: str, level: Level) -> None:
    found = compare(DEPENDENT[name], level)
    assert (found.dim, found.independent) == ("batch", False)
    assert "in a batch of" in found.reason


INDEPENDENT: dict[str, Forward] = {
    "product": lambda x: torch.tanh(x @ WEIGHT),
    "softmax over features": lambda x: (x @ WEIGHT).softmax(-1),
    "argmax": lambda x: (x @ WEIGHT).argmax(-1),
    "steps": lambda x: torch.round(x @ WEIGHT),
    "cancelling sum": lambda x: (x @ WEIGHT) - (x.double() @ WEIGHT.double()).float(),
    "bools": lambda x: x > 0,
    "NaN": lambda x: torch.log(x),
}


@pytest.mark.parametrize("level", ["quick", "standard", "deep"])
@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent_rows_are_shown_at_two_a_middle_size_and_the_limit(name: str, level: Level) -> None:
    found = compare(INDEPENDENT[name], level)
    assert found.independent, found.reason
    assert found.sizes == ((2, 8) if level == "quick" else (2, 5, 8))
    assert found.reason == ""


def test_a_tie_that_another_batch_size_decides_is_not_a_dependence() -> None:
    """All scores are equal, and this runtime takes the second one from three rows on."""
    judge = make_judge(lambda x: x[:, :2].argmax(1), lines=["x: float32[batch, 6] in 1..1"])

    def run(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[Any]:
        return [np.full(len(tensors[0]), int(len(tensors[0]) > 2))]

    found, findings = compare_rows(judge, run, "standard")
    assert found.independent, found.reason
    assert not findings


def test_an_integer_that_is_decided_is_compared_exactly() -> None:
    judge = make_judge(lambda x: (x * 1000).long())

    def run(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[Any]:
        return [to_array((tensors[0] * 1000).long() + (len(tensors[0]) > 2))]

    found, _ = compare_rows(judge, run, "standard")
    assert not found.independent


@pytest.mark.parametrize(
    ("function", "lines", "bounds", "words"),
    [
        (lambda x: x.mean(0), ["x: float32[batch, 6]"], (1, 8), "does not have one row for each row of batch"),
        (lambda x: x * 2, ["x: float32[3, 6]"], None, "no dim is an axis of every input"),
        (lambda x, z: x * z, ["x: float32[batch, 6]", "z: float32[]"], (1, 8), "no dim is an axis of every input"),
        (lambda x: x * 2, ["x: float32[batch, 6]"], (1, 1), "no room for two requests"),
        (lambda x: x * 2, ["x: float32[batch, batch]"], (1, 8), "no dim is an axis of every input"),
    ],
)
def test_what_cannot_be_compared_is_not_independent_and_says_why(
    function: Forward, lines: list[str], bounds: tuple[int, int] | None, words: str
) -> None:
    found = compare(function, lines=lines, bounds={"batch": bounds} if bounds else {})
    assert not found.independent
    assert words in found.reason


def test_rows_on_another_axis_than_the_first_are_divided_there() -> None:
    lines = ["x: float32[batch, 6]", "z: float32[2, batch]"]
    good = compare(lambda x, z: (x * z[0, :, None], z * 2), lines=lines)
    assert good.independent, good.reason
    bad = compare(lambda x, z: (x * z[0, :, None], z.flip(1)), lines=lines)
    assert not bad.independent


def test_rows_mixed_in_pairs_are_found_though_two_rows_are_the_least() -> None:
    """Batches of even requests would hide it: 2 + 2 rows never part a pair."""

    def pairs(x: torch.Tensor) -> torch.Tensor:
        even = x.shape[0] // 2 * 2
        first, second = x[0:even:2], x[1:even:2]
        return torch.cat([torch.stack([first + second, second], 1).reshape(even, 6), x[even:]])

    found = compare(pairs, bounds={"batch": (2, 8)})
    assert not found.independent


@pytest.mark.parametrize(
    ("dim", "size", "ways"),
    [
        (Dim("batch", 1, 8), 5, [(1, 1, 1, 1, 1)]),
        (Dim("batch", 2, 8), 8, [(2, 2, 2, 2), (3, 2, 3)]),
        (Dim("batch", 4, 16, 4), 8, [(4, 4)]),
        (Dim("batch", 5, 16, 4), 16, [(8, 8)]),
    ],
)
def test_a_batch_is_divided_into_legal_parts(dim: Dim, size: int, ways: list[tuple[int, ...]]) -> None:
    assert divide_batch(size, dim) == ways
    assert all(part in dim.sizes for way in ways for part in way)
    assert choose_sizes(dim, has_middle=True)[-1] == dim.sizes[-1]
    assert all(one in dim.sizes for one in choose_sizes(dim, has_middle=True))


def test_edge_values_fill_every_second_part() -> None:
    batch = Batch((1, 1, 1), 1, "large")
    assert (batch.list_parts("normal"), batch.list_parts("large")) == ([0, 2], [1])
    assert Batch((1, 1, 1), 1).list_parts("normal") == [0, 1, 2]


def test_expensive_sizes_are_left_out_and_the_record_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    effort = replace(rows.EFFORTS["quick"], flops=200.0)
    monkeypatch.setattr(rows, "EFFORTS", {"quick": effort})
    judge = make_judge(INDEPENDENT["product"], bounds={"batch": (1, 64)})
    found, _ = compare_rows(judge, run_in(judge.subject), "quick")
    assert found.independent
    assert 2 < found.sizes[-1] < 64
    assert "sizes up to 64 were left out because of their cost" in found.compared


def test_a_row_that_was_not_run_alone_is_compared_in_another_order() -> None:
    """At the limit quick runs the rows 0, 2, 5 and 7 alone, and not row 3."""

    def leak(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:3], x[3:4] + x[4:5], x[4:]]) if x.shape[0] == 8 else x

    found = compare(leak, "quick")
    assert not found.independent
    assert "reordered" in found.reason


def test_a_batch_that_the_runtime_refuses_is_not_shown_independent() -> None:
    judge = make_judge(INDEPENDENT["product"])

    def refuse(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[Any]:
        raise RuntimeError("out of memory")

    found, findings = compare_rows(judge, refuse, "quick")
    assert not found.independent
    assert "the runtime refuses x[2, 6]: out of memory" in found.reason
    assert not findings


class Centered(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0, keepdim=True)


@pytest.mark.parametrize("level", ["quick", "standard"])
def test_an_export_writes_it_into_the_record_and_the_result(tmp_path: Path, level: Level) -> None:
    lines, bounds = ["x: float32[batch, 3]"], {"batch": (1, 8)}
    mixed = fairway.export(Centered(), lines, tmp_path / "mixed.onnx", bounds=bounds, level=level, routes=["trace"])
    assert mixed.verdict == "verified"
    assert [finding.code for finding in mixed.findings] == ["FW421"]
    assert mixed.record.evidence.rows.independent is False
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
    lines = ["input: float32[batch, 3]"]
    plain = fairway.export(net, lines, tmp_path / "plain.onnx", bounds=bounds, level=level, routes=["trace"])
    assert plain.verdict == "verified"
    assert plain.findings == ()
    told = plain.record.evidence.rows
    assert (told.dim, told.independent, max(told.sizes)) == ("batch", True, 8)
    assert np.isclose(min(told.sizes), 2)
