"""Branches that save work when there is nothing to do, as fairseq's padding masks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from harness import EXPORT, STRICT, TRACE, applied, assert_parity, export, make_case
from torch import nn

import fairway
from fairway.convert.remedies import shortcut_branch
from fairway.convert.remedies.contract import Case, Match, Refusal
from fairway.convert.remedies.shortcut_branch import REMEDY, BranchDecision, DecidedBranches
from fairway.diagnostics import Finding

DIMS = [{0: "batch"}]
LINES = ["ids: int64[batch, 4] < 3"]


class Padded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(3, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        padding = ids == 0
        if not padding.any():
            padding = None
        x = self.embed(ids)
        return x if padding is None else x.masked_fill(padding[..., None], 0.0)


class Either(Padded):
    """Two ways that differ: no shortcut."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        if ids.sum() % 2 == 0:
            return x + 1
        return x * 2


def failed(case: Case) -> Case:
    return replace(case, findings=(Finding("FW303", "could not guard"),))


def make(batch: int) -> tuple[torch.Tensor]:
    return (torch.randint(0, 3, (batch, 4), generator=torch.Generator().manual_seed(batch)),)


def test_it_cannot_be_captured_without_it() -> None:
    with pytest.raises(Exception, match="data-dependent"):
        export(make_case(Padded().eval(), make(3)), DIMS)


@pytest.mark.parametrize("route", [EXPORT, TRACE], ids=lambda r: r.name)
def test_the_longer_way_is_right_for_inputs_of_either_kind(route) -> None:
    model = Padded().eval()
    case = failed(make_case(model, (torch.ones(3, 4, dtype=torch.int64),), route))
    exported = export(case, DIMS, REMEDY)
    assert_parity(exported, model, make(5), (torch.ones(2, 4, dtype=torch.int64),), atol=1e-6)


@pytest.mark.slow
def test_the_side_that_agrees_is_found_and_otherwise_it_refuses(tmp_path) -> None:
    asked = {"bounds": {"batch": (1, 4)}, "routes": ("export-dynamic",)}
    found = fairway.export(Padded().eval(), LINES, tmp_path / "a.onnx", **asked)
    assert (found.verdict, found.remedies) == ("verified", ("shortcut_branch",))
    assert [rung.route for rung in found.record.ladder][-1] == "export-dynamic with branches decided"
    found = fairway.export(Either().eval(), LINES, tmp_path / "b.onnx", **asked)
    assert found.verdict == "failed"
    assert found.remedies == ()
    assert {"FW207", "FW303"} <= {finding.code for finding in found.findings}


