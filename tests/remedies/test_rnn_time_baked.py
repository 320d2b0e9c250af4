"""Recurrent layers through torch.export, over time and batch."""

from __future__ import annotations

import pytest
import torch
from harness import EXPORT, STRICT, TRACE, applied, assert_parity, export, make_case, operators
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fairway.convert.ladder.route import Route
from fairway.convert.remedies.contract import Refusal
from fairway.convert.remedies.rnn_time_baked import REMEDY

BOTH = [{0: "batch", 1: "time"}]
CONFIGURATIONS = [
    # layers, bias, batch_first, bidirectional: every pair of settings occurs.
    (1, True, True, False),
    (2, False, False, True),
    (2, True, True, True),
    (1, False, True, True),
    (1, True, False, True),
    (2, False, False, False),
]
KINDS = {"GRU": nn.GRU, "LSTM": nn.LSTM, "RNN": nn.RNN}


class Every(nn.Module):
    """Configurations of one layer side by side, every other one with a given state, in one export."""

    def __init__(self, layers: list[nn.RNNBase]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        outputs: list[torch.Tensor] = []
        for index, layer in enumerate(self.layers):
            own = x if layer.batch_first else x.transpose(0, 1)
            output, state = layer(own, self._state(layer, x)) if index % 2 else layer(own)
            outputs += [output, *(state if isinstance(state, tuple) else (state,))]
        return outputs

    def _state(self, layer: nn.RNNBase, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        rows = layer.num_layers * (2 if layer.bidirectional else 1)
        sizes = [layer.proj_size or layer.hidden_size, layer.hidden_size]
        hidden, cell = (x[None, :, 0, :1].expand(rows, -1, size) for size in sizes)
        return (hidden, cell * 0.5) if isinstance(layer, nn.LSTM) else hidden


def every(kind: type[nn.RNNBase], **options: object) -> list[nn.RNNBase]:
    torch.manual_seed(0)
    return [
        kind(3, 4, layers, bias=bias, batch_first=first, bidirectional=both, **options)
        for layers, bias, first, both in CONFIGURATIONS
    ]


class Packed(nn.Module):
    """Rows of different lengths: padded back to the whole, to the longest, and not at all."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = KINDS[kind](3, 4, 2, bidirectional=True)
        self.second = KINDS[kind](8, 4, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, ...]:
        packed = pack_padded_sequence(x.transpose(0, 1), lengths, enforce_sorted=False)
        packed, _ = self.first(packed)
        whole, rows = pad_packed_sequence(packed, batch_first=True, padding_value=-1.0, total_length=x.shape[1])
        steps, last = self.second(pack_padded_sequence(whole, rows, batch_first=True, enforce_sorted=False))
        longest, _ = pad_packed_sequence(steps)
        return whole, longest, last[0] if isinstance(last, tuple) else last, rows


def rows(*lengths: int, time: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(len(lengths), time, 3), torch.tensor(lengths)


def points() -> list[tuple[torch.Tensor]]:
    return [(torch.randn(3, 7, 3),), (torch.randn(1, 1, 3),), (torch.randn(2, 11, 3),)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_time_length_is_fixed_without_it(kind: str) -> None:
    model = KINDS[kind](3, 4, batch_first=True).eval()
    with pytest.raises(Exception, match=r"specialized it to be a constant \(5\)"):
        export(make_case(model, (torch.randn(2, 5, 3),)), BOTH)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("GRU", {}), ("LSTM", {}), ("LSTM", {"proj_size": 2}), ("RNN", {}), ("RNN", {"nonlinearity": "relu"})],
)
def test_all_configurations_agree_at_other_lengths_and_batches(kind: str, options: dict[str, object]) -> None:
    model = Every(every(KINDS[kind], **options)).eval()
    exported = export(make_case(model, (torch.randn(2, 5, 3),)), BOTH, REMEDY)
    assert operators(exported).count(kind) >= len(model.layers)
    assert_parity(exported, model, *points(), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_agree_whatever_the_lengths(kind: str) -> None:
    model = Packed(kind).eval()
    exported = export(make_case(model, rows(3, 7, 5, time=7)), [*BOTH, {0: "batch"}], REMEDY)
    others = [rows(3, 7, 5, time=7), rows(1, time=1), rows(2, 4, time=9), rows(6, 6, 6, 1, time=6)]
    assert_parity(exported, model, *others, atol=1e-5)


def test_packing_is_torchs_own_again_afterwards() -> None:
    helpers, layer = torch.nn.utils.rnn, nn.GRU
    before = helpers._VF, layer.check_forward_args, nn.LSTM.check_forward_args
    model = Packed("GRU").eval()
    with applied(make_case(model, rows(3, 7, time=7)), REMEDY):
        assert helpers._VF is not before[0]
    assert (helpers._VF, layer.check_forward_args, nn.LSTM.check_forward_args) == before


@pytest.mark.parametrize("route", [EXPORT, STRICT, Route("export", "auto")], ids=lambda r: r.name)
def test_one_layer_becomes_one_node_by_every_torch_export_route(route: Route) -> None:
    model = nn.GRU(3, 4, batch_first=True).eval()
    exported = export(make_case(model, (torch.randn(2, 5, 3),), route), BOTH, REMEDY)
    assert operators(exported).count("GRU") == 1
    assert not any(isinstance(d, int) for o in exported.graph.outputs for d in (o.shape[1],))
    assert_parity(exported, model, *points(), atol=1e-5)


@pytest.mark.parametrize(
    ("model", "route", "reason"),
    [
        (nn.GRU(3, 4), TRACE, "the TorchScript exporter keeps the time length of recurrent layers"),
        (nn.GRUCell(3, 4), EXPORT, "the model has no nn.RNN, nn.GRU or nn.LSTM"),
        (
            nn.GRU(3, 4, 2, dropout=0.5).train(),
            EXPORT,
            "dropout between the layers is active, as the layer is in training mode",
        ),
        (
            nn.GRU(3, 4, dtype=torch.float64),
            EXPORT,
            "the runtime's recurrent kernels take float32 only, the layer has torch.float64",
        ),
    ],
    ids=["traced", "cell", "dropout", "float64"],
)
def test_near_misses_are_refused(model: nn.Module, route: Route, reason: str) -> None:
    answer = REMEDY.detect(make_case(model, (torch.randn(2, 5, 3),), route))
    assert isinstance(answer, Refusal)
    assert answer.reason == reason


def test_applying_it_twice_changes_nothing_more_and_leaves_nothing_behind() -> None:
    model, functions = nn.LSTM(3, 4, batch_first=True).eval(), torch.nn.modules.rnn._VF
    case = make_case(model, (torch.randn(2, 5, 3),))
    once = export(case, BOTH, REMEDY)
    twice = export(case, BOTH, REMEDY, REMEDY)
    assert operators(twice) == operators(once)
    assert_parity(twice, model, *points(), atol=1e-5)
    assert torch.nn.modules.rnn._VF is functions
    assert case.translations == {}
