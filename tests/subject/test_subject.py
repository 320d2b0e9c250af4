"""Every form of `inputs` becomes the same thing: a spec, a domain, and legal calls of the model."""

# ruff: noqa: F722  # jaxtyping's strings are shapes, not types
from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

from fairway.diagnostics.errors import UserError
from fairway.model.dims import Dim, Domain
from fairway.model.example import choose_example
from fairway.model.spec import parse_input
from fairway.model.subject import Subject, build_subject
from fairway.model.values import FLAVORS


class Echo(nn.Module):
    """Answers with its arguments as it got them."""

    def forward(self, a: Any, b: Any = None, *, c: Any = None) -> dict[str, Any]:
        return {"a": a, "b": b, "c": c}


def spec(subject: Subject) -> list[str]:
    return [str(s) for s in subject.spec]


def called(subject: Subject, seed: int = 5, **sizes: int) -> Any:
    """Return the inputs that the model got at a point."""
    args, kwargs = subject.call(subject.make({**subject.example, **sizes}, seed, "normal"))
    return subject.model(*args, **kwargs)


def complaint(model: nn.Module, inputs: Any, **more: Any) -> tuple[str, str]:
    with pytest.raises(UserError) as caught:
        build_subject(model, inputs, **more)
    return caught.value.finding.code, caught.value.finding.seen


def test_a_tuple_is_the_positional_arguments() -> None:
    subject = build_subject(Echo(), (torch.zeros(2, 3), torch.zeros(2)), dims={"a": "n 3", "b": "n"})
    assert spec(subject) == ["a: float32[n, 3]", "b: float32[n]"]
    got = called(subject, n=7)
    assert (tuple(got["a"].shape), tuple(got["b"].shape), got["c"]) == ((7, 3), (7,), None)


def test_a_single_tensor_is_one_argument() -> None:
    assert spec(build_subject(Echo(), torch.zeros(2, 3))) == ["a: float32[2, 3]"]


def test_a_dict_is_the_keyword_arguments() -> None:
    subject = build_subject(Echo(), {"a": torch.zeros(2, 3), "c": torch.zeros(2)}, dims={"c": "n", "a": "n 3"})
    assert spec(subject) == ["a: float32[n, 3]", "c: float32[n]"]
    got = called(subject, n=7)
    assert (tuple(got["a"].shape), got["b"], tuple(got["c"].shape)) == ((7, 3), None, (7,))


def test_keyword_arguments_in_another_order_than_forwards_still_reach_the_right_parameter() -> None:
    inputs = {"c": torch.full((3,), 3.0), "b": torch.full((2,), 2.0), "a": torch.full((1,), 1.0)}
    subject = build_subject(Echo(), inputs)
    assert spec(subject) == ["a: float32[1]", "b: float32[2]", "c: float32[3]"]
    assert {name: tensor.tolist() for name, tensor in called(subject, seed=1).items()} == {
        "a": [1.0],
        "b": [2.0, 2.0],
        "c": [3.0, 3.0, 3.0],
    }


def test_args_and_kwargs_come_as_a_pair() -> None:
    inputs = ((torch.full((1,), 1.0),), {"c": torch.full((3,), 3.0), "b": torch.full((2,), 2.0)})
    subject = build_subject(Echo(), inputs)
    assert spec(subject) == ["a: float32[1]", "b: float32[2]", "c: float32[3]"]
    first = {name: tensor.tolist()[0] for name, tensor in called(subject, seed=1).items()}
    assert first == {"a": 1.0, "b": 2.0, "c": 3.0}


def test_a_function_is_asked_with_the_seed_and_the_sizes() -> None:
    asked = []

    def inputs(seed: int, *, n: int, m: int) -> tuple[Tensor, ...]:
        asked.append((seed, n, m))
        return torch.full((n, m), float(seed)), torch.zeros(n)

    subject = build_subject(Echo(), inputs, dims={"a": "n m", "b": "n"}, bounds={"n": (1, 9), "m": (4, 8)})
    got = called(subject, seed=6, n=9, m=4)
    assert asked[-1] == (6, 9, 4)
    assert (tuple(got["a"].shape), float(got["a"][0, 0]), tuple(got["b"].shape)) == ((9, 4), 6.0, (9,))
    assert subject.flavors == ("normal",)


