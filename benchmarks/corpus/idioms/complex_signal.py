"""Complex numbers and spectra inside networks: operators of Fourier, filters, enhancement of speech, vocoders."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from case import idiom
from torch import nn

WAVE = "x: float32[batch, time]"
SPAN = {"batch": (1, 3), "time": (20, 48)}


@idiom("x: float32[batch, 3, time]", batch=(1, 3), time=(12, 30))
class SpectralConv1d(nn.Module):
    """The layer of a Fourier neural operator: the lowest modes are mixed by complex weights."""

    def __init__(self):
        super().__init__()
        self.modes = 4
        self.weights = nn.Parameter(torch.rand(3, 5, self.modes, dtype=torch.cfloat) / 15)
        self.w = nn.Conv1d(3, 5, 1)

    def forward(self, x):
        x_ft = torch.fft.rfft(x)
        out_ft = torch.zeros(x.shape[0], 5, x.size(-1) // 2 + 1, device=x.device, dtype=torch.cfloat)
        out_ft[:, :, : self.modes] = torch.einsum("bix,iox->box", x_ft[:, :, : self.modes], self.weights)
        return F.gelu(torch.fft.irfft(out_ft, n=x.size(-1)) + self.w(x))


@idiom("x: float32[batch, 2, h, w]", batch=(1, 3), h=(6, 12), w=(6, 12))
class SpectralConv2d(nn.Module):
    """Its two dimensions: two corners of the spectrum have weights of their own."""

    def __init__(self):
        super().__init__()
        self.weights1 = nn.Parameter(torch.rand(2, 2, 3, 3, dtype=torch.cfloat) / 4)
        self.weights2 = nn.Parameter(torch.rand(2, 2, 3, 3, dtype=torch.cfloat) / 4)

    def forward(self, x):
        x_ft = torch.fft.rfft2(x)
        out_ft = torch.zeros(x.shape[0], 2, x.size(-2), x.size(-1) // 2 + 1, dtype=torch.cfloat)
        out_ft[:, :, :3, :3] = torch.einsum("bixy,ioxy->boxy", x_ft[:, :, :3, :3], self.weights1)
        out_ft[:, :, -3:, :3] = torch.einsum("bixy,ioxy->boxy", x_ft[:, :, -3:, :3], self.weights2)
        return torch.fft.irfft2(out_ft, s=(x.size(-2), x.size(-1)))


@idiom("x: float32[batch, time, 2, 4]", batch=(1, 3), time=(1, 16))
class RotaryTableComplex(nn.Module):
    """Llama's `freqs_cis`: a complex table made once and cut to the length."""

    def __init__(self):
        super().__init__()
        freqs = 1.0 / (100.0 ** (torch.arange(0, 4, 2)[:2].float() / 4))
        angle = torch.outer(torch.arange(20), freqs)
        self.freqs_cis = torch.polar(torch.ones_like(angle), angle)

    def forward(self, x):
        freqs = self.freqs_cis[: x.shape[1]]
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        shape = [d if i == 1 or i == z.ndim - 1 else 1 for i, d in enumerate(z.shape)]
        return torch.view_as_real(z * freqs.view(*shape)).flatten(3).type_as(x)


@idiom("x: float32[batch, 25, 4]", batch=(1, 4))
class GlobalFilter(nn.Module):
    """GFNet: tokens as an image, multiplied in the spectrum by a learnt filter."""

    def __init__(self):
        super().__init__()
        self.complex_weight = nn.Parameter(torch.randn(5, 3, 4, 2) * 0.2)

    def forward(self, x):
        b, n, c = x.shape
        a = int(math.sqrt(n))
        y = torch.fft.rfft2(x.view(b, a, a, c), dim=(1, 2), norm="ortho")
        y = y * torch.view_as_complex(self.complex_weight)
        return torch.fft.irfft2(y, s=(a, a), dim=(1, 2), norm="ortho").reshape(b, n, c)


