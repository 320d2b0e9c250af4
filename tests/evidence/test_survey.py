"""The survey learns legal values, branches, and inputs that reach their rare side."""

from __future__ import annotations

import ast
import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fairway.judge import survey
from fairway.judge.conditions import find_outcomes
from fairway.judge.judge import make_sample_inputs
from fairway.judge.survey import study_values, survey_branches
from fairway.model.ranges import describe_range
from fairway.model.study import Study
from fairway.model.subject import Subject, build_subject


def study(model: nn.Module, inputs: Any, **more: Any) -> tuple[Subject, Study]:
    torch.manual_seed(0)
    subject = build_subject(model.eval(), inputs, **more)
    learned = replace(subject, study=study_values(subject, lambda study: None))
    return subject, survey_branches(learned)


class Gate(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        energy = (x**2).mean()
        if 1e-9 < energy < 1e-8:
            return torch.zeros_like(x)
        return x + 1


class Helper(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        marked = self.is_marked(x)
        return x * 2 if marked else x

    def is_marked(self, x: torch.Tensor) -> bool:
        return bool((x == 42.5).all())


class Never(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() * 0 > 1:
            return x * 2
        return x


@pytest.mark.parametrize("model", [Gate(), Helper()])
def test_a_rare_branch_on_values_is_reached(model: nn.Module) -> None:
    subject, found = study(model, ["x: float32[n, 4]"])
    assert not found.unreached
    assert found.aimed
    taken = [model(*make_sample_inputs(subject, one, ())) for one in found.aimed]
    given = [make_sample_inputs(subject, one, ())[0] for one in found.aimed]
    rare = [x * 2 if isinstance(model, Helper) else torch.zeros_like(x) for x in given]
    assert any(torch.equal(a, b) for a, b in zip(taken, rare, strict=True))


def test_a_branch_that_nothing_reaches_is_named_with_its_line() -> None:
    _, found = study(Never(), ["x: float32[n, 4]"])
    (one,) = found.unreached
    assert (one.missing, one.about, one.condition) == (True, "values", "x.sum() * 0 > 1")
    assert one.where.source == "if x.sum() * 0 > 1:"


class Sized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.native = 49

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        if columns == self.native:
            return x * 2
        if columns % 128 == 0:
            return x * 3
        if rows * columns == 7919:
            return x * 4
        if columns > 10_000:
            return x * 5
        return x


def test_branches_on_sizes_are_solved() -> None:
    _, found = study(Sized(), ["x: float32[rows, columns]"], bounds={"rows": (1, 4), "columns": (1, 8000)})
    columns = {one.sizes["columns"] for one in found.aimed}
    assert {49, 128} <= columns
    assert {"rows": 1, "columns": 7919} in [one.sizes for one in found.aimed]
    assert not found.unreached  # columns > 10_000 cannot be true in this domain


def test_a_size_branch_too_dear_to_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MAX_ELEMENTS_RUN", 1000)
    monkeypatch.setattr(survey, "MAX_JUDGED_FLOPS", -1.0)
    _, found = study(Sized(), ["x: float32[rows, columns]"], bounds={"rows": (1, 4), "columns": (1, 8000)})
    assert "rows * columns == 7919" in [one.condition for one in found.unreached]


class Settings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mode, self.scale = "fast", 2.0

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        if self.mode == "slow" or self.scale > 3 or y is not None or x.dim() == 5:
            return x
        for name in ("a", "b"):
            if name == "c":
                return x
        assert x.shape[1] > 0
        if x.shape[0] > 4096:
            raise ValueError("too long")
        return x * self.scale


def test_branches_on_settings_and_refusals_are_left_out() -> None:
    _, found = study(Settings(), ["x: float32[n, 4]"])
    assert (found.aimed, found.unreached) == ((), ())


class Optional(nn.Module):
    """Asks whether arguments were given; the survey itself looks at them when it follows the question."""

    def forward(self, x: torch.Tensor, extra: torch.Tensor | None = None) -> torch.Tensor:
        has_extra = x is not None and extra is not None
        if has_extra:
            return x + 1
        return x * 2


def test_a_question_whether_an_argument_is_given_reads_no_value() -> None:
    assert not study(Optional(), ["x: float32[batch, time]"])[1].unreached


class Pick(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return self.layers[int(n)](x)


class Look(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids)


class Plus(nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x + n


class Validated(nn.Module):
    """Checks values as libraries do, with `not` and `and`, where the other answer of a part only raises."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positive = (x >= 0).all()
        small = (x <= 1).all()
        if not positive:
            raise ValueError("negative")
        if not positive or not small:
            raise ValueError("out of range")
        assert positive and small  # noqa: PT018
        return x + 1


def test_parts_of_checks_whose_other_answer_raises_are_left_out() -> None:
    _, found = study(Validated(), ["x: float32[n, 4] in 0..1"])
    assert not found.unreached


@pytest.mark.parametrize(
    ("source", "part", "answer", "outcomes"),
    [
        ("not a and not b", "b", False, {True}),
        ("not a and not b", "b", True, {False}),
        ("not a and not b", "a", False, {True, False}),
        ("not a and not b", "a", True, {False}),
        ("a or b", "a", True, {True}),
        ("not (a or b)", "b", False, {True}),
        ("a", "a", True, {True}),
        ("other", "a", True, {True, False}),
    ],
)
def test_the_outcomes_of_a_condition_follow_from_a_part(
    source: str, part: str, answer: bool, outcomes: set[bool]
) -> None:
    test = ast.parse(source, mode="eval").body
    names = [node for node in ast.walk(test) if isinstance(node, ast.Name) and node.id == part]
    assert find_outcomes(test, names[0] if names else ast.Name(part), answer) == outcomes


def ranges(model: nn.Module, inputs: Any, **more: Any) -> dict[str, str]:
    subject, found = study(model, inputs, **more)
    return {s.name: describe_range(s, r) for s, r in zip(subject.spec, found.ranges, strict=True)}


def test_whole_numbers_end_with_the_table_that_they_index() -> None:
    inputs = {"ids": torch.ones(2, 5, dtype=torch.int64)}
    assert ranges(Look(), inputs) == {"ids": "0..999, from the table of 1000 rows that it indexes"}
    assert ranges(Look(), ["ids: int64[n]"]) == {"ids": "0..999, from the table of 1000 rows that it indexes"}
    assert ranges(Look(), ["ids: int64[n] < 30"]) == {"ids": "< 30, declared"}


def test_whole_numbers_end_where_pytorch_refuses_them() -> None:
    inputs = {"x": torch.randn(2, 4), "n": torch.tensor(1)}
    assert ranges(Pick(), inputs)["n"].startswith("0..2, PyTorch refuses others: IndexError")


def test_lengths_end_with_the_dim_that_they_are_about() -> None:
    class Mean(nn.Module):
        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            longest = int(lengths.max())
            valid = torch.arange(longest)[None] < lengths[:, None]
            return (x[:, :longest] * valid[..., None]).sum(1) / lengths[:, None]

    inputs = {"x": torch.randn(2, 6, 3), "lengths": torch.full((2,), 6)}
    found = ranges(Mean(), inputs, dims={"x": "batch time 3", "lengths": "batch"})
    assert found["lengths"] == "1..time, PyTorch refuses more than time"


def test_whole_numbers_that_pytorch_takes_go_beyond_32_bits_and_below_zero() -> None:
    inputs = {"x": torch.randn(2, 4), "n": torch.ones(2, 4, dtype=torch.int64)}
    subject, found = study(Plus(), inputs)
    subject = replace(subject, study=found)
    together = torch.cat([subject.make({}, seed, "large")[1].reshape(-1) for seed in range(40)])
    assert together.min() < -(2**20)
    assert together.max() > 2**31 - 1


@pytest.mark.parametrize("mask", [torch.ones(2, 6), torch.ones(2, 6, dtype=torch.bool), torch.zeros(2, 6)])
def test_a_constant_mask_is_varied_with_padding_and_holes(mask: torch.Tensor) -> None:
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return x * mask

    subject = build_subject(Masked(), {"x": torch.zeros(2, 6), "mask": mask})
    drawn = torch.stack([subject.make({}, seed, "normal")[1].double() for seed in range(2, 40)])
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    usual = float(mask.reshape(-1)[0])
    assert (drawn == usual).any(-1).all()  # no row is the other value throughout
    changes = drawn.diff(dim=-1).abs().sum(-1)
    assert changes.max() >= 2  # holes
    floats = torch.stack([subject.make({}, seed, "normal")[0] for seed in range(2, 5)])
    assert floats.std() > 0.5  # zeros as an example say nothing about legal values


def test_values_that_pytorch_refuses_are_not_drawn() -> None:
    class Unit(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if (x < 0).any() or (x > 1).any():
                raise ValueError("x must be within 0..1")
            return x * 2

    inputs = {"x": torch.rand(2, 6, generator=torch.Generator().manual_seed(1))}
    text = ranges(Unit(), inputs)["x"]
    assert text == "within the example's values, PyTorch refuses others: ValueError: x must be within 0..1"


class ComplexGate(nn.Module):
    def forward(self, z: torch.Tensor) -> torch.Tensor:
        level = z.abs()
        if level.max() < 1e-2:
            return level
        return level * torch.cos(z.angle())


def test_complex_numbers_are_drawn_small_too() -> None:
    subject, found = study(ComplexGate(), ["z: complex64[batch, 6]"], bounds={"batch": (1, 4)})
    assert not found.unreached
    learned = replace(subject, study=found)
    small = [make_sample_inputs(learned, one, ())[0].abs().max() for one in found.aimed]
    assert any(0 < level < 1e-2 for level in small)


class NotAny(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.any():
            return torch.full_like(x, -1.0)
        return x / x.abs().max()


def test_a_negated_question_about_values_is_one() -> None:
    def draw(seed: int, time: int) -> Any:
        return (torch.randn(1, time, generator=torch.Generator().manual_seed(seed)),), {}

    _, found = study(NotAny(), draw, dims={"x": "1 time"}, bounds={"time": (4, 60)})
    assert [(one.condition, one.missing) for one in found.unreached] == [("x.any()", False)]


class ComfortNoise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.abs().max() < 1e-5:
            return torch.randn_like(x)
        return x * 2


def test_a_model_that_is_random_at_some_inputs_only_is_found_out() -> None:
    _, found = study(ComfortNoise(), ["x: float32[batch, 6]"], bounds={"batch": (1, 4)})
    assert found.random is not None
    _, where = found.random
    assert where is not None
    assert where.source == "return torch.randn_like(x)"


class DrawsInVain(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skipped = bool(torch.rand([]) < 0.5) and self.training
        return x if skipped else x * 2


def test_random_numbers_without_effect_are_no_randomness() -> None:
    _, found = study(DrawsInVain(), ["x: float32[batch, 6]"], bounds={"batch": (1, 4)})
    assert found.random is None


def test_samples_lie_close_to_either_side_of_a_threshold() -> None:
    subject, found = study(Gate(), ["x: float32[batch, 6]"], bounds={"batch": (1, 4)})
    learned = replace(subject, study=found)
    energies = [float((make_sample_inputs(learned, one, ())[0] ** 2).mean()) for one in found.aimed]
    assert any(0.9e-8 < energy < 1e-8 for energy in energies)
    assert any(1e-8 < energy < 1.1e-8 for energy in energies)


class CleansNumbers(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nan_to_num(x) + y


def test_nan_is_drawn_where_the_model_looks_for_it_and_nowhere_else() -> None:
    _, found = study(CleansNumbers(), ["x: float32[batch, 6]", "y: float32[batch, 6]"], bounds={"batch": (1, 4)})
    assert [legal.nonfinite for legal in found.ranges] == [True, False]


class Bytes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


def test_all_bytes_are_drawn() -> None:
    _, found = study(Bytes(), ["x: uint8[batch, 6]"], bounds={"batch": (1, 4)})
    assert found.ranges[0].values.high == 255


class CollectorCallback:
    """A callback of the garbage collector with a branch on a number that varies, as hypothesis has one."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        self.calls += 1
        if self.calls > 10**9:
            self.calls = 0


def test_callbacks_of_the_garbage_collector_are_not_branches_of_the_model() -> None:
    threshold, callback = gc.get_threshold(), CollectorCallback()
    gc.callbacks.append(callback)
    gc.set_threshold(1)
    try:
        _, learned = study(Always(), ["x: float32[n, 4]"])
    finally:
        gc.callbacks.remove(callback)
        gc.set_threshold(*threshold)
    assert callback.calls
    assert not learned.unreached


class Always(nn.Module):
    """A model without branches that makes lists, so that garbage collections start."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + len([[] for _ in range(50)])
