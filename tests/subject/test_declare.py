"""Every form in which people say which dims vary, as one shape per tensor."""

# ruff: noqa: F722, F821, UP037  # jaxtyping's strings are shapes, not types
from __future__ import annotations

from typing import Any, Optional

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.export import Dim

from fairway.diagnostics.errors import UserError
from fairway.model.declare import DeclaredDims, read_annotations, read_dims
from fairway.model.tree import flatten

PAST = {"past": [{"key": torch.zeros(2, 8, 5, 4), "value": torch.zeros(2, 8, 5, 4)} for _ in range(2)]}


def declared(dims: Any, **named: Any) -> DeclaredDims:
    leaves = [leaf for leaf in flatten(named) if isinstance(leaf.value, torch.Tensor)]
    return read_dims(dims, leaves, list(named))


def shape(dims: Any, tensor: Tensor | None = None) -> list[str]:
    """The sizes declared for one input `x` of (2, 5, 3)."""
    found = declared(dims, x=torch.zeros(2, 5, 3) if tensor is None else tensor)
    return [str(size) for size in found.shapes["x"]]


def complaint(dims: Any, **named: Any) -> tuple[str, str]:
    with pytest.raises(UserError) as caught:
        declared(dims, **(named or {"x": torch.zeros(2, 5, 3)}))
    return caught.value.finding.code, caught.value.finding.seen


def test_without_dims_every_size_is_fixed_at_the_example() -> None:
    assert shape(None) == ["2", "5", "3"]
    assert shape({}) == ["2", "5", "3"]


@pytest.mark.parametrize(
    "text", ["batch time 3", "batch, time, 3", "[batch, time, 3]", "(batch, time, 3)", "  batch   time 3 "]
)
def test_a_string_names_each_axis(text: str) -> None:
    assert shape({"x": text}) == ["batch", "time", "3"]


def test_a_string_may_hold_expressions_with_brackets() -> None:
    assert shape({"x": "b 2*(time+1)-1 3"}) == ["b", "2*(time+1)-1", "3"]
    assert shape({"x": "(b + 1) time 3"}) == ["(b + 1)", "time", "3"]


def test_an_axis_dict_names_some_axes() -> None:
    assert shape({"x": {0: "batch"}}) == ["batch", "5", "3"]
    assert shape({"x": {-2: "time"}}) == ["2", "time", "3"]


def test_a_list_names_each_axis_and_none_keeps_the_example() -> None:
    assert shape({"x": ["batch", None, 3]}) == ["batch", "5", "3"]
    assert shape({"x": ("batch", "time", None)}) == ["batch", "time", "3"]


def test_none_keeps_a_whole_tensor_fixed() -> None:
    assert shape({"x": None}) == ["2", "5", "3"]


def test_a_sequence_goes_by_the_order_of_the_arguments() -> None:
    found = declared(["batch time 3", {0: "batch"}], x=torch.zeros(2, 5, 3), y=torch.zeros(2, 1))
    assert [str(s) for s in found.shapes["x"]] == ["batch", "time", "3"]
    assert [str(s) for s in found.shapes["y"]] == ["batch", "1"]


def test_a_nested_tree_follows_the_inputs() -> None:
    dims = {"past": [{"key": "batch 8 seq 4", "value": {0: "batch", 2: "seq"}}, None]}
    found = declared(dims, **PAST)
    assert [str(s) for s in found.shapes["past.0.key"]] == ["batch", "8", "seq", "4"]
    assert [str(s) for s in found.shapes["past.0.value"]] == ["batch", "8", "seq", "4"]
    assert [str(s) for s in found.shapes["past.1.key"]] == ["2", "8", "5", "4"]


def test_a_path_names_one_tensor_inside() -> None:
    found = declared({"past.0.key": "batch 8 seq 4", "past.1": {"value": {2: "seq"}}}, **PAST)
    assert [str(s) for s in found.shapes["past.0.key"]] == ["batch", "8", "seq", "4"]
    assert [str(s) for s in found.shapes["past.1.value"]] == ["2", "8", "seq", "4"]
    assert [str(s) for s in found.shapes["past.0.value"]] == ["2", "8", "5", "4"]


def test_a_torch_dim_brings_its_bounds() -> None:
    found = declared({"x": {0: Dim("batch", min=2, max=64), 1: Dim("time", min=4)}}, x=torch.zeros(2, 5, 3))
    assert [str(s) for s in found.shapes["x"]] == ["batch", "time", "3"]
    assert found.bounds == {"batch": (2, 64), "time": (4, 64)}


def test_a_torch_dim_without_bounds_leaves_them_undeclared() -> None:
    assert declared({"x": {0: Dim("batch")}}, x=torch.zeros(2, 5, 3)).bounds == {}


def test_a_torch_dim_without_a_minimum_does_not_include_size_zero() -> None:
    assert declared({"x": {0: Dim("batch", max=64)}}, x=torch.zeros(2, 5, 3)).bounds == {"batch": (1, 64)}


def test_a_derived_torch_dim_is_an_expression_over_its_root() -> None:
    half = Dim("half", min=1, max=8)
    found = declared({"x": (2 * half, 2 * half + 1, 2 * half - 1)}, x=torch.zeros(4, 5, 3))
    assert [str(s) for s in found.shapes["x"]] == ["2*half", "2*half+1", "2*half-1"]
    assert [s.at({"half": 2}) for s in found.shapes["x"]] == [4, 5, 3]
    assert found.bounds == {"half": (1, 8)}