def test_a_function_that_uses_global_generators_is_reproducible() -> None:
    def inputs(seed: int, n: int) -> tuple[Tensor, ...]:
        return (torch.randn(n),)

    subject = build_subject(Echo(), inputs, dims={"a": "n"}, bounds={"n": (1, 9)})
    assert torch.equal(called(subject, seed=3)["a"], called(subject, seed=3)["a"])
    assert not torch.equal(called(subject, seed=3)["a"], called(subject, seed=4)["a"])


def test_spec_lines_are_keyword_arguments() -> None:
    subject = build_subject(Echo(), ["c: int64[n] < 5", "a: float32[n, 3]"])
    assert spec(subject) == ["c: int64[n] < 5", "a: float32[n, 3]"]
    got = called(subject, n=4)
    assert (tuple(got["a"].shape), got["b"], tuple(got["c"].shape)) == ((4, 3), None, (4,))
    assert subject.flavors == FLAVORS


def test_one_spec_line_may_stand_alone() -> None:
    assert spec(build_subject(Echo(), "a: float32[n, 3]")) == ["a: float32[n, 3]"]
    assert spec(build_subject(Echo(), [parse_input("a: float32[n, 3]")])) == ["a: float32[n, 3]"]


def test_spec_lines_with_paths_build_lists_and_dicts() -> None:
    lines = ["a.1.key: float32[n, 1]", "a.0.key: float32[n, 2]", "a.0.value: float32[n, 3]", "b.mask: bool[n]"]
    got = called(build_subject(Echo(), lines), n=4)
    assert [tuple(t.shape) for t in (got["a"][0]["key"], got["a"][0]["value"], got["a"][1]["key"])] == [
        (4, 2),
        (4, 3),
        (4, 1),
    ]
    assert isinstance(got["a"], list)
    assert got["b"]["mask"].dtype == torch.bool


class Spread(nn.Module):
    def forward(self, first: Tensor, *rest: Tensor, **named: Tensor) -> dict[str, Any]:
        return {"first": first, "rest": rest, "named": named}


def test_spec_lines_reach_star_arguments_in_order() -> None:
    got = called(build_subject(Spread(), ["first: float32[1]", "x: float32[2]", "y: float32[3]"]))
    assert tuple(got["first"].shape) == (1,)
    assert {name: tuple(t.shape) for name, t in got["named"].items()} == {"x": (2,), "y": (3,)}

    class Star(nn.Module):
        def forward(self, first: Tensor, *rest: Tensor) -> dict[str, Any]:
            return {"first": first, "rest": rest}

    got = called(build_subject(Star(), ["x: float32[2]", "first: float32[1]", "y: float32[3]"]))
    assert tuple(got["first"].shape) == (1,)
    assert [tuple(t.shape) for t in got["rest"]] == [(2,), (3,)]


def test_spec_lines_reach_positional_only_arguments() -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor, /, y: Tensor) -> dict[str, Any]:
            return {"x": x, "y": y}

    got = called(build_subject(Net(), ["y: float32[2]", "x: float32[1]"]))
    assert (tuple(got["x"].shape), tuple(got["y"].shape)) == ((1,), (2,))


def test_star_arguments_take_example_tensors() -> None:
    inputs = ((torch.zeros(1), torch.zeros(2), torch.zeros(3)), {"z": torch.zeros(4)})
    subject = build_subject(Spread(), inputs)
    assert [s.name for s in subject.spec] == ["first", "rest_0", "rest_1", "z"]
    got = called(subject)
    assert ([tuple(t.shape) for t in got["rest"]], tuple(got["named"]["z"].shape)) == ([(2,), (3,)], (4,))


Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class Box:
    tensor: Tensor
    label: str
    cached: Tensor = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cached", self.tensor + 1)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ([torch.zeros(2, 1), torch.zeros(2, 2)], ["a.0", "a.1"]),
        ((torch.zeros(2, 1), [torch.zeros(2, 2)]), ["a.0", "a.1.0"]),
        ({"k": torch.zeros(2, 1), "v": {"w": torch.zeros(2, 2)}}, ["a.k", "a.v.w"]),
        ({3: torch.zeros(2, 1)}, ["a.3"]),
        (OrderedDict([(3, torch.zeros(2, 1)), ("x", torch.zeros(2, 2))]), ["a.3", "a.x"]),
        (Pair(torch.zeros(2, 1), torch.zeros(2, 2)), ["a.left", "a.right"]),
        (Box(torch.zeros(2, 1), "label"), ["a.tensor", "a.cached"]),
        ([None, torch.zeros(2, 1), 3, "word"], ["a.1"]),
    ],
    ids=["list", "tuple", "dict", "int keys", "ordered dict", "named tuple", "dataclass", "with constants"],
)
def test_nested_inputs_are_flattened_and_built_again(value: Any, names: list[str]) -> None:
    subject = build_subject(Echo(), (value,), dims={name: {0: "n"} for name in names})
    assert [s.name for s in subject.spec] == names
    again = called(subject, n=6)["a"]
    assert type(again) is type(value)
    tensors = subject.make({"n": 6}, 5, "normal")
    assert [t.shape[0] for t in tensors] == [6] * len(names)


