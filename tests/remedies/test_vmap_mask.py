"""Masks built with torch.vmap, through the tracer and through torch.export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from harness import EXPORT, STRICT, TRACE, assert_parity, export, make_case, operators
from torch import nn

import fairway
from fairway.convert.ladder.route import Route
from fairway.convert.remedies.contract import Refusal
from fairway.convert.remedies.vmap_mask import REMEDY

BOTH = {0: "batch", 1: "time"}


class Causal(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        index = torch.arange(x.shape[1])
        mask = torch.vmap(torch.vmap(lambda q, k: k <= q, (None, 0)), (0, None))(index, index)
        return x[:, :, None] * mask


class Padded(nn.Module):
    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        def visible(b: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            return (k <= q) & keep[b, k]

        rows, index = torch.arange(x.shape[0]), torch.arange(x.shape[1])
        mapped: Callable[..., torch.Tensor] = visible
        for dims in ((None, None, 0), (None, 0, None), (0, None, None)):
            mapped = torch.vmap(mapped, in_dims=dims)
        return x[:, :, None] * mapped(rows, index, index)


class Counted(nn.Module):
    """Depends on the rank that vmap hides: broadcasting would give another answer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        index = torch.arange(x.shape[1])
        return x + torch.vmap(lambda i: i * (1 + i.dim()))(index)


def plain(batch: int, time: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, time),)


def padded(batch: int, time: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, time), torch.arange(time)[None] <= torch.arange(batch)[:, None]


CASES = {"causal": (Causal(), plain, [BOTH]), "padded": (Padded(), padded, [BOTH, BOTH])}


@pytest.mark.parametrize(
    ("name", "route", "words"),
    [
        ("causal", TRACE, "cannot be reshaped"),
        ("padded", TRACE, "Unsupported value kind: Tensor"),
        ("padded", EXPORT, r"calling .item\(\) on a Tensor"),
    ],
)
def test_the_mask_fails_or_is_fixed_without_it(name: str, route: Route, words: str) -> None:
    model, make, dims = CASES[name]
    with pytest.raises(Exception, match=words):
        assert_parity(export(make_case(model, make(2, 5), route), dims), model, make(3, 7), atol=0)


@pytest.mark.parametrize("route", [TRACE, EXPORT], ids=lambda r: r.name)
@pytest.mark.parametrize("name", CASES)
def test_other_lengths_agree_with_it(name: str, route: Route) -> None:
    model, make, dims = CASES[name]
    exported = export(make_case(model, make(2, 5), route), dims, REMEDY)
    assert_parity(exported, model, make(3, 7), make(1, 1), make(4, 2), atol=0)


def test_a_transformers_mask_with_a_predicate_of_its_own_is_traced() -> None:
    masking = pytest.importorskip("transformers.masking_utils")
    config = pytest.importorskip("transformers").LlamaConfig(attn_implementation="sdpa")

    class Masked(nn.Module):
        def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            return masking.create_causal_mask(
                config, x, keep, past_key_values=None, and_mask_function=lambda b, h, q, k: keep[b, k]
            )

    def make(batch: int, time: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(batch, time, 2), padded(batch, time)[1]

    with pytest.raises(RuntimeError, match="unordered_map::at"):
        export(make_case(Masked(), make(2, 5), TRACE), [BOTH, BOTH])
    exported = export(make_case(Masked(), make(2, 5), TRACE), [BOTH, BOTH], REMEDY)
    assert_parity(exported, Masked(), make(3, 7), make(4, 2), atol=0)


def test_a_function_that_broadcasting_would_change_keeps_vmap() -> None:
    model = Counted()
    exported = export(make_case(model, plain(2, 5), TRACE), [{0: "batch"}], REMEDY)
    assert_parity(exported, model, plain(3, 5), atol=0)


@pytest.mark.parametrize(
    ("model", "route", "reason"),
    [
        (Causal(), STRICT, "the defect is not known under the strict capture"),
        (nn.Linear(5, 5), TRACE, "no module of the model builds a mask with torch.vmap"),
    ],
    ids=["strict", "no-vmap"],
)
def test_near_misses_are_refused(model: nn.Module, route: Route, reason: str) -> None:
    answer = REMEDY.detect(make_case(model, plain(2, 5), route))
    assert isinstance(answer, Refusal)
    assert answer.reason == reason


def test_applying_it_twice_changes_nothing_more_and_leaves_nothing_behind() -> None:
    model, make, dims = CASES["padded"]
    original = torch.vmap
    once = export(make_case(model, make(2, 5), TRACE), dims, REMEDY)
    twice = export(make_case(model, make(2, 5), TRACE), dims, REMEDY, REMEDY)
    assert operators(twice) == operators(once)
    assert_parity(twice, model, make(3, 7), atol=0)
    assert torch.vmap is original
    assert torch.func.vmap is original


class Mentioned(nn.Module):
    """In a module that mentions vmap, and without it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.mark.parametrize(("model", "listed"), [(Mentioned(), False), (Causal(), True)])
def test_a_model_without_vmap_does_not_list_the_remedy(tmp_path: Path, model: nn.Module, listed: bool) -> None:
    inputs = ["x: float32[batch, time]"]
    result = fairway.export(model, inputs, tmp_path / "m.onnx", routes=["trace"], level="quick")
    assert (result.verdict, "vmap_mask" in result.remedies) == ("verified", listed)
