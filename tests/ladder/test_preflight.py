"""A glance at a model tells of its outputs what a whole look tells, and reads no weight."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensor

import fairway
from fairway.convert.export import make_settings
from fairway.convert.ladder.first_look import look_at_model
from fairway.convert.ladder.preflight import run_fake_preflight, run_preflight
from fairway.model.subject import Subject, build_subject
from fairway.workers.attempt import Limits


class Kinds(list[type]):
    """A list that is not taken for state of the model."""


class Notes(torch.nn.Module):
    """Remembers what kind of tensor each run was given."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))
        self.given = Kinds()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.given.append(type(x))
        return {"scaled": x * self.scale, "where": x.argmax(-1), "all": x.sum((0, 1))}


class Decides(Notes):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return super().forward(x if x.sum() > 0 else -x)


def subject_of(model: torch.nn.Module) -> Subject:
    return build_subject(model, ["x: float32[batch, time, 4]"], bounds={"batch": (1, 3), "time": (1, 9)})


def test_a_glance_sees_the_outputs_that_a_look_sees() -> None:
    seen, looked = run_fake_preflight(subject_of(Notes()), True), run_preflight(subject_of(Notes()), True)
    assert looked.output_axes == ((True, True, False), (True, True), (False,))
    assert seen == replace(looked, output_axes=())  # which only those ask for who look
    assert seen.output_dtypes == ("float32", "int64", "float32")


@pytest.mark.parametrize(("model", "fake"), [(Notes(), True), (Decides(), False)])
def test_fake_tensors_are_used_unless_the_model_depends_on_values(model: Notes, fake: bool) -> None:
    seen = run_fake_preflight(subject_of(model), True)
    assert seen.output_names == ("scaled", "where", "all")
    assert {issubclass(given, FakeTensor) for given in model.given} == {fake}


def test_both_preflights_are_hopeless_for_a_model_that_cannot_run() -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ torch.ones(5, 5)

    assert run_fake_preflight(subject_of(Broken()), True) == run_preflight(subject_of(Broken()), True)
    assert run_fake_preflight(subject_of(Broken()), True).hopeless


def test_what_a_model_settles_on_its_first_run_is_not_chance() -> None:
    class Settles(Notes):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            first = not self.given
            return super().forward(x + 1 if first else x)

    assert run_preflight(subject_of(Settles().eval()), True).findings == ()


def test_what_differs_on_every_run_is_chance_and_its_line_is_named() -> None:
    class Draws(Notes):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return super().forward(x + torch.rand(4))

    (finding,) = run_preflight(subject_of(Draws().eval()), True).findings
    assert finding.code == "FW203"
    assert finding.where is not None
    assert finding.where.source == "return super().forward(x + torch.rand(4))"


def test_an_input_that_matters_at_neither_point_is_named() -> None:
    class Deaf(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x * 2

    spec = ["x: float32[batch, 4]", "y: float32[batch, 4]"]
    found = run_preflight(build_subject(Deaf(), spec, bounds={"batch": (1, 3)}), True).findings
    assert [(f.code, f.data) for f in found] == [("FW204", {"input": "y"})]


@pytest.mark.parametrize(
    ("shape", "runs"),
    [
        ("[2, 3, 4]", 3),
        ("[batch, time, 4]", 6),
    ],  # outputs, chance, three points at most, an effect
)
def test_a_model_is_run_no_oftener_than_it_tells_something(shape: str, runs: int) -> None:
    model = Notes().eval()
    bounds = {"batch": (1, 3), "time": (1, 9)} if "batch" in shape else None
    run_preflight(build_subject(model, [f"x: float32{shape}"], bounds=bounds), True)
    assert len(model.given) == runs


class Steps(Notes):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        for step in range(x.shape[1]):
            x = x + step
        return super().forward(x)


@pytest.mark.parametrize(("flops", "is_fake"), [(1e9, True), (1e3, False)])
def test_steps_of_an_expensive_model_are_counted_on_fake_tensors(flops: float, is_fake: bool) -> None:
    model = Steps().eval()
    subject = subject_of(model)
    subject = replace(subject, study=replace(subject.study, flops_per_volume=flops))
    look = look_at_model(subject, make_settings("quick", (), None, True, Limits()), ())
    assert [suspect.where.source for suspect in look.suspects] == ["for step in range(x.shape[1]):"]
    assert any(issubclass(given, FakeTensor) for given in model.given) is is_fake


class MaskedEncoder(nn.Module):
    def __init__(self, is_filled: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder, self.is_filled = nn.TransformerEncoder(layer, 1), is_filled

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        result = self.encoder(x, src_key_padding_mask=mask)
        return result.masked_fill(mask[:, : result.shape[1], None], 0.0) if self.is_filled else result


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(("is_filled", "codes"), [(False, ["FW425"]), (True, [])])
def test_a_fast_path_that_writes_zeros_into_padded_rows_is_reported(is_filled, codes, tmp_path):
    lines = ["x: float32[batch, time, 8]", "mask: bool[batch, time] = padding"]
    bounds = {"batch": (2, 4), "time": (4, 9)}
    model = MaskedEncoder(is_filled).eval()
    result = fairway.export(model, lines, tmp_path / "a.onnx", bounds=bounds, level="quick")
    assert result.verdict == "verified", result
    assert [finding.code for finding in result.findings] == codes


class Rows(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        rows = [row.mean() for row in x]
        return rows


def test_a_number_of_outputs_that_varies_is_reported_with_its_line() -> None:
    preflight = run_preflight(subject_of(Rows()), True)
    (finding,) = preflight.findings
    assert preflight.hopeless
    assert (finding.code, finding.seen) == ("FW221", "2 at batch=2, time=3 and 1 at batch=1, time=1")
    assert finding.where is not None
    assert finding.where.source == "return rows"