def test_constants_among_the_inputs_stay_as_they_are() -> None:
    got = called(build_subject(Echo(), ([None, torch.zeros(2), 3, "word"],), dims={"a.1": "n"}), n=4)["a"]
    assert (got[0], tuple(got[1].shape), got[2], got[3]) == (None, (4,), 3, "word")


def test_optional_arguments_may_be_left_out_or_none() -> None:
    for inputs in ((torch.zeros(2),), {"a": torch.zeros(2)}, (torch.zeros(2), None)):
        subject = build_subject(Echo(), inputs)
        assert spec(subject) == ["a: float32[2]"]
        assert called(subject)["b"] is None


def test_the_users_own_tensors_are_used_at_their_own_sizes() -> None:
    mine = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    subject = build_subject(Echo(), (mine,), dims={"a": "n 3"})
    assert torch.equal(subject.make({"n": 2}, 1, "normal")[0], mine)
    assert not torch.equal(subject.make({"n": 2}, 2, "normal")[0], mine)
    subject.make({"n": 2}, 1, "normal")[0].zero_()
    assert mine.sum() == 21


class Annotated(nn.Module):
    def forward(self, x: Float[Tensor, "batch time 3"], mask: Float[Tensor, "batch time"] | None = None) -> Tensor:
        return x


def test_annotations_on_forward_declare_the_dims() -> None:
    subject = build_subject(Annotated(), (torch.zeros(2, 5, 3), torch.zeros(2, 5)))
    assert spec(subject) == ["x: float32[batch, time, 3]", "mask: float32[batch, time]"]


def test_annotations_of_arguments_left_out_do_not_matter() -> None:
    assert spec(build_subject(Annotated(), (torch.zeros(2, 5, 3),))) == ["x: float32[batch, time, 3]"]


def test_dims_go_before_annotations() -> None:
    assert spec(build_subject(Annotated(), (torch.zeros(2, 5, 3),), dims={"x": {0: "n"}})) == ["x: float32[n, 5, 3]"]


def test_input_names_rename_in_order() -> None:
    subject = build_subject(Echo(), (torch.zeros(2), torch.zeros(3)), input_names=["left", "right"])
    assert subject.input_names == ("left", "right")
    assert tuple(called(subject)["b"].shape) == (3,)


def test_building_a_subject_leaves_random_state_dtype_and_grad_mode_alone() -> None:
    def inputs(seed: int, n: int) -> tuple[Tensor, ...]:
        torch.manual_seed(9)
        np.random.seed(9)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        return (torch.zeros(n),)

    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    build_subject(Echo(), inputs, dims={"a": "n"}, bounds={"n": (1, 4)})
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert (torch.get_default_dtype(), torch.is_grad_enabled()) == (torch.float32, True)


# The example that exports start from


def test_the_example_has_distinct_sizes_above_one() -> None:
    domain = Domain((Dim("a", 1, 64), Dim("b", 1, 64), Dim("c", 0, 64)))
    point = choose_example(domain, [parse_input("x: float32[a, b, c, 2, 5]")], {})
    assert point == {"a": 3, "b": 7, "c": 11}


def test_the_example_keeps_to_the_domain() -> None:
    domain = Domain((Dim("one", 1, 1), Dim("two", 1, 2), Dim("eights", 8, 64, 8), Dim("late", 1000, 4000)))
    point = choose_example(domain, (), {})
    assert domain.holds(point)
    assert (point["one"], point["two"]) == (1, 2)


