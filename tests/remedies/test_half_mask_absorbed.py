"""float16 attention with an additive mask, rows with nothing left included."""

import numpy as np
import pytest
import torch
from harness import EXPORT, export, make_case, operators, run

from fairway.convert.remedies.contract import Refusal
from fairway.convert.remedies.half_mask_absorbed import REMEDY, absorb

DIMS = [{0: "batch", 1: "time"}, {0: "batch", 1: "time"}]


class HalfAttention(torch.nn.Module):
    """Scores plus mask, softmax in float32, as transformers' eager attention does it."""

    def __init__(self, dtype=torch.float16):
        super().__init__()
        torch.manual_seed(0)
        self.qk = torch.nn.Linear(8, 16, dtype=dtype)

    def forward(self, x, keep):
        q, k = self.qk(x).chunk(2, -1)
        mask = torch.where(keep, 0.0, torch.finfo(x.dtype).min).to(x.dtype)[:, None, :]
        scores = q @ k.transpose(-1, -2) + mask
        return torch.softmax(scores, -1, dtype=torch.float32).to(x.dtype) @ x


def _inputs(batch, time, dtype=torch.float16):
    torch.manual_seed(batch)
    keep = torch.rand(batch, time) < 0.5
    keep[0] = False
    return torch.randn(batch, time, 8).to(dtype), keep


def _worst(model, graph, args):
    with torch.no_grad():
        expected = model(*args).float().numpy()
    return float(np.abs(run(graph, args)[0].astype(np.float32) - expected).max())


@pytest.fixture(scope="module")
def plain():
    return export(make_case(HalfAttention(), _inputs(2, 5), EXPORT), DIMS)


def test_without_it_a_row_with_nothing_left_is_wrong(plain):
    assert _worst(HalfAttention(), plain, _inputs(3, 7)) > 0.1


def test_with_it_parity_holds_at_other_sizes():
    graph = export(make_case(HalfAttention(), _inputs(2, 5), EXPORT), DIMS, REMEDY)
    for batch, time in ((1, 2), (3, 7), (2, 31)):
        assert _worst(HalfAttention(), graph, _inputs(batch, time)) < 5e-3


def test_a_float32_model_is_refused():
    case = make_case(HalfAttention(torch.float32), _inputs(2, 5, torch.float32), EXPORT)
    assert REMEDY.detect(case) == Refusal("the model has no float16 weights")


def test_applying_it_twice_changes_nothing_more():
    graph = export(make_case(HalfAttention(), _inputs(2, 5), EXPORT), DIMS, REMEDY)
    before = operators(graph)
    assert absorb(graph) is False
    assert operators(graph) == before
