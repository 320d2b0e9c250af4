"""A net chosen per receiver: frozen to the example's ids without the remedy, right for every id and size with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from fairway.convert.remedies.contract import Match, Refusal
from fairway.convert.remedies.module_chosen_by_value import REMEDY

sys.path.insert(0, str(Path(__file__).parents[1]))  # the harness of tests/rewrite serves here too

from rewrite.harness import case_of, export, largest_difference, outputs

ROUTES = ("export", "trace")
DIMS = [(0, 1), (0, 1)]


class Calibrated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calibration = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU()) for _ in range(3)])

    def forward(self, emb, receiver_ids):
        batch, receivers, _ = emb.shape
        outs = []
        for b in range(batch):
            for n in range(receivers):
                rid = receiver_ids[b, n].item()
                outs.append(self.calibration[rid](emb[b, n]))
        return torch.stack(outs).view(batch, receivers, -1)


def inputs(batch: int = 2, receivers: int = 3, seed: int = 1) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 3, (batch, receivers), generator=generator)
    return torch.randn(batch, receivers, 4, generator=generator), ids


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return Calibrated().eval()


def test_a_trace_is_wrong_for_other_ids_without_it(model: nn.Module) -> None:
    file = export(model, inputs(), DIMS, "trace")
    emb, ids = inputs()
    import onnxruntime

    session = onnxruntime.InferenceSession(file)
    feed = {i.name: t.numpy() for i, t in zip(session.get_inputs(), (emb, (ids + 1) % 3), strict=False)}
    (got,) = session.run(None, feed)
    (want,) = outputs(model, (emb, (ids + 1) % 3))
    assert (torch.from_numpy(got) - want).abs().max() > 0.1


def test_torch_export_refuses_without_it(model: nn.Module) -> None:
    with pytest.raises(Exception, match=r"data-dependent|specialized"):
        export(model, inputs(), DIMS, "export")


@pytest.mark.parametrize("route", ROUTES)
def test_parity_holds_with_it_for_other_ids_and_sizes(model: nn.Module, route: str) -> None:
    case = case_of(model, inputs(), route)
    match = REMEDY.detect(case)
    assert isinstance(match, Match)
    with REMEDY.apply(case, match):
        file = export(model, inputs(), DIMS, route)
    emb, ids = inputs()
    points = [(emb, (ids + 1) % 3), inputs(4, 5, 2), inputs(3, 7, 3)]
    assert largest_difference(model, file, points) < 1e-6


class ByLayerNumber(nn.Module):
    """The index comes from the configuration, not from a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.mods = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.which = 1

    def forward(self, emb, receiver_ids):
        return self.mods[self.which](emb) + receiver_ids.unsqueeze(-1)


class ByWord(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mods = nn.ModuleDict({"near": nn.Linear(4, 4), "far": nn.Linear(4, 4)})

    def forward(self, emb, receiver_ids):
        name = "near" if receiver_ids.sum().item() > 3 else "far"
        return self.mods[name](emb)


class UntilGood(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mods = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, emb, receiver_ids):
        out = emb
        if emb.dim() > 0:
            for n in range(receiver_ids.shape[1]):
                out = self.mods[receiver_ids[0, n].item()](out)
                if n > 2:
                    return out
        return out


def test_a_choice_by_configuration_is_refused() -> None:
    answer = REMEDY.detect(case_of(ByLayerNumber(), inputs(), "export"))
    assert answer == Refusal("no module in the model's own code is chosen by a number taken out of a tensor")


def test_a_choice_by_words_is_refused_with_the_line() -> None:
    answer = REMEDY.detect(case_of(ByWord(), inputs(), "export"))
    assert isinstance(answer, Refusal)
    assert answer.where[0].source == "return self.mods[name](emb)"
    assert answer.reason.endswith(
        "cannot be rewritten: the modules are chosen by names that are not numbers; keep them in a "
        "ModuleList and choose by number"
    )


def test_a_choice_is_rewritten_in_a_loop_that_is_refused() -> None:
    answer = REMEDY.detect(case_of(UntilGood(), inputs(), "export"))
    assert isinstance(answer, Match)
    (rewrite,) = answer.data
    assert [site.suspect.kind for site in rewrite.sites] == ["choice"]


@pytest.mark.parametrize("route", ROUTES)
def test_applying_it_twice_changes_nothing_more(model: nn.Module, route: str) -> None:
    case = case_of(model, inputs(), route)
    match = REMEDY.detect(case)
    assert isinstance(match, Match)
    with REMEDY.apply(case, match):
        once = Calibrated.__dict__["forward"]
        assert isinstance(REMEDY.detect(case), Refusal)
        with REMEDY.apply(case, match):
            assert Calibrated.__dict__["forward"] is once
    assert Calibrated.__dict__["forward"] is not once
