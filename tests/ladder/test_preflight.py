"""A glance at a model tells of its outputs what a whole look tells, and reads no weight."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensor

from fairway.ladder.preflight import glance, look
from fairway.subject.subject import Subject, build_subject


class Notes(torch.nn.Module):
    """Remembers what kind of tensor each run was given."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))
        self.given: list[type] = []

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.given.append(type(x))
        return {"scaled": x * self.scale, "where": x.argmax(-1), "all": x.sum((0, 1))}


class Decides(Notes):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return super().forward(x if x.sum() > 0 else -x)


def subject_of(model: torch.nn.Module) -> Subject:
    return build_subject(model, ["x: float32[batch, time, 4]"], bounds={"batch": (1, 3), "time": (1, 9)})


def test_a_glance_sees_the_outputs_that_a_look_sees() -> None:
    seen, looked = glance(subject_of(Notes()), True), look(subject_of(Notes()), True)
    assert seen == looked
    assert seen.output_dtypes == ("float32", "int64", "float32")
    assert seen.output_axes == ((True, True, False), (True, True), (False,))


@pytest.mark.parametrize(("model", "fake"), [(Notes(), True), (Decides(), False)])
def test_a_glance_runs_on_fake_tensors_unless_the_model_has_to_see_values(model: Notes, fake: bool) -> None:
    seen = glance(subject_of(model), True)
    assert seen.output_names == ("scaled", "where", "all")
    assert {issubclass(given, FakeTensor) for given in model.given} == {fake}


def test_a_glance_at_a_model_that_cannot_run_is_as_hopeless_as_a_look() -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ torch.ones(5, 5)

    assert glance(subject_of(Broken()), True) == look(subject_of(Broken()), True)
    assert glance(subject_of(Broken()), True).hopeless
