"""Before the first rung: what a large model costs to look at, and what is found all the same."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensor
from transformers import MambaConfig, MambaModel

from fairway.convert.ladder.first_look import look_at_model
from fairway.convert.types import Settings
from fairway.judge import answers
from fairway.model.subject import Subject, build_subject


class Stepping(torch.nn.Module):
    """A library's loop over time, and what kind of tensor each run was given."""

    def __init__(self) -> None:
        super().__init__()
        config = MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, state_size=4, use_mambapy=False)
        self.inner = MambaModel(config).eval()
        self.given: list[type] = []

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.given.append(type(ids))
        return self.inner(ids, use_cache=False).last_hidden_state


class Deciding(Stepping):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return super().forward(ids if ids.sum() > 0 else ids + 1)


def subject_of(model: torch.nn.Module) -> Subject:
    return build_subject(model.eval(), ["ids: int64[batch, time] < 50"], bounds={"batch": (1, 3), "time": (1, 9)})


@pytest.mark.parametrize(("model", "fake"), [(Stepping(), {True}), (Deciding(), {False})])
def test_steps_of_a_large_model_are_counted_without_its_weights(
    monkeypatch: pytest.MonkeyPatch, model: Stepping, fake: set[bool]
) -> None:
    monkeypatch.setattr(answers, "LARGE_MODEL_BYTES", 0)
    look = look_at_model(subject_of(model), Settings("none"), ())
    assert not look.preflight.hopeless
    assert [s.where.function for s in look.suspects if s.kind == "loop"] == ["mamba_selective_scan"]
    assert {issubclass(given, FakeTensor) for given in model.given} == fake
