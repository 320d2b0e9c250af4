"""Dims: ranges that hold sizes, and whole-number expressions over them."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.diagnostics.errors import UserError
from fairway.model.dims import UNDECLARED_HIGH, Dim, Domain, Size, build_domain, describe_point, parse_size


def complaint(call: Any) -> tuple[str, str]:
    with pytest.raises(UserError) as caught:
        call()
    return caught.value.finding.code, caught.value.finding.seen


@pytest.mark.parametrize(
    ("text", "affine"),
    [
        ("n", ("n", 1, 0)),
        ("2*n+1", ("n", 2, 1)),
        ("n*2 - 3", ("n", 2, -3)),
        ("(n+1)*4", ("n", 4, 4)),
        ("n+n", ("n", 2, 0)),
        ("n//2", None),
        ("n*n", None),
        ("n-n", None),
        ("a+b", None),
        ("7", None),
    ],
)
def test_a_size_knows_whether_it_is_affine_in_one_dim(text: str, affine: tuple[str, int, int] | None) -> None:
    assert parse_size(text).affine == affine


def test_a_size_is_fixed_when_it_names_no_dim() -> None:
    assert [parse_size(text).constant_value for text in ("3", "2*8", "n")] == [3, 16, None]


def test_a_size_evaluates_at_a_point() -> None:
    assert parse_size("2*time + past//3").at({"time": 5, "past": 10}) == 13


@pytest.mark.parametrize("text", ["", "1.5", "-1", "2-5", "True", "n/2", "n**2", "__import__('os')", "4//0", "n[0]"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_a_range_holds_its_multiples_only() -> None:
    assert list(Dim("n", 3, 20, 8).sizes) == [8, 16]
    assert list(Dim("n", 0, 9, 4).sizes) == [0, 4, 8]


@pytest.mark.parametrize(
    ("low", "high", "multiple", "seen"),
    [
        (9, 3, 1, "dim n: 9..3 contains no size"),
        (1, 7, 8, "dim n: 1..7 in multiples of 8 contains no size"),
        (-1, 7, 1, "dim n: -1..7; a bound is at least 0, a multiple at least 1"),
        (1, 7, 0, "dim n: 1..7 in multiples of 0; a bound is at least 0, a multiple at least 1"),
        (1, 7, -2, "dim n: 1..7 in multiples of -2; a bound is at least 0, a multiple at least 1"),
    ],
)
def test_a_range_without_a_size_is_refused(low: int, high: int, multiple: int, seen: str) -> None:
    assert complaint(lambda: Dim("n", low, high, multiple)) == ("FW004", seen)


@pytest.mark.parametrize("bounds", [3, (1, 2, 3), ("1", "9"), (1.0, 9.0), None])
def test_bounds_that_are_no_pair_are_refused(bounds: Any) -> None:
    seen = f"dim n: expected bounds (low, high), got {bounds!r}"
    assert complaint(lambda: build_domain(["n"], {"n": bounds}, {})) == ("FW004", seen)


def test_bounds_for_a_name_that_no_shape_has_are_refused() -> None:
    seen = "'m' is not a dim of any input; the dims are: n"
    assert complaint(lambda: build_domain(["n"], {"m": (1, 2)}, {})) == ("FW005", seen)
    assert complaint(lambda: build_domain(["n"], {}, {"m": 8})) == ("FW005", seen)
    assert complaint(lambda: build_domain([], {"m": (1, 2)}, {})) == (
        "FW005",
        "'m' is not a dim of any input; the dims are: none",
    )


def test_undeclared_bounds_are_chosen_and_said_to_be() -> None:
    domain = build_domain(["a", "b", "c"], {"a": (2, 5)}, {"b": 32}, {"c": 100})
    assert [(d.low, d.high, d.multiple, d.declared) for d in domain] == [
        (2, 5, 1, True),
        (32, 128, 32, False),
        (1, 200, 1, False),
    ]
    assert not domain.is_declared
    assert build_domain(["n"], {}, {})["n"].high == UNDECLARED_HIGH


def test_a_domain_knows_its_points() -> None:
    domain = Domain((Dim("a", 1, 4), Dim("b", 8, 64, 8)))
    assert domain.holds({"a": 4, "b": 16})
    assert not domain.holds({"a": 5, "b": 16})
    assert not domain.holds({"a": 4, "b": 12})
    assert not domain.holds({"a": 4})


def test_domains_and_points_print_as_people_write_them() -> None:
    assert str(Domain((Dim("a", 1, 4), Dim("b", 8, 64, 8)))) == "a 1..4, b 8..64 %8"
    assert str(Domain(())) == "one fixed shape"
    assert describe_point({"a": 1, "b": 2}) == "a=1, b=2"
    assert describe_point({}) == "the fixed shape"


def test_sizes_with_the_same_text_are_the_same_size() -> None:
    assert Size("n") == Size("n")
    assert len({Size("n"), Size("n"), Size("m")}) == 2
