"""The substitutes against the functions that they replace, in eager PyTorch."""

import contextlib

import pytest
import torch
from torch import nn

import fairway
from fairway.convert.translations.substitutes import SUBSTITUTES, SubstituteMode


def _complex(*shape):
    return torch.randn(*shape, dtype=torch.complex64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dim", [-1, 0])
def test_an_inverse_real_transform_gets_its_length(dim):
    x = _complex(6, 5)
    assert torch.allclose(SUBSTITUTES[torch.fft.irfft](x, dim=dim), torch.fft.irfft(x, dim=dim), atol=1e-6)
    assert SUBSTITUTES[torch.fft.irfft](x, 9) is NotImplemented
    assert torch.allclose(SUBSTITUTES[torch.fft.irfftn](x, dim=(1, 0)), torch.fft.irfftn(x, dim=(1, 0)), atol=1e-6)
    assert torch.allclose(SUBSTITUTES[torch.fft.irfft2](x), torch.fft.irfft2(x), atol=1e-6)


@pytest.mark.parametrize("length", [None, 30, 50])
@pytest.mark.parametrize(
    ("width", "hop", "window", "center", "normalized"),
    [(8, 4, None, True, False), (16, 4, 12, True, True), (8, 2, None, False, False)],
)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_a_wave_is_put_together_from_its_spectra(batch, width, hop, window, center, normalized, length):
    weights = torch.hann_window(window or width) + 0.1
    settings = {"window": weights, "center": center, "normalized": normalized}
    wave = torch.randn(*batch, 48, generator=torch.Generator().manual_seed(3))
    spectra = torch.stft(wave, width, hop, window, return_complex=True, **settings)
    ours = SUBSTITUTES[torch.istft](spectra, width, hop, window, length=length, **settings)
    plain = torch.istft(spectra, width, hop, window, length=length, **settings)
    assert ours.shape == plain.shape
    assert torch.allclose(ours, plain, atol=1e-5)


def test_of_a_spectrum_with_both_sides_the_first_is_used():
    spectrum = _complex(3, 8, 5)
    assert torch.allclose(SUBSTITUTES[torch.istft](spectrum, 8), torch.istft(spectrum, 8), atol=1e-5)


@pytest.mark.parametrize(("dim", "keepdim"), [(None, False), (1, True), ((0, 1), False)])
def test_the_mean_of_complex_numbers(dim, keepdim):
    x = _complex(3, 4)
    plain = x.mean() if dim is None else x.mean(dim, keepdim)
    assert torch.allclose(SUBSTITUTES[torch.mean](x, dim, keepdim), plain)
    assert SUBSTITUTES[torch.mean](x.real, dim) is NotImplemented


@pytest.mark.parametrize(("sections", "dim"), [(1, 0), (3, 0), (7, 0), (2, -1), (4, 1)])
def test_a_tensor_split_into_so_many_parts(sections, dim):
    x = torch.arange(30.0).reshape(5, 6)
    ours, plain = SUBSTITUTES[torch.tensor_split](x, sections, dim), torch.tensor_split(x, sections, dim)
    assert len(ours) == len(plain)
    assert all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))


@pytest.mark.parametrize("shapes", [((3,), (2, 2)), ((2, 3), (4,)), ((2, 1, 3), (3, 2, 2))])
def test_a_product_of_kronecker(shapes):
    a, b = (torch.randn(shape, generator=torch.Generator().manual_seed(2)) for shape in shapes)
    assert torch.equal(SUBSTITUTES[torch.kron](a, b), torch.kron(a, b))


class LengthsByValue(torch.nn.Module):
    """Lengths that are values, and `.data` of an input."""

    def forward(self, x, labels):
        longest = labels.max().item()
        table = torch.linspace(-1, 2, longest + 1)
        hot = torch.nn.functional.one_hot(labels)
        given = torch.nn.functional.one_hot(labels, num_classes=longest + 2)
        return table[labels] * x.data, table, hot, given


def _export(model, args, mode):
    dims = ({0: torch.export.Dim.DYNAMIC}, {0: torch.export.Dim.DYNAMIC})
    with mode:
        return torch.export.export(model, args, dynamic_shapes=dims, strict=False).module()


def _draw(length):
    generator = torch.Generator().manual_seed(length)
    return torch.randn(length, generator=generator), torch.randint(0, length, (length,), generator=generator)


def test_lengths_by_value_and_data_are_captured():
    used = []
    program = _export(LengthsByValue(), _draw(5), SubstituteMode(lambda: used.append(1)))
    assert len(used) == 4
    for length in (5, 8, 1):
        for ours, plain in zip(program(*_draw(length)), LengthsByValue()(*_draw(length)), strict=True):
            torch.testing.assert_close(ours, plain, rtol=0, atol=1e-6)


def test_torch_captures_no_length_by_value_itself():
    with pytest.raises(Exception, match=r"data-dependent|fake tensor"):
        _export(LengthsByValue(), _draw(5), contextlib.nullcontext())


class CausalIfLong(nn.Module):
    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=x.shape[2] > 4)


def test_attention_is_causal_where_the_size_says_so(tmp_path):
    inputs, bounds = ["x: float32[batch, 2, time, 4]"], {"batch": (1, 2), "time": (1, 9)}
    plain = nn.functional.scaled_dot_product_attention
    result = fairway.export(CausalIfLong(), inputs, tmp_path / "m.onnx", bounds=bounds, routes=["export-dynamic"])
    assert result.verified
    assert "missing_translation" in result.remedies
    assert nn.functional.scaled_dot_product_attention is plain