def test_sizes_asked_for_are_not_given_to_other_dims() -> None:
    domain = Domain((Dim("a", 1, 64), Dim("b", 1, 64)))
    assert choose_example(domain, (), {"b": 2}) == {"a": 3, "b": 2}


def test_a_second_example_differs_in_every_dim_that_can() -> None:
    domain = Domain((Dim("a", 1, 64), Dim("b", 4, 4)))
    first = choose_example(domain, (), {})
    assert choose_example(domain, (), {}, avoid=first)["a"] not in (1, first["a"])
    assert choose_example(domain, (), {}, avoid=first)["b"] == 4


def test_a_second_example_avoids_one_if_another_dim_differs() -> None:
    domain = Domain((Dim("batch", 1, 2), Dim("time", 1, 9)))
    second = choose_example(domain, (), {}, avoid={"batch": 2, "time": 3})
    assert second == {"batch": 2, "time": 5}
    alone = Domain((Dim("batch", 1, 2),))
    assert choose_example(alone, (), {}, avoid={"batch": 2}) == {"batch": 1}


def test_sizes_of_example_tensors_are_kept_if_they_are_distinct() -> None:
    subject = build_subject(Echo(), (torch.zeros(4, 9, 3),), dims={"a": "b t 3"})
    assert subject.example == {"b": 4, "t": 9}


@pytest.mark.parametrize("sizes", [(1, 9), (3, 9), (9, 9)], ids=["a batch of one", "equal to a fixed size", "equal"])
def test_sizes_that_exporters_would_specialize_or_merge_are_not_started_from(sizes: tuple[int, int]) -> None:
    subject = build_subject(Echo(), (torch.zeros(*sizes, 3),), dims={"a": "b t 3"})
    values = [*subject.example.values(), 3]
    assert len(set(values)) == 3
    assert min(values) >= 2


def test_an_example_asked_for_by_name_is_taken_as_it_is() -> None:
    assert build_subject(Echo(), "a: float32[n, 3]", example={"n": 1}).example == {"n": 1}


# What is refused