class Picked(nn.Module):
    """Works on the rows that were picked, if there are any."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = (x[:, 0] > 0).nonzero()[:, 0]
        if rows.numel() == 0:
            return x + 0
        return x.index_add(0, rows, x[rows] * 2)


def test_rows_that_may_be_none_are_worked_on_all_the_same() -> None:
    x, none = torch.randn(5, 4, generator=torch.Generator().manual_seed(3)), -torch.ones(3, 4)
    with pytest.raises(Exception, match="data-dependent"):
        export(make_case(Picked(), (x,)), DIMS)
    exported = export(failed(make_case(Picked(), (x,))), DIMS, REMEDY)
    assert_parity(exported, Picked(), (x,), (none,), (-none,), atol=1e-6)


def test_every_decision_is_tried_both_ways() -> None:
    class Two(Padded):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.embed(ids)
            if (ids == 0).any():
                x = x + 1
            is_one = (ids == 1).any().item()
            if is_one:
                x = x + 1
            return x

    match = REMEDY.detect(failed(make_case(Two(), make(3))))
    assert isinstance(match, Match)
    assert [tuple(one.answers.values()) for one in match.data] == [
        (True, True),
        (False, False),
        (True, False),
        (False, True),
    ]
    assert [where.function for where in match.where] == [Two.forward.__qualname__] * 2


def test_it_is_refused_before_a_failure_and_under_strict_capture() -> None:
    assert isinstance(REMEDY.detect(make_case(Padded(), make(3))), Refusal)
    assert isinstance(REMEDY.detect(failed(make_case(Padded(), make(3), STRICT))), Refusal)


def test_applying_it_twice_changes_nothing_more_and_branches_are_free_afterwards() -> None:
    case = failed(make_case(Padded(), make(3)))
    ones = torch.ones(2, dtype=torch.bool)
    with DecidedBranches() as seen:
        assert ones.all()
    (site,) = seen.met
    with DecidedBranches({site: False}), applied(case, REMEDY), BranchDecision({site: False}).install():
        assert bool(ones.all())
    assert ones.all()


def test_a_loop_that_would_not_end_is_refused(monkeypatch):
    monkeypatch.setattr(shortcut_branch, "MAX_ANSWERS_PER_LINE", 50)

    def halve(x):
        while x.abs().max() > 8:
            x = x / 2
        return x

    x = torch.ones(3) * 100
    assert halve(x).max() <= 8
    line = halve.__code__.co_firstlineno + 1
    with pytest.raises(RuntimeError, match="does not end"), DecidedBranches({(__file__, line): True}):
        halve(x)


class LabelScores(nn.Module):
    """Adds up the scores of the labels of real steps, as conditional random fields do."""

    def check(self, mask: torch.Tensor) -> None:
        first = mask[0].all()
        if not first:
            raise ValueError("the first step must be real")

    def forward(self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        self.check(mask)
        assert (labels >= 0).all()
        rows = torch.arange(labels.shape[1])
        total = scores[0, rows, labels[0]]
        for step in range(1, labels.shape[0]):
            total = torch.tanh(total) + scores[step, rows, labels[step]] * mask[step]
        return total


def test_checks_of_values_keep_the_side_of_legal_inputs(tmp_path) -> None:
    lines = ["scores: float32[time, batch, 5]", "labels: int64[time, batch] < 5", "mask: bool[time, batch]"]

    class Real(LabelScores):
        def forward(self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return super().forward(scores, labels, torch.cat([mask[:1] | True, mask[1:]]))

    result = fairway.export(
        Real(), lines, tmp_path / "a.onnx", bounds={"time": (2, 6), "batch": (1, 3)}, routes=("export-dynamic",)
    )
    assert (result.verdict, result.remedies) == ("verified", ("loop_unrolled", "shortcut_branch"))


def test_a_check_is_not_tried_both_ways() -> None:
    class Checked(Padded):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            assert (ids >= 0).all()
            if (ids < 0).any():
                raise ValueError("negative")
            return super().forward(ids)

    match = REMEDY.detect(failed(make_case(Checked(), make(3))))
    assert isinstance(match, Match)
    assert [tuple(decision.answers.values()) for decision in match.data] == [(True, False, True), (True, False, False)]


def test_a_branch_that_no_sample_takes_is_always_taken() -> None:
    class Raised(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if (x < -1e30).any():
                x = x.clamp_min(-1e30)
            return x + 1

    case = replace(failed(make_case(Raised(), (torch.ones(3, 4),))), both_ways=frozenset())
    match = REMEDY.detect(case)
    assert isinstance(match, Match)
    assert [tuple(decision.answers.values()) for decision in match.data] == [(True,)]
    low = torch.full((2, 4), -1e38)
    assert_parity(export(case, DIMS, REMEDY), Raised(), (torch.ones(5, 4),), (low,), atol=1e-6)
    assert case.decided == [], "the side that is left out is the one that gives the same for every sample"


def test_tensors_are_compared_as_for_the_example() -> None:
    class Compared(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, second = torch.equal(x, x.abs()), torch.equal(x * 1, x)
            return x + 1 if second and not first else x - 1

    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(3))
    with pytest.raises(Exception, match=r"aten\.equal"):
        export(make_case(Compared(), (x,)), DIMS)
    exported = export(failed(make_case(Compared(), (x,))), DIMS, REMEDY)
    assert_parity(exported, Compared(), (-torch.rand(5, 4),), atol=1e-6)


class KnownPrompt(nn.Module):
    """Answers one prompt differently. No sample finds it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("prompt", torch.tensor([101, 2009, 2003, 7]))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        if torch.equal(ids[0, :4], self.prompt):
            return ids + 1
        return ids * 2


def test_a_comparison_that_no_sample_changes_is_unproven(tmp_path) -> None:
    bounds = {"batch": (2, 5), "seq": (4, 9)}
    result = fairway.export(
        KnownPrompt().eval(),
        ["ids: int64[batch, seq] < 30000"],
        tmp_path / "a.onnx",
        bounds=bounds,
        routes=("export-dynamic",),
    )
    assert result.verdict == "unproven"
    assert "FW417" in {finding.code for finding in result.findings}
