"""Complex numbers picked from, as rotary embeddings do it."""

from __future__ import annotations

import pytest
import torch
from harness import EXPORT, STRICT, TRACE, applied, assert_parity, export, make_case, run
from torch import nn

from fairway.convert.ladder.route import Route
from fairway.convert.remedies.complex_picked import REMEDY
from fairway.convert.remedies.contract import Refusal

DIMS = [{0: "batch", 1: "seq"}]


class Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", 0.5 ** torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turns = torch.arange(x.shape[1])[None, :, None] * self.frequencies
        turned = torch.polar(torch.ones_like(turns), turns)
        pairs = torch.view_as_complex(x.reshape(*x.shape[:2], 2, 4, 2).contiguous())
        return torch.view_as_real(pairs * turned[:, :, None, :]).flatten(2)


class Others(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.complex(x, x.flip(-1))
        places = torch.tensor([1, 0, 1])
        found = (
            z.unsqueeze(-1),
            z[:, 0],
            z.select(-1, 2),
            z[:, :1].expand(-1, 3, -1),
            z[:, :1].repeat(1, 2, 2),
            z[:, :, places],
            z.index_select(-1, places),
        )
        return tuple(torch.view_as_real(one * 1) for one in found)


def make(batch: int, seq: int) -> tuple[torch.Tensor]:
    return (torch.randn(batch, seq, 16, generator=torch.Generator().manual_seed(seq)),)


def test_torch_has_no_translation_without_it() -> None:
    with pytest.raises(Exception, match="No ONNX function found"):
        export(make_case(Rotary(), make(2, 5)), DIMS)


@pytest.mark.parametrize("route", [EXPORT, STRICT], ids=lambda r: r.name)
@pytest.mark.parametrize("kind", [Rotary, Others])
def test_parity_holds_with_it(kind: type[nn.Module], route: Route) -> None:
    case = make_case(kind(), make(2, 5), route)
    exported = export(case, DIMS, REMEDY)
    assert case.used == {REMEDY.name}
    assert_parity(exported, kind(), make(2, 5), make(1, 3), make(3, 9), atol=1e-5)


class Spectra(nn.Module):
    """Transforms of lengths that are not powers of two."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.fft.rfft(x)
        short = torch.stft(x, 100, 50, window=torch.hann_window(100, dtype=x.dtype), center=False, return_complex=True)
        return torch.view_as_real(z), torch.fft.irfft(z, n=x.shape[1]), torch.view_as_real(short)


def test_transforms_are_as_exact_as_in_pytorch() -> None:
    def draw(length: int) -> tuple[torch.Tensor]:
        return (torch.randn(2, length, generator=torch.Generator().manual_seed(length)),)

    exported = export(make_case(Spectra(), draw(300)), [{1: "time"}], REMEDY)
    for length in (300, 330):
        (x,) = draw(length)
        truths = Spectra()(x.double())
        for ours, own, truth in zip(run(exported, (x,)), Spectra()(x), truths, strict=True):
            assert abs(ours - truth.numpy()).max() <= 2 * (own - truth).abs().max()


def test_it_is_not_told_of_where_nothing_is_complex() -> None:
    case = make_case(nn.Flatten(2), make(2, 5))
    export(case, DIMS, REMEDY)
    assert (case.used, case.listed_if_used) == (set(), {REMEDY.name})


def test_it_is_refused_under_the_tracer() -> None:
    assert isinstance(REMEDY.detect(make_case(Rotary(), make(2, 5), TRACE)), Refusal)


def test_applying_it_twice_changes_nothing_more_and_leaves_nothing_behind() -> None:
    case = make_case(Rotary(), make(2, 5))
    with applied(case, REMEDY), applied(case, REMEDY):
        program = torch.export.export(Rotary(), make(2, 5))
        first, second = case.repairs
        program = first(program)
        graph = str(program.graph)
        assert "unsqueeze" in graph
        assert str(second(program).graph) == graph
    assert case.repairs == []
