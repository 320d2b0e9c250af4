"""Calls at the edges of torch.onnx's translations, after the end-to-end tests of microsoft/onnxscript, and vocoders."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from case import idiom
from torch import nn


@idiom("x: int32[batch, 3] in -5..5", "i: int64[batch, 3] < 2", "u: int32[batch, 3] in -5..5", batch=(2, 6))
class ScatterLeastWithoutSelf(nn.Module):
    def forward(self, x, i, u):
        return x.clone().scatter_reduce(0, i, u, "amin", include_self=False)


@idiom("x: int64[n] in 0..9", n=(1, 8))
class PowersOfIntegers(nn.Module):
    def forward(self, x):
        return x**0.5, x**2


@idiom("x: float16[n] in 0..3", n=(1, 8))
class PowersOfHalves(nn.Module):
    def forward(self, x):
        return x**2, x**0.5, x.float() * 1.0


@idiom("x: int64[n] < 6", n=(1, 12))
class CountsOfClasses(nn.Module):
    def forward(self, x):
        return torch.bincount(x, minlength=6)


@idiom("x: float32[batch, a, 3]", "counts: int64[batch] in 0..3", batch=(1, 5), a=(1, 4))
class RowsAndColumnsRepeated(nn.Module):
    def forward(self, x, counts):
        return torch.repeat_interleave(x, 3, dim=1), torch.repeat_interleave(x, counts, dim=0)


@idiom("x: float32[a, b]", "y: float32[a, c]", a=(1, 4), b=(1, 5), c=(1, 6))
class ColumnsRepeatedByTheOther(nn.Module):
    def forward(self, x, y):
        return torch.repeat_interleave(x, y.shape[1], dim=1) * torch.repeat_interleave(y, x.shape[1], dim=1)


@idiom("q: float32[batch, 4, time, 8]", "mask: bool[batch, 4, time, time]", batch=(1, 3), time=(2, 9))
class AttentionWithAMaskedRow(nn.Module):
    def forward(self, q, mask):
        first = torch.arange(q.shape[2]) > 0
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask & first[:, None])


@idiom("x: float32[batch, 2, h, w]", batch=(1, 3), h=(1, 5), w=(1, 5))
class PaddedByItsHeight(nn.Module):
    def forward(self, x):
        return F.pad(x, (0, 0, 0, x.size(2)), mode="replicate")


@idiom("q: float32[batch, 4, time, 8]", "k: float32[batch, 2, past, 8]", batch=(1, 3), time=(2, 7), past=(3, 9))
class GroupedQueries(nn.Module):
    def forward(self, q, k):
        return F.scaled_dot_product_attention(q, k, k, enable_gqa=True)


@idiom("x: int64[n] in 0..99", n=(1, 9))
class BitsOfNumbers(nn.Module):
    def forward(self, x):
        return x & 3, x | 8, x ^ 5, x >> 1, x << 2


@idiom("x: float32[batch, 6, 6, 6]", batch=(1, 4))
class AveragesWithAndWithoutABatch(nn.Module):
    def forward(self, x):
        flat = F.avg_pool1d(x[0, 0], 2), F.avg_pool1d(x[0], 2), F.avg_pool2d(x[0], 2)
        return *flat, F.avg_pool2d(x, 2), F.avg_pool3d(x, 2), F.avg_pool3d(x[:, None], 2)


@idiom("x: float32[n, 3]", n=(1, 6))
class JoinedWithNothing(nn.Module):
    def forward(self, x):
        return torch.cat([x, torch.tensor([]), x], dim=0), torch.cat([x, torch.tensor([])], dim=1)


@idiom("x: int32[n] < 3", n=(1, 14))
class RunsOfEqualNumbers(nn.Module):
    def forward(self, x):
        return torch.unique_consecutive(x, return_inverse=True, return_counts=True)


@idiom("x: float32[batch, time]", batch=(1, 3), time=(20, 40))
class SpectraAsPairs(nn.Module):
    def forward(self, x):
        pairs = torch.view_as_real(torch.stft(x, n_fft=8, hop_length=2, window=torch.ones(8), return_complex=True))
        return pairs, torch.view_as_real(torch.stft(x[0], n_fft=4, center=False, return_complex=True))


@idiom("x: float32[batch, time, 3]", batch=(1, 5), time=(1, 6))
class SumOfUnboundRows(nn.Module):
    def forward(self, x):
        return sum(torch.unbind(x, dim=0)), sum(torch.unbind(x, dim=1))


@idiom("x: float32[6, 6, n]", "u: float32[2, n]", "v: float32[6, 2]", n=(6, 9))
class AddedAtIndicesApart(nn.Module):
    """Indices with a dim between them move to the front."""

    def forward(self, x, u, v):
        rows, columns = torch.tensor([0, 1]), torch.tensor([2, 3])
        apart = x.permute(0, 2, 1).index_put((rows, torch.arange(2)), u[:, :6], accumulate=True)
        x = x.clone()
        x[:, rows, columns] += v
        return apart, x


@idiom("x: float32[a, b]", "m: bool[a, b]", a=(1, 5), b=(1, 5))
class WrittenWhereTrue(nn.Module):
    def forward(self, x, m):
        return x.index_put((m,), torch.tensor(5.0)), x.index_put((m[:, 0],), torch.tensor(7.0))


@idiom("x: float32[batch, 4, 5]", batch=(1, 6))
class SpreadAndMean(nn.Module):
    def forward(self, x):
        return torch.std_mean(x), torch.histc(x, 3, 0, 2)


@idiom("x: float32[batch, 3, 8, 8, 2]", batch=(1, 3))
class ComplexImages(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 3, 3, dtype=torch.complex64))

    def forward(self, x):
        return torch.view_as_real(F.conv2d(torch.view_as_complex(x), self.weight))


@idiom("x: float32[2, 3, 8, 8]", "weight: float32[4, 3, h, w]", h=(1, 5), w=(1, 5))
class KernelsAsInputs(nn.Module):
    def forward(self, x, weight):
        return F.conv2d(x, weight)


@idiom("x: float32[batch, 3, 5]", batch=(1, 4))
class BlocksRoundedUp(nn.Module):
    """The number of blocks that hold all rows: a ceiling division of a size."""

    def forward(self, x):
        flat = x.reshape(-1)
        blocks = -(-flat.shape[0] // 8)
        return F.pad(flat, (0, blocks * 8 - flat.shape[0])).reshape(blocks, 8).amax(1)


@idiom("mel: float32[batch, 6, frames]", batch=(1, 3), frames=(2, 12))
class SpectrumHeadOfAVocoder(nn.Module):
    """Magnitudes and phases of a layer, made a wave by the inverse transform."""

    def __init__(self):
        super().__init__()
        self.out = nn.Conv1d(6, 18, 1)
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, mel):
        magnitude, phase = self.out(mel).chunk(2, dim=1)
        spectrum = torch.exp(magnitude).clamp(max=1e2) * torch.exp(1j * phase)
        return torch.istft(spectrum, 16, 4, 16, self.window, center=True)


@idiom("x: float32[batch, 2, time]", batch=(1, 2), time=(32, 64))
class MaskedSpectraOfChannels(nn.Module):
    """A separator of sources: spectra are masked as pairs, and go back to as long a wave."""

    def __init__(self):
        super().__init__()
        self.mask = nn.Conv2d(4, 4, 3, padding=1)
        self.register_buffer("window", torch.hann_window(16) + 0.05)

    def forward(self, x):
        batch, channels, time = x.shape
        spectra = torch.stft(x.reshape(-1, time), 16, 4, 16, self.window, normalized=True, return_complex=True)
        pairs = torch.view_as_real(spectra).reshape(batch, channels, *spectra.shape[1:], 2)
        flat = pairs.permute(0, 1, 4, 2, 3).reshape(batch, channels * 2, *spectra.shape[1:])
        masked = (flat * torch.sigmoid(self.mask(flat))).reshape(batch, channels, 2, *spectra.shape[1:])
        both = torch.view_as_complex(masked.permute(0, 1, 3, 4, 2).contiguous()).reshape(-1, *spectra.shape[1:])
        wave = torch.istft(both, 16, 4, 16, self.window, normalized=True, length=time)
        return wave.reshape(batch, channels, time)


@idiom("x: float32[batch, frames, 9]", batch=(1, 3), frames=(3, 10))
class PhasesAddedUp(nn.Module):
    """A phase vocoder: phases advance by what they differ, and turn the spectrum."""

    def forward(self, x):
        angle = torch.angle(torch.fft.rfft(x, dim=-1))
        steps = torch.remainder(angle[:, 1:] - angle[:, :-1] + math.pi, 2 * math.pi) - math.pi
        turned = torch.polar(x[:, 1:, :5].abs(), torch.cumsum(steps, 1))
        return torch.fft.irfft(torch.conj(turned), n=9, dim=-1)
