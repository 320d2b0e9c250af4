"""An input that matters only next to a rare number in another input is not called useless."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import fairway
from fairway.convert.ladder.preflight import run_preflight
from fairway.judge.survey import study_values
from fairway.model.subject import Subject, build_subject

IMAGE_TOKEN = 777
LINES = ["ids: int64[batch, seq]", "features: float32[batch, seq, 4]"]
BOUNDS = {"batch": (1, 3), "seq": (1, 9)}


class Places(nn.Module):
    """Puts features where an id is that of an image, as vision-language models do."""

    def __init__(self, token: int = IMAGE_TOKEN) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.token = nn.Embedding(1000, 4), token

    def forward(self, ids: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        mask = (ids == self.token)[..., None].expand_as(features)
        return self.table(ids).masked_scatter(mask, features)


class PlacesExactly(Places):
    """Accepts ids of images only if there are as many as features, as transformers does."""

    def forward(self, ids: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        count = int((ids == self.token).sum())
        if count not in (0, features.shape[0] * features.shape[1] - 1):
            raise ValueError("image features and image tokens do not match")
        return super().forward(ids, features)


class PlacesListed(Places):
    """Holds its special ids in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("special", torch.tensor([IMAGE_TOKEN, IMAGE_TOKEN + 1]))

    def forward(self, ids: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.isin(ids, self.special)[..., None], features, self.table(ids))


class Deaf(Places):
    def forward(self, ids: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        return torch.where((ids == self.token)[..., None], 0.0, self.table(ids))


def find_codes(model: nn.Module, lines: list[str] | None = None) -> list[str]:
    subject = build_subject(model.eval(), lines or LINES, bounds=BOUNDS)
    study = study_values(subject, lambda study: None)
    return [finding.code for finding in run_preflight(with_study(subject, study), True).findings]


def with_study(subject: Subject, study: object) -> Subject:
    return replace(subject, study=study)


@pytest.mark.parametrize("model", [Places(), PlacesListed()])
def test_an_input_used_at_a_rare_id_is_not_reported(model: nn.Module) -> None:
    assert find_codes(model) == []


def test_an_input_is_not_reported_if_pytorch_refuses_the_rare_id() -> None:
    assert find_codes(PlacesExactly()) == []


def test_an_id_outside_the_declared_domain_gives_no_effect() -> None:
    assert find_codes(Places(), ["ids: int64[batch, seq] < 500", LINES[1]]) == ["FW204"]


def test_an_input_that_is_never_used_is_reported_with_its_runs() -> None:
    subject = build_subject(Deaf(), LINES, bounds=BOUNDS)
    subject = with_study(subject, study_values(subject, lambda study: None))
    (finding,) = run_preflight(subject, True).findings
    assert finding.code == "FW204"
    assert finding.data == {"input": "features"}
    assert finding.seen == "'features', in 18 runs"


@pytest.mark.parametrize(("token", "verdict"), [(IMAGE_TOKEN, "verified"), (778, "wrong")])
def test_a_file_that_compares_with_another_id_is_wrong(token: int, verdict: str, tmp_path) -> None:
    """The number is an attribute of the module, so it is in no line of code."""
    path = tmp_path / "p.onnx"
    dims = {name: torch.export.Dim(name, min=2, max=BOUNDS[name][1]) for name in ("seq",)}
    example = (torch.zeros(2, 5, dtype=torch.int64), torch.zeros(2, 5, 4))
    shapes = ({0: torch.export.Dim("batch", min=1, max=3), 1: dims["seq"]},) * 2
    torch.onnx.export(Places(token).eval(), example, path, dynamic_shapes=shapes, dynamo=True, verbose=False)
    result = fairway.verify(path, Places().eval(), LINES, bounds={"batch": (2, 3), "seq": (2, 9)})
    assert result.verdict == verdict
