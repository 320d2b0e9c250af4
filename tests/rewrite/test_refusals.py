"""Code that cannot be rewritten is refused with the line and advice; installed rewrites are removed again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fairway.convert.remedies.contract import Refusal
from fairway.convert.rewrite.candidates import make_candidates
from fairway.convert.rewrite.find import find_sites

from .harness import outputs
from .idioms import HeadByName, Recurrence, WritesInPlaceForCaller


class ReturnsFromANestedLoop(nn.Module):
    def forward(self, x):
        total = torch.zeros_like(x[:, 0])
        if x.dim() == 3:
            for i in range(x.shape[1]):
                total = total + x[:, i]
                if total.max() > 3:
                    return total
        return -total


class ReadsItsIndexAfterItBreaks(nn.Module):
    def forward(self, x):
        for i in range(x.shape[1]):
            if x[:, i].max() > 3:
                break
        return x[:, i]


class InsertsAtTheFront(nn.Module):
    def forward(self, x):
        rows = []
        for i in range(x.shape[1]):
            rows.insert(0, x[:, i])
        return torch.stack(rows, 1)


class ReadsItsList(nn.Module):
    def forward(self, x):
        rows = [x[:, 0]]
        for i in range(1, x.shape[1]):
            rows.append(x[:, i] + rows[-1])
        return torch.stack(rows, 1)


class WritesThroughAnObject(nn.Module):
    def forward(self, x):
        totals = SimpleNamespace(sum=x[0, 0])
        for i in range(x.shape[1]):
            totals.sum = totals.sum + x[0, i]
        return totals.sum


class CopiesIntoAView(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        for i in range(x.shape[1]):
            out[:, i].copy_(x[:, i])
        return out


class LeavesRowsOut(nn.Module):
    def forward(self, x):
        return torch.stack([x[:, i] for i in range(x.shape[1]) if i != 30], 1)


REASONS = [
    (
        LeavesRowsOut,
        "return torch.stack([x[:, i] for i in range(x.shape[1]) if i != 30], 1)",
        "the comprehension leaves items out by a condition; write a loop with `if` and `append`",
    ),
    (
        CopiesIntoAView,
        "out[:, i].copy_(x[:, i])",
        "`out[:, i].copy_` changes a tensor in place inside the loop; write `out[:, i] = ...` instead",
    ),
    (
        ReturnsFromANestedLoop,
        "for i in range(x.shape[1]):",
        "`return` inside the loop ends it early, and the loop is not at the top of its function; compute every step "
        "and mask the rest with torch.where",
    ),
    (
        ReadsItsIndexAfterItBreaks,
        "for i in range(x.shape[1]):",
        "the loop ends early, and `i` is read after it; compute every step and mask the rest with torch.where",
    ),
    (
        InsertsAtTheFront,
        "rows.insert(0, x[:, i])",
        "the loop uses `insert` on a list; use append, and reverse or slice the stacked result after the loop",
    ),
    (
        ReadsItsList,
        "rows.append(x[:, i] + rows[-1])",
        "the loop reads the list `rows` while it fills it; keep the value that it needs from the "
        "step before under another name",
    ),
    (
        WritesThroughAnObject,
        "totals.sum = totals.sum + x[0, i]",
        "the loop writes through `totals.sum`, which may be another name's tensor; "
        "bind a plain name and write it after the loop",
    ),
]


@pytest.mark.parametrize(("model", "line", "reason"), REASONS)
def test_torch_export_has_no_form_for_it(model: type[nn.Module], line: str, reason: str) -> None:
    rewritten = tuple(site for site in find_sites(model()) if site.suspect.kind != "branch")
    made = make_candidates(model(), rewritten, traced=False)
    assert isinstance(made, Refusal)
    (where,) = made.where
    assert where.source == line
    assert made.reason == f"the code at {__file__}:{where.line} cannot be rewritten: {reason}"


class SortsByCallingItself(nn.Module):
    def build(self, rows):
        if len(rows) <= 1:
            return rows
        lower = self.build([row for row in rows[1:] if row < rows[0]])
        return [*lower, rows[0], *self.build([row for row in rows[1:] if row >= rows[0]])]

    def forward(self, x):
        return torch.stack(self.build(list(x[:, 0])))


def test_a_function_that_calls_itself_is_refused_at_once() -> None:
    model = SortsByCallingItself()
    sites = tuple(site for site in find_sites(model) if site.suspect.kind != "branch")
    made = make_candidates(model, sites, traced=True)
    assert isinstance(made, Refusal)
    assert made.reason.endswith("`self.build` calls itself, and ONNX has no recursion")


def test_a_dict_of_modules_is_refused_for_a_trace() -> None:
    made = make_candidates(HeadByName(), find_sites(HeadByName()), traced=True)
    assert isinstance(made, Refusal)
    assert made.reason.endswith("modules are chosen from a dict by a value; use a ModuleList and a number")


@pytest.mark.parametrize("traced", [False, True])
def test_installing_is_undone_also_after_an_error(traced: bool) -> None:
    model = WritesInPlaceForCaller()
    original = WritesInPlaceForCaller.__dict__["fill"]
    made = make_candidates(model, find_sites(model), traced=traced)
    assert not isinstance(made, Refusal)
    seen = []

    def fail() -> None:
        with made[0].install():
            seen.append(WritesInPlaceForCaller.__dict__["fill"])
            raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        fail()
    assert seen != [original]
    assert WritesInPlaceForCaller.__dict__["fill"] is original


@pytest.mark.parametrize("traced", [False, True])
def test_two_instances_of_one_class_keep_their_own_weights_and_dtypes(traced: bool) -> None:
    torch.manual_seed(0)
    model, other, double = Recurrence(), Recurrence(), Recurrence().double()
    x = torch.randn(2, 5, 3)
    before = [outputs(model, (x,)), outputs(model, (x[:, :3],)), outputs(other, (x,)), outputs(double, (x.double(),))]
    made = make_candidates(model, find_sites(model), traced=traced)
    assert not isinstance(made, Refusal)
    with made[0].install():
        after = [
            outputs(model, (x,)),
            outputs(model, (x[:, :3],)),
            outputs(other, (x,)),
            outputs(double, (x.double(),)),
        ]
    for want, got in zip(before, after, strict=True):
        for a, b in zip(want, got, strict=True):
            torch.testing.assert_close(b, a, rtol=0, atol=1e-6)


class WithOrWithout(nn.Module):
    """A loop beside an argument that is nothing by default."""

    def run(self, x: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
        if scale is not None:
            x = x * scale
        parts = []
        for i in range(x.shape[1]):
            parts.append(x[:, i] + i)
        return torch.stack(parts, 1) if scale is None else torch.stack(parts, 1) / scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(x, None)


def test_a_piece_takes_arguments_that_are_none() -> None:
    model, x = WithOrWithout(), torch.randn(2, 5, 3)
    made = make_candidates(model, find_sites(model), traced=True)
    assert not isinstance(made, Refusal)
    want = model(x)
    with made[0].install():
        torch.testing.assert_close(model(x), want, rtol=0, atol=0)


class Named(nn.Module):
    def run(self, x: torch.Tensor, names: object) -> torch.Tensor:
        for i in range(x.shape[1]):
            x = x + i * len(str(names))
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(x, {"a": 1})


def test_a_piece_that_cannot_be_compiled_says_why() -> None:
    model, x = Named(), torch.randn(2, 5)
    made = make_candidates(model, find_sites(model), traced=True)
    assert not isinstance(made, Refusal)
    with made[0].install(), pytest.raises(RuntimeError, match="names is a dict, which TorchScript cannot take here"):
        model(x)


def test_the_rewritten_source_is_in_a_traceback() -> None:
    model = Recurrence()
    made = make_candidates(model, find_sites(model), traced=False)
    assert not isinstance(made, Refusal)
    with made[0].install(), pytest.raises(RuntimeError) as caught:
        model(torch.randn(2, 5, 4))
    assert "h = torch.tanh(self.cell(" in str(caught.getrepr())


def test_gradients_are_asked_for_again_afterwards() -> None:
    model = Recurrence()
    made = make_candidates(model, find_sites(model), traced=False)
    assert not isinstance(made, Refusal)
    with made[0].install():
        assert not any(p.requires_grad for p in model.parameters())
    assert all(p.requires_grad for p in model.parameters())


def once(function):
    """A decorator that minds where it stands."""
    if function.__code__.co_filename != __file__:
        raise LookupError("not in this file")
    return function


class Decorated(nn.Module):
    @once
    def forward(self, x):
        total = torch.zeros_like(x[:, 0])
        for i in range(x.shape[1]):
            total = total + x[:, i]
        return total


def test_a_function_is_refused_if_its_decorator_cannot_be_applied_again() -> None:
    model = Decorated()
    refused = make_candidates(model, find_sites(model), traced=False)
    assert isinstance(refused, Refusal)
    assert "its decorators fail when applied again: LookupError: not in this file" in refused.reason