@idiom(WAVE, **SPAN)
class MaskedSpectrogramBack(nn.Module):
    """Speech enhancement: a mask on the short-time spectrum, and back to a wave of the same length."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(8))
        self.mask = nn.Conv1d(5, 5, 3, padding=1)

    def forward(self, x):
        spectrum = torch.stft(x, 8, 4, window=self.window, center=True, return_complex=True)
        mask = torch.sigmoid(self.mask(torch.log1p(spectrum.abs())))
        return torch.istft(spectrum * mask, 8, 4, window=self.window, center=True, length=x.shape[-1])


@idiom("frames: float32[batch, n, 8]", batch=(1, 3), n=(1, 12))
class OverlapAddByFold(nn.Module):
    """Frames windowed, added where they overlap, and divided by the windows' sum."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hamming_window(8))

    def forward(self, frames):
        n = frames.shape[1]
        length = (n - 1) * 4 + 8
        y = (frames * self.window).transpose(1, 2)
        wave = F.fold(y, output_size=(1, length), kernel_size=(1, 8), stride=(1, 4)).view(-1, length)
        norm = F.fold(
            self.window.square().view(1, 8, 1).expand(1, 8, n).contiguous(), (1, length), (1, 8), stride=(1, 4)
        )
        return wave / norm.view(1, length).clamp(min=1e-3)


@idiom(WAVE, **SPAN)
class MelFilterbank(nn.Module):
    """torchaudio's features by hand: emphasis, frames, power, triangular filters, logarithm, deltas."""

    def __init__(self):
        super().__init__()
        edges = torch.linspace(0, 8, 6)
        bins = torch.arange(9)[:, None]
        up, down = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2]), (edges[2:] - bins) / (edges[2:] - edges[1:-1])
        self.register_buffer("fb", torch.minimum(up, down).clamp(min=0))
        self.register_buffer("window", torch.hann_window(16, periodic=False))

    def forward(self, x):
        x = torch.cat([x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]], dim=1)
        frames = x.unfold(-1, 16, 4) * self.window
        power = torch.fft.rfft(frames, n=16).abs().pow(2)
        mel = torch.matmul(power, self.fb).clamp(min=1e-6).log()
        padded = F.pad(mel.transpose(1, 2), (1, 1), mode="replicate").transpose(1, 2)
        return torch.cat([mel, (padded[:, 2:] - padded[:, :-2]) / 2], dim=-1)


