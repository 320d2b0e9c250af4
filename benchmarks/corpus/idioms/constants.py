"""Decisions and numbers read from weights, buffers and tables that no input reaches."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from case import idiom
from torch import nn

SEQUENCE = "x: float32[batch, time, 6]"
SPAN = {"batch": (1, 4), "time": (8, 20)}
ROWS = "x: float32[batch, 6]"
FEW = {"batch": (1, 5)}


@idiom(SEQUENCE, **SPAN)
class KeyBiasIfAny(nn.Module):
    """A part that counts only once training has moved its parameter from zero."""

    def __init__(self):
        super().__init__()
        self.k_zero = nn.Parameter(torch.zeros(6))
        self.q, self.k = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        k = self.k(x)
        if not torch.all(self.k_zero == 0):
            k = torch.cat([self.k_zero.expand(x.shape[0], 1, -1), k], dim=1)
        return (self.q(x) @ k.mT).softmax(-1)


@idiom(ROWS, **FEW)
class ScaleItem(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.scale = nn.Parameter(torch.tensor(4.0))
        self.register_buffer("exponent", torch.tensor(2))

    def forward(self, x):
        return F.normalize(self.fc(x), dim=-1) * self.scale.item() + x.abs() ** self.exponent.item()


@idiom(SEQUENCE, **SPAN)
class ShiftsFromArange(nn.Module):
    """Offsets as Python numbers out of a tensor, as shift-based networks make them."""

    def forward(self, x):
        total = torch.zeros_like(x)
        for shift in (torch.arange(4) - 2).tolist():
            total = total + torch.roll(x, shifts=shift, dims=1) / (abs(shift) + 1)
        return total


@idiom(ROWS, **FEW)
class PrunedAdapter(nn.Module):
    """An adapter that is skipped while it is all zeros; a second one is not."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.adapters = nn.ParameterList([nn.Parameter(torch.zeros(6, 6)), nn.Parameter(torch.randn(6, 6))])

    def forward(self, x):
        y = self.fc(x)
        for weight in self.adapters:
            if (weight != 0).any():
                y = y + x @ weight.t()
        return y


@idiom(ROWS, **FEW)
class DropPathRates(nn.Module):
    """Rates of stochastic depth by `linspace`, read at each call; in eval mode each branch is scaled instead."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x):
        rates = [r.item() for r in torch.linspace(0, 0.2, len(self.blocks))]
        for rate, block in zip(rates, self.blocks):
            if rate > 0.0 and self.training:
                keep = x.new_empty(x.shape[0], 1).bernoulli_(1 - rate)
                x = x + keep * block(x)
            else:
                x = x + (1.0 - rate) * block(x).tanh()
        return x


@idiom("x: float32[batch, 8, h, w]", batch=(1, 3), h=(2, 8), w=(2, 8))
class AnchorsFromNumpy(nn.Module):
    """A detection head: anchors in numpy, strides in a buffer, both used as numbers."""

    def __init__(self):
        super().__init__()
        self.anchors = np.array([[10, 13], [16, 30]], dtype=np.float32)
        self.register_buffer("stride", torch.tensor([8.0]))
        self.head = nn.Conv2d(8, 2 * 5, 1)

    def forward(self, x):
        b, _, h, w = x.shape
        y = self.head(x).view(b, 2, 5, h, w).permute(0, 1, 3, 4, 2).sigmoid()
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((columns, rows), 2).float()
        out = []
        for i in range(len(self.anchors)):
            centre = (y[:, i, ..., 0:2] * 2.0 - 0.5 + grid) * self.stride[0].item()
            size = (y[:, i, ..., 2:4] * 2) ** 2 * torch.from_numpy(self.anchors[i])
            area = float(self.anchors[i].prod())
            out.append(torch.cat([centre, size, y[:, i, ..., 4:] * area], -1).flatten(1, 2))
        return torch.cat(out, 1)


@idiom(SEQUENCE, **SPAN)
class BufferAsLength(nn.Module):
    """A prompt's length in a buffer, since it is saved with the weights."""

    def __init__(self):
        super().__init__()
        self.register_buffer("length", torch.tensor(5))
        self.register_buffer("prompt", torch.randn(8, 6))

    def forward(self, x):
        n = int(self.length)
        prompt = self.prompt[:n].unsqueeze(0).expand(x.shape[0], n, -1)
        y = torch.cat([prompt, x], dim=1).cumsum(1)
        return y[:, n:], x[:, : int(self.length)].mean(1)


