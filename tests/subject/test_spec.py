"""The spec language reads shapes as people write them, and points at the place where it cannot."""

from __future__ import annotations

import pytest

from fairway.diagnostics.errors import UserError
from fairway.model.spec import DTYPES, MASKS, TensorSpec, Values, parse_dim, parse_input


def sizes(spec: TensorSpec) -> list[str]:
    return [str(size) for size in spec.shape]


def refusal(line: str) -> str:
    with pytest.raises(UserError) as caught:
        parse_input(line)
    assert caught.value.finding.code == "FW001"
    return caught.value.finding.seen


def test_a_line_gives_name_dtype_and_shape() -> None:
    spec = parse_input("acc: float32[batch, time, 3]")
    assert (spec.name, spec.dtype, sizes(spec), spec.values) == ("acc", "float32", ["batch", "time", "3"], Values())
    assert spec.dims == ("batch", "time")
    assert spec.sizes({"batch": 2, "time": 5}) == (2, 5, 3)


def test_blanks_do_not_matter() -> None:
    assert parse_input("  acc  :float32 [ batch,time , 3 ]  ") == parse_input("acc: float32[batch, time, 3]")


def test_a_nested_input_is_named_by_its_path() -> None:
    assert parse_input("past.0.key: float32[batch, 8]").name == "past.0.key"


def test_a_scalar_has_an_empty_shape() -> None:
    assert parse_input("scale: float32[]").shape == ()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_read(dtype: str) -> None:
    assert parse_input(f"x: {dtype}[n]").dtype == dtype


def test_sizes_may_be_expressions_over_dims() -> None:
    spec = parse_input("x: float32[2*time+1, past+seq, n//2]")
    assert spec.sizes({"time": 3, "past": 4, "seq": 5, "n": 9}) == (7, 9, 4)
    assert spec.dims == ("time", "past", "seq", "n")


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("ids: int64[n] < 30522", Values(below=30522)),
        ("x: float32[n] in 0..1", Values(low=0.0, high=1.0)),
        ("x: float32[n] in -1.5..2e3", Values(low=-1.5, high=2000.0)),
        ("x: int8[n] in -128..127", Values(low=-128.0, high=127.0)),
        *((f"mask: bool[b, n] = {mask}", Values(mask=mask)) for mask in MASKS),
    ],
)
def test_legal_values_are_read(line: str, values: Values) -> None:
    assert parse_input(line).values == values


def test_lengths_are_read() -> None:
    assert str(parse_input("lengths: int64[batch] = lengths(time)").values.lengths) == "time"


@pytest.mark.parametrize(
    "line",
    [
        "acc: float32[batch, time, 3]",
        "ids: int64[batch, seq] < 30522",
        "x: float32[2*n] in -1.5..2",
        "mask: bool[batch, seq] = padding-left",
        "lengths: int64[batch] = lengths(seq)",
    ],
)
def test_a_spec_prints_as_it_was_written(line: str) -> None:
    assert str(parse_input(line)) == line
    assert parse_input(str(parse_input(line))) == parse_input(line)


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("", "an input's name belongs here\n    \n    ^"),
        (": float32[n]", "an input's name belongs here\n    : float32[n]\n    ^"),
        ("x", "a colon belongs here, after the input's name\n    x\n     ^"),
        ("x..y: float32[n]", "a colon belongs here, after the input's name\n    x..y: float32[n]\n     ^"),
        ("x: float32", "the shape belongs here, in brackets\n    x: float32\n              ^"),
        ("x: float32[n", "the shape's closing bracket is missing\n    x: float32[n\n                ^"),
        ("x: int64[n] < 0", "`< N` is for whole numbers, with N at least 1\n    x: int64[n] < 0\n                ^"),
        ("x: bool[n] < 2", "`< N` is for whole numbers, with N at least 1\n    x: bool[n] < 2\n               ^"),
        ("x: bool[n] in 0..1", "`in low..high` is for numbers\n    x: bool[n] in 0..1\n               ^"),
        ("x: int8[n] in 0..200", "int8 holds -128..127 only\n    x: int8[n] in 0..200\n               ^"),
        ("x: uint8[n] in -1..5", "uint8 holds 0..255 only\n    x: uint8[n] in -1..5\n                ^"),
    ],
)
def test_what_does_not_parse_is_shown_with_a_caret(line: str, seen: str) -> None:
    assert refusal(line) == seen


@pytest.mark.parametrize(
    "size",
    ["", "3.5", "-3", "1-4", "True", "None", "a b", "a/b", "a**2", "a%2", "f(a)", "a.b", "'a'", "lambda", "3//0"],
)
def test_a_size_that_is_none_is_refused(size: str) -> None:
    seen = refusal(f"x: float32[n, {size}, 3]")
    assert seen.splitlines()[0] == "a size belongs here: a number, a name, or 2*name+1"


def test_the_caret_is_under_the_size_after_its_blank() -> None:
    _, line, caret = refusal("x: float32[n,   3!]").split("\n")
    assert line[caret.index("^")] == "3"


def test_whole_numbers_take_no_fractions() -> None:
    seen = refusal("x: int64[n] in 0.5..2")
    assert seen.splitlines()[0] == "int64 holds whole numbers; write the range with whole numbers"


def test_a_range_has_two_ends() -> None:
    for line in ("x: float32[n] in ..5", "x: float32[n] in 5..", "x: float32[n] in 5"):
        assert refusal(line).startswith("the legal values belong here: `< N`, `in low..high`, ")


def test_a_mask_needs_an_axis() -> None:
    assert refusal("mask: bool[] = padding").startswith("the legal values belong here: ")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("time=10..2000", ("time", (10, 2000), None)),
        ("seq%8", ("seq", None, 8)),
        ("seq=8..512%8", ("seq", (8, 512), 8)),
        (" seq = 8 .. 512 % 8 ", ("seq", (8, 512), 8)),
        ("n=0..0", ("n", (0, 0), None)),
    ],
)
def test_a_dim_is_read(text: str, parsed: tuple[str, tuple[int, int] | None, int | None]) -> None:
    assert parse_dim(text) == parsed


@pytest.mark.parametrize(
    ("text", "column"), [("", 0), ("time", 4), ("time=3", 4), ("time=1-9", 4), ("2time=1..9", 0), ("time=1..9x", 4)]
)
def test_a_dim_that_does_not_parse_is_shown_with_a_caret(text: str, column: int) -> None:
    with pytest.raises(UserError) as caught:
        parse_dim(text)
    what = "a dim is written name=low..high, name%multiple, or both"
    assert caught.value.finding.seen == f"{what}\n    {text}\n    {' ' * column}^"