@idiom("magnitude: float32[batch, 5, frames] in 0.1..1", batch=(1, 2), frames=(4, 10))
class GriffinLim(nn.Module):
    """Phases found by going back and forth, from phases of zero."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(8))

    def forward(self, magnitude):
        angles = torch.ones_like(magnitude, dtype=torch.complex64)
        for _ in range(3):
            wave = torch.istft(magnitude * angles, 8, 4, window=self.window)
            rebuilt = torch.stft(wave, 8, 4, window=self.window, return_complex=True)
            angles = rebuilt / (rebuilt.abs() + 1e-4)
        return torch.istft(magnitude * angles, 8, 4, window=self.window)


@idiom(WAVE, **SPAN)
class AnalyticEnvelope(nn.Module):
    """The Hilbert transform as scipy does it."""

    def forward(self, x):
        n = x.shape[-1]
        h = torch.zeros(n)
        if n % 2 == 0:
            h[0] = h[n // 2] = 1
            h[1 : n // 2] = 2
        else:
            h[0] = 1
            h[1 : (n + 1) // 2] = 2
        analytic = torch.fft.ifft(torch.fft.fft(x) * h)
        return analytic.abs(), analytic.imag


@idiom("q: float32[batch, time, 4]", "k: float32[batch, time, 4]", batch=(1, 3), time=(8, 20))
class AutoCorrelationDelays(nn.Module):
    """Autoformer: correlation by spectra, the best delays, the values rolled by each and summed."""

    def forward(self, q, k):
        n = q.shape[1]
        corr = torch.fft.irfft(torch.fft.rfft(q, dim=1) * torch.conj(torch.fft.rfft(k, dim=1)), n=n, dim=1)
        weights, delay = corr.mean(-1).topk(int(math.log(n)), dim=1)
        weights = weights.softmax(-1)
        index = torch.arange(n).view(1, -1, 1).expand(q.shape[0], n, 4)
        doubled, out = k.repeat(1, 2, 1), torch.zeros_like(k)
        for i in range(weights.shape[1]):
            gathered = doubled.gather(1, index + delay[:, i].view(-1, 1, 1))
            out = out + gathered * weights[:, i].view(-1, 1, 1)
        return out


@idiom("u: float32[batch, 4, time]", batch=(1, 3), time=(2, 24))
class DiagonalStateSpace(nn.Module):
    """S4D: a kernel out of complex exponentials, convolved by spectra of twice the length."""

    def __init__(self):
        super().__init__()
        self.C = nn.Parameter(torch.view_as_real(torch.randn(4, 3, dtype=torch.cfloat)))
        self.log_dt, self.log_A_real = nn.Parameter(torch.rand(4) - 3), nn.Parameter(torch.log(0.5 * torch.ones(4, 3)))
        self.A_imag = nn.Parameter(math.pi * torch.arange(3).repeat(4, 1).float())

    def kernel(self, length):
        dt, c = torch.exp(self.log_dt), torch.view_as_complex(self.C)
        a = -torch.exp(self.log_A_real) + 1j * self.A_imag
        dt_a = a * dt.unsqueeze(-1)
        k = dt_a.unsqueeze(-1) * torch.arange(length)
        c = c * (torch.exp(dt_a) - 1.0) / a
        return 2 * torch.einsum("hn, hnl -> hl", c, torch.exp(k)).real

    def forward(self, u):
        n = u.size(-1)
        k_f, u_f = torch.fft.rfft(self.kernel(n), n=2 * n), torch.fft.rfft(u, n=2 * n)
        return F.gelu(torch.fft.irfft(u_f * k_f, n=2 * n)[..., :n] + u)


class ComplexConv(nn.Module):
    """DCCRN's convolution: two real ones, their parts in one tensor's channels."""

    def __init__(self, size_in, size_out):
        super().__init__()
        self.real, self.imag = nn.Conv2d(size_in, size_out, 3, padding=1), nn.Conv2d(size_in, size_out, 3, padding=1)

    def forward(self, z):
        return torch.complex(self.real(z.real) - self.imag(z.imag), self.real(z.imag) + self.imag(z.real))


@idiom("real: float32[batch, 1, h, w]", "imag: float32[batch, 1, h, w]", batch=(1, 3), h=(2, 8), w=(2, 8))
class ComplexMaskNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = ComplexConv(1, 3), ComplexConv(3, 1)

    def forward(self, real, imag):
        z = torch.complex(real, imag)
        y = self.one(z)
        y = torch.complex(F.relu(y.real), F.relu(y.imag))
        mask = self.two(y)
        mask = torch.tanh(mask.abs()) * torch.exp(1j * mask.angle())
        out = z * mask
        return torch.cat([out.real, out.imag], 1), torch.abs(out)


@idiom("z: float32[batch, 3, frames, 2]", "mask: float32[batch, frames] in 0.1..1", batch=(1, 3), frames=(3, 12))
class BeamformedByCovariance(nn.Module):
    """MVDR: covariances of microphones, their inverse, weights from the reference channel."""

    def forward(self, z, mask):
        z = torch.view_as_complex(z)
        speech = torch.einsum("bct,bdt,bt->bcd", z, z.conj(), mask.to(z.dtype)) / mask.sum(-1)[:, None, None]
        noise = torch.einsum("bct,bdt,bt->bcd", z, z.conj(), (1.05 - mask).to(z.dtype))
        noise = noise / mask.shape[-1] + 0.5 * torch.eye(3, dtype=z.dtype)
        ratio = torch.linalg.solve(noise, speech)
        weights = ratio[..., 0] / (torch.diagonal(ratio, dim1=-2, dim2=-1).sum(-1, keepdim=True) + 1e-8)
        return torch.view_as_real(torch.einsum("bc,bct->bt", weights.conj(), z))