@pytest.mark.parametrize("hint", [Dim.AUTO, Dim.DYNAMIC])
def test_an_automatic_dim_is_named_after_its_input_and_axis(hint: Any) -> None:
    found = declared({"x": {1: hint}}, x=torch.zeros(2, 5, 3))
    assert [str(s) for s in found.shapes["x"]] == ["2", "x_1", "3"]
    assert found.bounds == {}


def test_an_automatic_dim_inside_a_tree_has_a_valid_name() -> None:
    found = declared({"past": [{"key": {2: Dim.AUTO}}]}, **PAST)
    assert str(found.shapes["past.0.key"][2]) == "past_0_key_2"


def test_an_automatic_dim_brings_its_bounds() -> None:
    assert declared({"x": {0: Dim.DYNAMIC(min=3, max=9)}}, x=torch.zeros(4, 1)).bounds == {"x_0": (3, 9)}


def test_a_static_dim_is_fixed_at_the_example() -> None:
    assert shape({"x": {0: "batch", 1: Dim.STATIC}}) == ["batch", "5", "3"]


def test_the_tree_that_torch_export_takes_is_taken_as_it_is() -> None:
    batch = Dim("batch", min=1, max=8)
    tree = {"x": {0: batch, 1: Dim.AUTO}, "past": [{"key": {0: batch}, "value": (batch, None, Dim.STATIC, 4)}, None]}
    found = declared(tree, x=torch.zeros(2, 5, 3), **PAST)
    assert {name: " ".join(map(str, sizes)) for name, sizes in found.shapes.items()} == {
        "x": "batch x_1 3",
        "past.0.key": "batch 8 5 4",
        "past.0.value": "batch 8 5 4",
        "past.1.key": "2 8 5 4",
        "past.1.value": "2 8 5 4",
    }
    assert found.bounds == {"batch": (1, 8)}


@pytest.mark.parametrize(
    ("dims", "code", "seen"),
    [
        ({"y": "batch"}, "FW002", "dims names 'y'; the inputs are: x"),
        (["batch time 3", "n"], "FW002", "dims: expected one entry for each input (x), got 2"),
        ({"x": "batch time 4"}, "FW003", "x: axis 2 is declared 4, the example tensor has 3"),
        ({"x": "batch 3"}, "FW003", "x: [batch 3] declares 2 sizes, the example has 3: (2, 5, 3)"),
        ({"x": {3: "batch"}}, "FW003", "x: axis 3 is declared, but the example has 3 axes"),
        ({"x": {"0": "batch"}}, "FW003", "x: axis '0' is declared, but the example has 3 axes"),
        (
            {"x": "batch ti-me! 3"},
            "FW001",
            "x: a size belongs here: a number, a name, or 2*name+1\n    batch ti-me! 3\n          ^",
        ),
        (
            {"x": "[batch, time?, 3]"},
            "FW001",
            "x: a size belongs here: a number, a name, or 2*name+1\n    [batch, time?, 3]\n            ^",
        ),
        ({"x": ["batch", "ti me", 3]}, "FW001", "x, axis 1: 'ti me' is not a size"),
        ({"x": ["batch", 2.5, 3]}, "FW015", "dims['x'], axis 1: expected a size, got 2.5"),
        ({"x": 3}, "FW015", "dims['x']: expected the sizes of all axes, got 3"),
        ("batch time 3", "FW015", "dims: expected a mapping by input name, got 'batch time 3'"),
        (3, "FW015", "dims: expected a mapping by input name, got 3"),
    ],
)
def test_what_does_not_fit_is_refused(dims: Any, code: str, seen: str) -> None:
    assert complaint(dims) == (code, seen)


def test_one_shape_for_several_tensors_is_refused() -> None:
    inside = "past.0.key, past.0.value, past.1.key, past.1.value"
    assert complaint({"past": "batch 8 seq 4"}, **PAST) == (
        "FW003",
        f"past: declared 'batch 8 seq 4', but it holds several tensors: {inside}",
    )


def annotated(
    x: Float[Tensor, "batch time 3"],
    ids: Int[Tensor, "batch 2*time+1"],
    any_rank: Float[Tensor, "*batch c"],
    dots: Float[Tensor, "... c"],
    broadcast: Float[Tensor, "#batch c"],
    anonymous: Float[Tensor, "_ c"],
    documented: Float[Tensor, "rows=4 c"],
    mask: Float[Tensor, "batch time"] | None = None,
    old: Optional[Float[Tensor, "batch"]] = None,  # noqa: UP045  # the old spelling must be read too
    plain: Tensor | None = None,
    number: int = 3,
) -> Float[Tensor, "batch out"]:
    raise AssertionError("only its annotations are read")


def test_jaxtyping_annotations_are_read_where_they_fix_the_rank() -> None:
    assert read_annotations(annotated) == {
        "x": ["batch", "time", "3"],
        "ids": ["batch", "2*time+1"],
        "broadcast": ["batch", "c"],
        "anonymous": [None, "c"],
        "documented": ["4", "c"],
        "mask": ["batch", "time"],
        "old": ["batch"],
    }


def test_annotations_that_cannot_be_evaluated_are_ignored() -> None:
    def forward(x: "Nowhere[Tensor, 'a b']") -> None:
        raise AssertionError("only its annotations are read")

    assert read_annotations(forward) == {}
