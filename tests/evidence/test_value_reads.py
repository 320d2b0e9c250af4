"""Values that Python reads without an `if`, membership, `match`, shapes as tuples, rare random numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from fairway.diagnostics import Code
from fairway.judge.coverage_report import report_unreached
from fairway.judge.evidence import FileFacts
from fairway.judge.judge import make_sample_inputs
from fairway.judge.survey import study_values, survey_branches
from fairway.model.study import Study
from fairway.model.subject import Subject, build_subject

IMAGE = ["x: float32[batch, 6] in 0..1"]
IDS = ["ids: int64[batch, seq] < 30000"]
BATCH = {"batch": (1, 3)}
SEQ = {"batch": (1, 3), "seq": (2, 40)}


def survey(model: nn.Module, inputs: Any, bounds: Any) -> tuple[Subject, Study]:
    subject = build_subject(model.eval(), inputs, bounds=bounds)
    learned = replace(subject, study=study_values(subject, lambda study: None))
    return learned, survey_branches(learned)


def list_aimed_inputs(subject: Subject, study: Study) -> list[torch.Tensor]:
    return [make_sample_inputs(replace(subject, study=study), sample, ())[0] for sample in study.aimed]


class FlagAsArgument(nn.Module):
    def blend(self, x: torch.Tensor, is_white: bool) -> torch.Tensor:
        return torch.ones_like(x) if is_white else x * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blend(x, bool((x > 0.99).all()))


class FlagAsPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2, torch.ones_like(x))[int((x > 0.99).all())]


class NumpyFlag(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = np.mean(np.asarray(x) > 0.99)
        return x * 2 if share < 0.9 else x


class MatchedFlag(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        match bool((x > 0.99).all()), x.dim():
            case (True, _):
                return torch.ones_like(x)
        return x * 2


@pytest.mark.parametrize("model", [FlagAsArgument(), FlagAsPlace(), NumpyFlag(), MatchedFlag()])
def test_a_rare_value_is_reached_that_only_python_reads(model: nn.Module) -> None:
    white = [bool((x > 0.99).all()) for x in list_aimed_inputs(*survey(model, IMAGE, BATCH))]
    assert any(white)


class TokenInIds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = 21431

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return ids * 2 if self.token in ids else ids


class LastTokenEnds(nn.Module):
    ENDS: ClassVar = (21431, 28000)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return -ids if int(ids[0, -1]) in self.ENDS else ids


class MatchedToken(nn.Module):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        match int(ids[0, 0]):
            case 5 | 21431:
                return -ids
        return ids


@pytest.mark.parametrize("model", [TokenInIds(), LastTokenEnds(), MatchedToken()])
def test_a_rare_token_is_reached(model: nn.Module) -> None:
    assert any((ids == 21431).any() for ids in list_aimed_inputs(*survey(model, IDS, SEQ)))


class SizeInSet(nn.Module):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return ids * 2 if ids.shape[1] in {29, 37} else ids


class NativeShape(nn.Module):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return ids * 2 if tuple(ids.shape) == (3, 37) else ids


class MatchedShape(nn.Module):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        match ids.shape:
            case (_, 37):
                return ids * 2
        return ids


@pytest.mark.parametrize("model", [SizeInSet(), NativeShape(), MatchedShape()])
def test_sizes_in_a_tuple_or_a_set_are_solved(model: nn.Module) -> None:
    _, study = survey(model, IDS, SEQ)
    assert 37 in [sample.sizes["seq"] for sample in study.aimed]
    assert not study.unreached


class NeverTrue(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2, x)[int(x.sum() * 0 > 1)]


def test_a_value_that_never_changed_is_named() -> None:
    subject, study = survey(NeverTrue(), IMAGE, BATCH)
    (read,) = study.reads
    assert (read.expression, read.value) == ("int(x.sum() * 0 > 1)", "0")
    (finding,) = report_unreached(replace(subject, study=study), FileFacts(one_sided=True))
    assert finding.code == Code.BRANCH_NOT_REACHED
    (finding,) = report_unreached(replace(subject, study=study), FileFacts())
    assert finding.code == Code.BRANCH_UNSEEN


class ScaleByNumber(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * max(1.0, float(x.norm()) / 1e3)


def test_a_trace_of_a_value_that_python_reads_is_unproven() -> None:
    subject, study = survey(ScaleByNumber(), IMAGE, BATCH)
    subject = replace(subject, study=study)
    assert [f.code for f in report_unreached(subject, FileFacts(keeps_reads=True))] == [Code.BRANCH_NOT_REACHED]
    assert report_unreached(subject, FileFacts(one_sided=True)) == []


class ReadsNoInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.tensor(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skipped = (0, 1)[int(torch.rand([]) < 0.5)] * 0
        blank = torch.zeros_like(x)
        return x * int(self.step) + skipped + float(blank.sum())


def test_values_that_no_input_reaches_are_not_named() -> None:
    assert survey(ReadsNoInput(), IMAGE, BATCH)[1].reads == ()


class OwnGenerator(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if float(x.min()) > 0.99:
            return x + torch.from_numpy(np.random.default_rng().random(6))
        return x


class OneInAThousand(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (torch.rand(6) > 1e-3)


@pytest.mark.parametrize("model", [OwnGenerator(), OneInAThousand()])
def test_rare_randomness_is_found(model: nn.Module) -> None:
    assert survey(model, IMAGE, BATCH)[1].random is not None


class PermutesAndBack(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        order = torch.randperm(6)
        return x[:, order][:, order.argsort()]


def test_a_permutation_that_is_undone_is_not_random() -> None:
    assert survey(PermutesAndBack(), IMAGE, BATCH)[1].random is None


END_OF_TEXT = 21431


class ComparesElsewhere(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.separator = 27101
        self.register_buffer("banned", torch.tensor([17, 9001]))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        banned = torch.isin(ids, self.banned)
        return (ids == self.separator).long() + (ids == END_OF_TEXT).long() + banned + (ids > ids.max() - 1)


def test_numbers_of_attributes_globals_and_buffers_are_tried() -> None:
    subject, _ = survey(ComparesElsewhere(), IDS, SEQ)
    assert {27101.0, 21431.0, 9001.0, 17.0} <= set(subject.study.literals)


class NotItself(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x != x, 0.0, x)


class MissingBehindScale(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nan_to_num(1 + 2 * x.float())


class InfiniteIsMissing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(x.abs() == float("inf"), 1.0)


class CleansScores(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nan_to_num(x.softmax(-1)) + (x == 0)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (NotItself(), (True, False)),
        (MissingBehindScale(), (True, False)),
        (InfiniteIsMissing(), (False, True)),
        (CleansScores(), (False, False)),
    ],
)
def test_missing_values_are_drawn_where_the_model_expects_them(model: nn.Module, expected: tuple[bool, bool]) -> None:
    subject, _ = survey(model, ["x: float32[batch, 6]"], BATCH)
    legal = subject.study.ranges[0]
    assert (legal.nonfinite, legal.infinite) == expected


def test_zeros_stand_among_other_numbers() -> None:
    subject = build_subject(NotItself(), ["x: float32[batch, 2]"], bounds={"batch": (4, 4)})
    rows = torch.cat([subject.make({"batch": 4}, seed, "halves")[0] for seed in range(50, 58)])
    assert ((rows[:, 0] == 0) & (rows[:, 1] < 0)).any()


def test_some_rows_hold_a_single_number() -> None:
    subject = build_subject(NotItself(), ["x: float32[batch, 5]"], bounds={"batch": (4, 4)})
    drawn = [subject.make({"batch": 4}, seed, "equal")[0] for seed in range(50, 56)]
    assert any(bool((x == x[:, :1]).all()) and bool((x[0] != x[1]).any()) for x in drawn)