@idiom(ROWS, **FEW)
class ColumnsKept(nn.Module):
    """Columns chosen by a mask that was learnt: features that were pruned away."""

    def __init__(self):
        super().__init__()
        self.register_buffer("keep", torch.tensor([True, False, True, True, False, True]))
        self.fc = nn.Linear(int(self.keep.sum()), 3)

    def forward(self, x):
        out = torch.zeros_like(x)
        out[:, self.keep] = x[:, self.keep] * 2
        return self.fc(x[:, self.keep]), out


@idiom("x: float32[batch, 4, time]", batch=(1, 3), time=(2, 12))
class ActNormInitialised(nn.Module):
    """Glow's normalisation: its first batch sets it up, and a buffer remembers that."""

    def __init__(self):
        super().__init__()
        self.log_s, self.t = nn.Parameter(torch.randn(4, 1)), nn.Parameter(torch.randn(4, 1))
        self.register_buffer("initialized", torch.tensor(1, dtype=torch.uint8))

    def initialise(self, x):
        with torch.no_grad():
            self.log_s.data.copy_(-x.std((0, 2)).log().unsqueeze(1))
            self.initialized.fill_(1)

    def forward(self, x):
        if self.initialized.item() == 0:
            self.initialise(x)
        return (x + self.t) * torch.exp(self.log_s), self.log_s.sum() * x.shape[-1]


@idiom(SEQUENCE, **SPAN)
class CodebookLookup(nn.Module):
    """Vector quantisation with k-means set up on first use, as vector-quantize-pytorch has it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("initted", torch.tensor([True]))
        self.register_buffer("embed", torch.randn(7, 6))
        self.register_buffer("cluster_size", torch.ones(7))

    def init_embed_(self, data):
        if self.initted.all():
            return
        self.embed.data.copy_(data[: self.embed.shape[0]])
        self.initted.data.copy_(torch.tensor([True]))

    def expire_codes_(self, samples):
        expired = self.cluster_size < 1e-3
        if not torch.any(expired):
            return
        self.embed.data[expired] = samples[: int(expired.sum())]

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        self.init_embed_(flat)
        distance = -(flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.embed.t() + self.embed.pow(2).sum(1))
        code = distance.max(dim=-1).indices.view(*x.shape[:-1])
        self.expire_codes_(flat)
        quantized = F.embedding(code, self.embed)
        return x + (quantized - x).detach(), code


@idiom(SEQUENCE, **SPAN)
class HeadsLeftAfterPruning(nn.Module):
    """The list of heads to run is read from a buffer by `nonzero`."""

    def __init__(self):
        super().__init__()
        self.register_buffer("active", torch.tensor([1, 0, 1]))
        self.q, self.k = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        q, k, v = (t.view(*x.shape[:2], 3, 2).transpose(1, 2) for t in (self.q(x), self.k(x), x))
        out = [torch.zeros_like(v[:, 0])] * 3
        for head in self.active.nonzero().flatten().tolist():
            out[head] = (q[:, head] @ k[:, head].mT).softmax(-1) @ v[:, head]
        return torch.cat(out, -1)


@idiom("x: float32[batch, 6]", "t: int64[batch] < 8", batch=(1, 5))
class DiffusionTables(nn.Module):
    """Schedules made in numpy in float64 and gathered per row; the last step's is taken as a number."""

    def __init__(self):
        super().__init__()
        betas = np.linspace(1e-4, 0.3, 8, dtype=np.float64)
        self.alphas_cumprod = np.cumprod(1.0 - betas)

    def forward(self, x, t):
        table = torch.from_numpy(self.alphas_cumprod)
        signal = table.to(x.device)[t].float()[:, None]
        final = float(torch.sqrt(table[-1]))
        return signal.sqrt() * x + (1.0 - signal).sqrt() * x.flip(1), x * final / (1.0 - final)