@pytest.mark.parametrize(
    ("inputs", "more", "code", "seen"),
    [
        (3.5, {}, "FW015", "inputs: expected spec lines, tensors or a function, got float: 3.5"),
        (
            (),
            {},
            "FW015",
            "forward(a: 'Any', b: 'Any' = None, *, c: 'Any' = None) -> 'dict[str, Any]' cannot be called "
            "with these inputs: missing a required argument: 'a'; there is no tensor in ()",
        ),
        (
            {"z": torch.zeros(1)},
            {},
            "FW015",
            "forward(a: 'Any', b: 'Any' = None, *, c: 'Any' = None) -> "
            "'dict[str, Any]' cannot be called with these inputs: missing a required argument: 'a'",
        ),
        ((3,), {}, "FW010", "expected at least one input tensor, got none"),
        ((np.zeros(3),), {}, "FW015", "expected a tensor for the input 'a', got a numpy array"),
        ((torch.zeros(2, device="meta"),), {}, "FW012", "the input 'a' is on the meta device"),
        ("b: float32[n]", {}, "FW002", "forward also needs a, which the spec does not declare"),
        (["a: float32[n]", "z: float32[n]"], {}, "FW002", "forward has no input 'z'; it takes: a, b, c"),
        (["a: float32[n]", "a: float32[n]"], {}, "FW011", "the input 'a' is declared twice"),
        (
            ["a.k: float32[n]", "a: float32[n]"],
            {},
            "FW011",
            "'a' and 'a.k' are both declared; 'a' is either a tensor or a container",
        ),
        (
            ["a: float32[n]", "a.k: float32[n]"],
            {},
            "FW011",
            "'a' and 'a.k' are both declared; 'a' is either a tensor or a container",
        ),
        ("a: int64[n] = lengths(time)", {}, "FW005", "a = lengths(time): 'time' is not a dim; the dims are: n"),
        (
            "a: float32[n]",
            {"dims": {"a": "n"}},
            "FW015",
            "dims is given together with spec lines, which already declare the dims",
        ),
        ("a: float32[n]", {"example": {"m": 3}}, "FW005", "example names 'm'; the dims are: n"),
        ("a: float32[n]", {"example": {"n": 99}}, "FW003", "the example's n=99 is outside n 1..64"),
        (
            "a: float32[n]",
            {"input_names": ["x", "y"]},
            "FW011",
            "input_names: expected a distinct name for each of ['a'], got ['x', 'y']",
        ),
        ("a: float32[n-3]", {}, "FW004", "a axis 0: n-3 gives no valid size at n=1"),
        ("a: float32[n//m]", {"bounds": {"m": (0, 4)}}, "FW004", "a axis 0: n//m gives no valid size at n=1, m=0"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: Any, more: dict[str, Any], code: str, seen: str) -> None:
    assert complaint(Echo(), inputs, **more) == (code, seen)


def test_a_size_that_falls_below_zero_only_outside_the_bounds_is_fine() -> None:
    assert build_subject(Echo(), "a: float32[n-3]", bounds={"n": (3, 9)}).domain["n"].low == 3


def test_example_tensors_that_disagree_are_refused() -> None:
    inputs = (torch.zeros(2), torch.zeros(3))
    assert complaint(Echo(), inputs, dims={"a": "n", "b": "n"}) == ("FW013", "n is 2 by a axis 0 and 3 by b axis 0")


def test_a_function_needs_bounds_for_each_dim() -> None:
    def inputs(seed: int, n: int, m: int = 3) -> tuple[Tensor, ...]:
        return (torch.zeros(n, m),)

    lacking = "the inputs function needs bounds for each dim it takes; {} has none"
    assert complaint(Echo(), inputs, dims={"a": "n 3"}) == ("FW015", lacking.format("n"))
    bounds = {"n": (1, 4)}
    assert complaint(Echo(), inputs, dims={"a": "n m"}, bounds=bounds) == ("FW015", lacking.format("m"))
    assert build_subject(Echo(), inputs, dims={"a": "n 3"}, bounds=bounds).domain.names == ("n",)


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (lambda n: torch.zeros(2), "inputs(7, n=5) returned a as float32[2]; float32[5] was expected"),
        (lambda n: torch.zeros(n, n), "inputs(7, n=5) returned a as float32[5, 5]; float32[5] was expected"),
        (
            lambda n: torch.zeros(n, dtype=torch.float64),
            "inputs(7, n=5) returned a as float64[5]; float32[5] was expected",
        ),
        (lambda n: [torch.zeros(n), torch.zeros(n)], "inputs(7, n=5) returned 2 tensors; it returned 1 before"),
    ],
    ids=["size", "rank", "dtype", "count"],
)
def test_a_function_that_answers_otherwise_than_asked_is_refused(answer: Any, seen: str) -> None:
    def inputs(seed: int, n: int) -> tuple[Any, ...]:
        return (torch.zeros(n) if seed != 7 else answer(n),)

    subject = build_subject(Echo(), inputs, dims={"a": "n"}, bounds={"n": (1, 8)})
    with pytest.raises(UserError) as caught:
        subject.make({"n": 5}, 7, "normal")
    assert (caught.value.finding.code, caught.value.finding.seen) == ("FW003", seen)


def test_a_function_that_raises_is_shown_with_its_own_line() -> None:
    def inputs(seed: int, n: int) -> tuple[Tensor, ...]:
        return (torch.zeros(n - 10),)

    with pytest.raises(UserError) as caught:
        build_subject(Echo(), inputs, dims={"a": "n"}, bounds={"n": (1, 8)})
    finding = caught.value.finding
    assert finding.code == "FW015"
    assert finding.seen.startswith("inputs(0, n=2) raised RuntimeError: ")
    assert finding.where is not None
    assert (finding.where.function, finding.where.source) == ("inputs", "return (torch.zeros(n - 10),)")


@pytest.mark.parametrize("kind", ["parameter", "buffer"])
def test_a_model_on_the_meta_device_is_refused(kind: str) -> None:
    class Net(Echo):
        def __init__(self) -> None:
            super().__init__()
            if kind == "parameter":
                self.weight = nn.Parameter(torch.zeros(3, device="meta"))
            else:
                self.register_buffer("weight", torch.zeros(3, device="meta"))

    assert complaint(Net(), "a: float32[n]") == ("FW012", "weight of the model is on the meta device")
