"""Complex numbers, spectra, linear algebra, einsum."""

from __future__ import annotations

import torch
from case import idiom
from torch import nn

SIGNAL = "x: float32[batch, time]"
SPAN = {"batch": (1, 3), "time": (16, 40)}


@idiom(SIGNAL, **SPAN)
class RealFft(nn.Module):
    def forward(self, x):
        return torch.view_as_real(torch.fft.rfft(x))


@idiom(SIGNAL, **SPAN)
class FftMagnitude(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x).abs()


@idiom(SIGNAL, **SPAN)
class SpectralFilter(nn.Module):
    """A filter in the spectrum and back, as FNet-like and Fourier operators do."""

    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        spectrum = torch.cat([spectrum[:, :5], torch.zeros_like(spectrum[:, 5:])], 1)
        return torch.fft.irfft(spectrum, n=x.shape[-1])


@idiom("x: float32[batch, h, 8]", batch=(1, 3), h=(4, 12))
class Fft2Real(nn.Module):
    def forward(self, x):
        return torch.fft.fft2(x).real


@idiom(SIGNAL, **SPAN)
class StftMagnitude(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(8))

    def forward(self, x):
        return torch.stft(x, 8, 4, window=self.window, center=False, return_complex=True).abs()


@idiom(SIGNAL, **SPAN)
class StftCentred(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(8))

    def forward(self, x):
        spectrum = torch.stft(x, 8, 4, window=self.window, center=True, return_complex=True)
        return torch.log1p(spectrum.real**2 + spectrum.imag**2)


@idiom(SIGNAL, **SPAN)
class MelByConv(nn.Module):
    """A spectrogram by convolution, the way around missing operators."""

    def __init__(self):
        super().__init__()
        angle = 2 * torch.pi * torch.arange(5)[:, None] * torch.arange(8)[None] / 8
        self.register_buffer("basis", torch.cat([angle.cos(), -angle.sin()]).unsqueeze(1))
        self.mel = nn.Linear(5, 4, bias=False)

    def forward(self, x):
        real, imaginary = nn.functional.conv1d(x.unsqueeze(1), self.basis, stride=4).chunk(2, 1)
        return self.mel((real**2 + imaginary**2).transpose(1, 2)).abs().clamp(min=1e-5).log()


@idiom("x: float32[batch, time, 8]", batch=(1, 3), time=(1, 20))
class RotaryComplex(nn.Module):
    """Rotary positions by complex multiplication, as Llama's reference code does."""

    def forward(self, x):
        rate = 1.0 / (100.0 ** (torch.arange(0, 8, 2).float() / 8))
        angle = torch.outer(torch.arange(x.shape[1]).float(), rate)
        turn = torch.polar(torch.ones_like(angle), angle)
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], 4, 2))
        return torch.view_as_real(pairs * turn).flatten(-2)


@idiom("x: float32[batch, time, 8]", batch=(1, 3), time=(1, 20))
class RotaryHalves(nn.Module):
    def forward(self, x):
        rate = 1.0 / (100.0 ** (torch.arange(0, 8, 2) / 8))
        angle = torch.arange(x.shape[1])[:, None] * rate
        cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()
        turned = torch.cat([-x[..., 4:], x[..., :4]], -1)
        return x * cos + turned * sin


@idiom("re: float32[batch, 6]", "im: float32[batch, 6]", batch=(1, 4))
class ComplexArithmetic(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6, dtype=torch.complex64))

    def forward(self, re, im):
        z = torch.complex(re, im) @ self.weight
        z = z * z.conj() + 1j
        return z.real, z.imag, z.angle()


@idiom("a: float32[batch, i, 4]", "b: float32[batch, j, 4]", batch=(1, 3), i=(1, 7), j=(1, 7))
class EinsumPairs(nn.Module):
    def forward(self, a, b):
        return torch.einsum("bid,bjd->bij", a, b)


@idiom("x: float32[batch, time, 2, 3]", batch=(1, 3), time=(1, 7))
class EinsumEllipsis(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 3, 5))

    def forward(self, x):
        return torch.einsum("...hd,hdo->...ho", x, self.weight), torch.einsum("bthd->hb", x)


@idiom("x: float32[batch, n, 3]", batch=(1, 3), n=(3, 8))
class SolveLeastSquares(nn.Module):
    def forward(self, x):
        gram = x.transpose(1, 2) @ x + torch.eye(3)
        return torch.linalg.solve(gram, x.sum(1).unsqueeze(-1)).squeeze(-1)


@idiom("x: float32[batch, n, 3]", batch=(1, 3), n=(3, 8))
class InverseOfGram(nn.Module):
    def forward(self, x):
        return torch.linalg.inv(x.transpose(1, 2) @ x + torch.eye(3))


@idiom("x: float32[batch, n, 3]", batch=(1, 3), n=(3, 8))
class CholeskyLogDet(nn.Module):
    def forward(self, x):
        factor = torch.linalg.cholesky(x.transpose(1, 2) @ x + torch.eye(3))
        return factor, 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


@idiom("x: float32[batch, 3, 3]", batch=(1, 5))
class Determinant(nn.Module):
    def forward(self, x):
        return torch.linalg.det(x)


@idiom("x: float32[batch, n, 3]", batch=(1, 3), n=(1, 8))
class VectorNorms(nn.Module):
    def forward(self, x):
        return torch.linalg.vector_norm(x, dim=-1), nn.functional.normalize(x, dim=-1), x.norm(p=1, dim=1)


@idiom("q: float32[batch, 4]", batch=(1, 5))
class QuaternionToMatrix(nn.Module):
    def forward(self, q):
        w, x, y, z = nn.functional.normalize(q, dim=-1).unbind(-1)
        rows = [
            torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)], -1),
            torch.stack([2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)], -1),
            torch.stack([2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)], -1),
        ]
        return torch.stack(rows, -2)


@idiom("x: float32[batch, time, 3]", batch=(1, 3), time=(2, 12))
class StatisticsPooling(nn.Module):
    def forward(self, x):
        return torch.cat([x.mean(1), x.std(1, unbiased=True), x.var(1, correction=0)], -1)


@idiom("x: float32[batch, time]", batch=(1, 3), time=(4, 20))
class Autocorrelation(nn.Module):
    def forward(self, x):
        n = x.shape[-1]
        spectrum = torch.fft.rfft(x, n=2 * n)
        return torch.fft.irfft(spectrum * spectrum.conj(), n=2 * n)[..., :n]


@idiom("a: float32[batch, n]", "b: float32[batch, n]", batch=(1, 3), n=(1, 9))
class OuterKronCross(nn.Module):
    def forward(self, a, b):
        return torch.einsum("bi,bj->bij", a, b), torch.kron(a, b)[: a.shape[0]]
