"""If a file is right at one size and wrong at another, the lines that cause it are named, in any library."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import fairway
from fairway.diagnostics import Finding
from fairway.judge.locate.divergence import SizeSide, find_divergence
from fairway.model.subject import Subject, build_subject
from of_libraries import Library

BOUNDS = {"batch": (1, 4), "n": (2, 16)}


def subject_of(model: nn.Module) -> Subject:
    return build_subject(model.eval(), ["x: float32[batch, n]"], bounds=BOUNDS)


def parted(model: nn.Module, right: int, wrong: int) -> list[Finding]:
    subject = subject_of(model)

    def side(n: int) -> SizeSide:
        return SizeSide(f"n={n}", [subject.make({"batch": 2, "n": n}, seed, "normal") for seed in (1, 2, 3)])

    return find_divergence(subject, side(right), side(wrong))


def said(found: list[Finding]) -> list[tuple[str, str, str | None]]:
    """Code, words and line, without the line numbers of this file."""
    return [(one.code, re.sub(r"(py:)\d+", r"\1…", one.seen), one.where and one.where.source) for one in found]


class Padded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        spare = -x.shape[1] % 4
        x = nn.functional.pad(x, (0, spare)) if spare else x
        x = x.view(x.shape[0], -1, 4).cumsum(2).flatten(1)
        if spare > 0 and x.shape[1] > 3:
            x = x[:, :-spare]
        return x


def test_branches_inside_a_line_are_named_too() -> None:
    assert said(parted(Padded(), 7, 8)) == [
        (
            "FW207",
            "`spare` is true at n=7, where the file is right, and is false at n=8; likewise test_parting.py:… "
            "`if spare > 0 and x.shape[1] > 3:`",
            "x = nn.functional.pad(x, (0, spare)) if spare else x",
        ),
    ]


def test_sizes_that_go_the_same_way_are_not_parted() -> None:
    assert parted(Padded(), 6, 7) == []


class Looped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for block in range((x.shape[1] + 3) // 4):
            x = x + block
        size = x.shape[1]
        while size > 2:
            size = size // 2
            x = x * 2
        return x - sum(x[:, i : i + 1] for i in range(0, x.shape[1], 8))


def test_loops_that_take_another_number_of_steps_are_named() -> None:
    assert said(parted(Looped(), 4, 9)) == [
        (
            "FW206",
            "`for block in range((x.shape[1] + 3) // 4)` takes 1 step at n=4, where the file is right, and takes "
            "3 steps at n=9; likewise test_parting.py:… `while size > 2:`, test_parting.py:… "
            "`return x - sum(x[:, i : i + 1] for i in range(0, x.shape[1], 8))`",
            "for block in range((x.shape[1] + 3) // 4):",
        ),
    ]


class Halved(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[1]
        while size > 2:
            size = size // 2
            x = x * 2
        return x


class Summed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - sum(x[:, i : i + 1] for i in range(0, x.shape[1], 8))


def test_a_while_and_a_comprehension_are_loops() -> None:
    assert said(parted(Halved(), 4, 9)) == [
        (
            "FW206",
            "`while size > 2` takes 1 step at n=4, where the file is right, and takes 2 steps at n=9",
            "while size > 2:",
        ),
    ]
    assert said(parted(Summed(), 4, 9)) == [
        (
            "FW206",
            "`for i in range(0, x.shape[1], 8)` takes 1 step at n=4, where the file is right, and takes 2 steps at n=9",
            "return x - sum(x[:, i : i + 1] for i in range(0, x.shape[1], 8))",
        ),
    ]


class Listed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        backwards = torch.tensor(list(range(x.shape[1]))[::-1])
        return x + backwards + torch.as_tensor(np.arange(x.shape[1])) + torch.tensor([1.0])


def test_lists_as_long_as_a_size_are_named() -> None:
    found = parted(Listed(), 5, 6)
    assert said(found) == [
        (
            "FW217",
            "the list has 5 elements at n=5, where the file is right, and has 6 elements at "
            "n=6; likewise test_parting.py:… "
            "`return x + backwards + torch.as_tensor(np.arange(x.shape[1])) + torch.tensor([1.0])`",
            "backwards = torch.tensor(list(range(x.shape[1]))[::-1])",
        ),
    ]
    assert "torch.arange" in found[0].todo[1]


class ByValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.asked = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.asked:
            self.asked = True
        for _ in range(int(x.abs().sum() * 10) % 7):
            x = x + 1
        return x


class Layered(nn.Module):
    """The second question is asked of the first layer too, which gives the same answer at every size."""

    def layer(self, x: Tensor) -> Tensor:
        extra = x[:, :0]
        if x.shape[1] > 8:
            extra = x[:, :1]
        return torch.cat([x, extra], 1)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        for second in (False, True):
            grown = self.layer(x) if second else x
            if grown.shape[1] > length:
                x = grown[:, 1:]
        return x


def test_what_leads_to_the_others_comes_first() -> None:
    (found,) = parted(Layered(), 8, 9)
    assert found.where is not None
    assert found.where.source == "if x.shape[1] > 8:"
    assert found.seen.endswith("`if grown.shape[1] > length:`")


class LeftEarly(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for step in range(4):
            if step * 2 > x.shape[1]:
                return x * step
        return x


def test_a_loop_that_is_left_early_is_blamed_on_what_ended_it() -> None:
    assert [one.where and one.where.source for one in parted(LeftEarly(), 4, 6)] == ["if step * 2 > x.shape[1]:"]
    assert parted(LeftEarly(), 2, 3) == []


def test_effects_of_values_are_not_blamed_on_the_size() -> None:
    assert parted(ByValue(), 5, 6) == []


def test_a_loop_whose_body_is_long_is_seen(library: Library) -> None:
    body = "".join(f"            x = x + {i} * x.shape[0]\n" for i in range(40))
    model = library(f"        for i in range(x.shape[1]):\n{body}        return x\n")
    assert [one.where and one.where.line for one in parted(model, 5, 6)] == [5]


def test_an_export_names_the_line_of_a_library_first(tmp_path: Path, library: Library) -> None:
    model = library("        if x.shape[1] > 8:\n            x = x * 2\n        return x + 1\n")
    result = fairway.export(
        model, ["x: float32[batch, n]"], tmp_path / "m.onnx", bounds=BOUNDS, routes=["export-dynamic"], level="quick"
    )
    assert result.verdict == "wrong"
    first = result.findings[0]
    assert (first.code, first.where and first.where.line) == ("FW207", 5)
    assert first.seen == (
        "`x.shape[1] > 8` is false at batch=2, n=8, where the file is right, and is true at batch=2, n=9"
    )
