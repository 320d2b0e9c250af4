"""Sizes that `int`, `float`, `len`, `divmod` and `math` would make plain numbers, under torch.export."""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import EXPORT, STRICT, TRACE, applied, assert_parity, export, make_case
from torch import nn

import fairway
from fairway.convert.ladder.route import Route
from fairway.convert.remedies.contract import Match, Refusal
from fairway.convert.remedies.missing_translation import REMEDY as TRANSLATING
from fairway.convert.remedies.size_made_number import REMEDY

BOTH = {0: "batch", 1: "time"}
Computes = Callable[[torch.Tensor], torch.Tensor]


def by_int(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(int(x.shape[0]) * int(x.shape[1]))


def by_float(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1) / float(x.size(1))


def by_len(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(len(x), 1, -1) * len(x)


def by_divmod(x: torch.Tensor) -> torch.Tensor:
    rows, left = divmod(x.shape[1], 2)
    return x[:, left:].reshape(x.shape[0], rows, 2)


def by_map(x: torch.Tensor) -> torch.Tensor:
    batch, time = map(int, x.shape)
    return x.reshape(time, batch)


def by_square_root(x: torch.Tensor) -> torch.Tensor:
    return x / math.sqrt(x.size(-1)) * np.sqrt(x.shape[0])


def by_logarithm(x: torch.Tensor) -> torch.Tensor:
    return x * math.log(x.shape[1] + 1, 2) / np.log(x.shape[0] + 1)


def by_rounding(x: torch.Tensor) -> torch.Tensor:
    return x[:, : int(x.shape[1] * 0.5) + 1]


def by_numpy(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(int(np.prod(x.shape)))


def by_kind(x: torch.Tensor) -> torch.Tensor:
    """A helper that takes one number or several asks which it got."""
    size = int(x.shape[1])
    if isinstance(size, int):
        return x.reshape(-1, size) * 2
    return x * math.nan


WAYS = (by_int, by_float, by_len, by_divmod, by_map, by_square_root, by_logarithm, by_rounding, by_numpy, by_kind)


class Calls(nn.Module):
    def __init__(self, function: Computes) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def plain(batch: int, time: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, time),)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_dim_is_fixed_without_it(way: Computes) -> None:
    # An empty message is that of shapes that differ: a wrong file without a word.
    with pytest.raises(Exception, match=r"pecialize|Constraints|divmod|cannot be reshaped|has no callable|^$"):
        assert_parity(export(make_case(Calls(way), plain(3, 5)), [BOTH]), Calls(way), *(plain(2, 7),), atol=0)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_other_sizes_agree_with_it(way: Computes) -> None:
    exported = export(make_case(Calls(way), plain(3, 5)), [BOTH], REMEDY, TRANSLATING)
    assert_parity(exported, Calls(way), plain(2, 7), plain(4, 2), plain(6, 11), atol=1e-6)


def test_a_user_gets_a_verified_file(tmp_path: Path) -> None:
    result = fairway.export(
        Calls(by_numpy), ["x: float32[batch, time]"], tmp_path / "out.onnx", bounds={"batch": (1, 4), "time": (1, 9)}
    )
    assert result.verdict == "verified"
    assert "size_made_number" in result.remedies


def test_it_is_not_named_where_it_did_nothing(tmp_path: Path) -> None:
    def halved(x: torch.Tensor) -> torch.Tensor:
        return x / int("2")

    result = fairway.export(
        Calls(halved), ["x: float32[batch, 3]"], tmp_path / "out.onnx", bounds={"batch": (1, 4)}, level="quick"
    )
    assert result.verdict == "verified"
    assert "size_made_number" not in result.remedies


class Everywhere(nn.Module):
    """A call in each place where a function of the model can be."""

    def __init__(self) -> None:
        super().__init__()
        number = 2

        def closed(x: torch.Tensor) -> int:
            return int(x.shape[0]) * number

        self.closed, self.partial = closed, functools.partial(_second, 1)

    @property
    def doubled(self) -> int:
        return int("2")

    @staticmethod
    def still(x: torch.Tensor) -> int:
        return len(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = (lambda: int(x.shape[1]))()
        return x.new_ones(self.closed(x), self.partial(x), self.still(x), inner, self.doubled, _remembered(x.dim()))


def _second(plus: int, x: torch.Tensor) -> int:
    return int(x.shape[1]) + plus


@functools.lru_cache
def _remembered(dim: int) -> int:
    return int(dim)


def test_functions_are_found_wherever_they_are() -> None:
    exported = export(make_case(Everywhere(), plain(3, 5)), [BOTH], REMEDY)
    assert_parity(exported, Everywhere(), plain(2, 7), atol=0)


def test_everything_is_as_before_afterwards() -> None:
    model = Calls(by_int)
    codes, names = (by_int.__code__, Calls.forward.__code__), set(vars(builtins))
    with applied(make_case(model, plain(3, 5)), REMEDY):
        assert by_int.__code__ is not codes[0]
        assert by_int.__code__.co_firstlineno == codes[0].co_firstlineno
        assert torch.equal(model(torch.ones(2, 3)), torch.ones(6))
    assert (by_int.__code__, Calls.forward.__code__) == codes
    assert set(vars(builtins)) == names


def test_applying_it_twice_changes_nothing_more() -> None:
    before, names = by_int.__code__, set(vars(builtins))
    case = make_case(Calls(by_int), plain(3, 5))
    match = REMEDY.detect(case)
    assert isinstance(match, Match)
    with REMEDY.apply(case, match):
        once = by_int.__code__
        with REMEDY.apply(case, match):
            assert by_int.__code__ is once
            exported = export(case, [BOTH])
        assert by_int.__code__ is once
        assert torch.equal(by_int(torch.ones(2, 3)), torch.ones(6))
    assert_parity(exported, Calls(by_int), plain(2, 7), atol=0)
    assert by_int.__code__ is before
    assert set(vars(builtins)) == names


def test_eager_answers_are_the_originals() -> None:
    def asks(x: torch.Tensor) -> list[object]:
        return [
            int("12", 8),
            int(3.9),
            float("inf"),
            len([1, 2]),
            divmod(7, -2),
            [*map(int, "12")],
            isinstance(True, int),
            isinstance(3, float | int),
            math.log(8, 2),
            math.sqrt(2),
            np.ceil(1.2),
            int(x.sum()),
            isinstance([], (int, list)),
        ]

    case = make_case(Calls(lambda x: x * len(asks(x))), plain(1, 3))
    expected = asks(torch.ones(3))
    with applied(case, REMEDY):
        assert "_fairway" in " ".join(asks.__code__.co_names)
        assert asks(torch.ones(3)) == expected


def test_names_shared_with_attributes_stay_attributes() -> None:
    class Shares(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.int().float() * float(x.shape[1])

    exported = export(make_case(Shares(), plain(3, 5)), [BOTH], REMEDY)
    assert_parity(exported, Shares(), plain(2, 7), atol=0)


def test_a_users_own_int_is_left_alone() -> None:
    namespace = {"int": lambda size: 2}
    exec("def own(x):\n    return x * int(x.shape[1])", namespace)
    function = namespace["own"]
    with applied(make_case(Calls(by_int), plain(3, 5)), REMEDY):
        assert function(torch.ones(3)[None]).tolist() == [[2.0, 2.0, 2.0]]  # type: ignore[operator]


@pytest.mark.parametrize("route", [TRACE, STRICT], ids=lambda route: route.name)
def test_other_captures_are_refused(route: Route) -> None:
    assert isinstance(REMEDY.detect(make_case(Calls(by_int), plain(3, 5), route)), Refusal)


def test_a_model_that_calls_none_is_refused() -> None:
    assert isinstance(REMEDY.detect(make_case(nn.Linear(4, 4), plain(3, 4), EXPORT)), Refusal)
    assert isinstance(REMEDY.detect(make_case(Calls(by_int), plain(3, 5), EXPORT)), Match)
