"""What a capture fixes: remembered sizes, expanded buffers, tables made on first use."""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from case import idiom
from torch import nn

SEQUENCE = "x: float32[batch, time, 8]"
SPAN = {"batch": (1, 4), "time": (2, 18)}
IMAGE = "x: float32[batch, 4, h, w]"
SIDES = {"batch": (1, 3), "h": (2, 9), "w": (2, 9)}


@idiom(SEQUENCE, **SPAN)
class BatchRemembered(nn.Module):
    """Sizes noted on the module by one method and used by another."""

    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(8, 8), nn.Linear(4, 4)

    def fold(self, x):
        self.batch_size, self.seq_len = x.shape[0], x.shape[1]
        return self.fc(x).view(self.batch_size * self.seq_len, 2, 4)

    def unfold(self, y):
        return y.view(self.batch_size, self.seq_len, -1)

    def forward(self, x):
        return self.unfold(torch.relu(self.out(self.fold(x))))


@idiom(SEQUENCE, "context: float32[batch, source, 8]", batch=(1, 3), time=(1, 8), source=(1, 8))
class LengthsStoredForMask(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv = nn.Linear(8, 8), nn.Linear(8, 16)

    def causal(self):
        full = torch.ones(self.len_q, self.len_k, dtype=torch.bool)
        return full.tril(diagonal=self.len_k - self.len_q) | (torch.arange(self.len_k) == 0)

    def forward(self, x, context):
        self.len_q, self.len_k = x.size(1), context.size(1)
        k, v = self.kv(context).chunk(2, dim=-1)
        score = (self.q(x) @ k.mT).masked_fill(~self.causal(), float("-inf"))
        return score.softmax(-1) @ v


@idiom("x: float32[batch, 6]", batch=(1, 5))
class StateOfStoredSize(nn.Module):
    def __init__(self):
        super().__init__()
        self.n, self.rnn = 4, nn.LSTMCell(6, 4)
        self.register_buffer("memory", torch.randn(1, 5, 4))

    def forward(self, x):
        h, c = self.rnn(x, (x.new_zeros(x.shape[0], self.n), x.new_zeros((x.shape[0], self.n))))
        memory = self.memory.expand(h.shape[0], -1, -1)
        read = torch.einsum("bnd,bd->bn", memory, h).softmax(-1)
        return torch.cat([torch.bmm(read.unsqueeze(1), memory).squeeze(1), c, x.new_ones(1).expand(len(x), 1)], 1)


@idiom("x: float32[batch, groups, 4]", "gain: float32[batch, 1, 4]", batch=(1, 4), groups=(1, 5))
class BroadcastOverOne(nn.Module):
    """Dims that may be one meet dims that are one by declaration."""

    def __init__(self):
        super().__init__()
        self.register_buffer("offset", torch.randn(1, 1, 4))

    def forward(self, x, gain):
        shifted = x * gain + self.offset
        pairs = shifted.unsqueeze(1) - shifted.unsqueeze(2)
        return shifted, pairs.pow(2).sum(-1) / torch.maximum(gain, self.offset).pow(2).sum(-1).unsqueeze(-1)


@idiom(SEQUENCE, **SPAN)
class PositionsCachedOnce(nn.Module):
    """Computed at the first call, and again whenever the input is longer."""

    def __init__(self):
        super().__init__()
        self.positions = None

    def forward(self, x):
        if self.positions is None or self.positions.size(0) < x.size(1):
            self.positions = torch.arange(x.size(1), device=x.device)
        angle = self.positions[: x.size(1)].float().unsqueeze(-1) / 10 ** (torch.arange(8) / 8)
        return x + angle.sin()


class Rotary(nn.Module):
    """transformers' older rotary embedding: sines kept for the longest input so far."""

    def __init__(self, dim):
        super().__init__()
        inv_freq = 1.0 / (100 ** (torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.set_cache(4)

    def set_cache(self, length):
        self.max_seq_len_cached = length
        t = torch.arange(length).type_as(self.inv_freq)
        emb = torch.cat((torch.outer(t, self.inv_freq),) * 2, dim=-1)
        self.register_buffer("cos_cached", emb.cos(), persistent=False)
        self.register_buffer("sin_cached", emb.sin(), persistent=False)

    def forward(self, x, seq_len):
        if seq_len > self.max_seq_len_cached:
            self.set_cache(seq_len)
        return self.cos_cached[:seq_len].to(x.dtype), self.sin_cached[:seq_len].to(x.dtype)


@idiom(SEQUENCE, **SPAN)
class RotaryCacheGrown(nn.Module):
    def __init__(self):
        super().__init__()
        self.rotary, self.qk = Rotary(8), nn.Linear(8, 16)

    def forward(self, x):
        q, k = self.qk(x).chunk(2, dim=-1)
        cos, sin = self.rotary(x, seq_len=x.shape[1])
        q, k = (t * cos + torch.cat((-t[..., 4:], t[..., :4]), -1) * sin for t in (q, k))
        return (q @ k.mT / math.sqrt(8)).softmax(-1) @ x


@idiom(SEQUENCE, **SPAN)
class RelativePositionsExtended(nn.Module):
    """ESPnet's `extend_pe`: positive and negative positions in one table, cut around its middle."""

    def __init__(self):
        super().__init__()
        self.pe = None
        self.extend_pe(torch.zeros(1, 5))

    def extend_pe(self, x):
        if self.pe is not None and self.pe.size(1) >= x.size(1) * 2 - 1:
            return
        position = torch.arange(0, x.size(1), dtype=torch.float32).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, 8, 2, dtype=torch.float32) * -(math.log(10000.0) / 8))
        positive, negative = torch.zeros(x.size(1), 8), torch.zeros(x.size(1), 8)
        positive[:, 0::2], positive[:, 1::2] = torch.sin(position * div_term), torch.cos(position * div_term)
        negative[:, 0::2], negative[:, 1::2] = torch.sin(-position * div_term), torch.cos(-position * div_term)
        self.pe = torch.cat([torch.flip(positive, [0]).unsqueeze(0), negative[1:].unsqueeze(0)], dim=1)

    def forward(self, x):
        self.extend_pe(x)
        middle = self.pe.size(1) // 2
        pos_emb = self.pe[:, middle - x.size(1) + 1 : middle + x.size(1)]
        score = x @ pos_emb[0].t()
        b, n, m = score.shape
        shifted = F.pad(score, (1, 0)).view(b, m + 1, n)[:, 1:].reshape(b, n, m)[:, :, :n]
        return (x @ x.mT + shifted).softmax(-1) @ x


@idiom(SEQUENCE, **SPAN)
class MaskBufferGrown(nn.Module):
    """x-transformers: a mask registered as a buffer within forward."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", None, persistent=False)

    def get_mask(self, n, device):
        if self.mask is not None and self.mask.shape[-1] >= n:
            return self.mask[:n, :n]
        mask = torch.ones((n, n), device=device, dtype=torch.bool).triu(1)
        self.register_buffer("mask", mask, persistent=False)
        return mask

    def forward(self, x):
        sim = torch.einsum("bid,bjd->bij", x, x) * 8**-0.5
        mask = self.get_mask(x.shape[1], x.device)
        return sim.masked_fill(mask, -torch.finfo(sim.dtype).max).softmax(dim=-1) @ x


@functools.lru_cache(maxsize=8)
def alibi_bias(heads, n):
    slopes = torch.tensor([2 ** (-8 * (h + 1) / heads) for h in range(heads)])
    distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
    return slopes[:, None, None] * -distance.abs()


@idiom(SEQUENCE, **SPAN)
class BiasByLruCache(nn.Module):
    """A module-level function that remembers its answers."""

    def forward(self, x):
        y = x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)
        score = y @ y.transpose(-1, -2) * 0.5 + alibi_bias(2, x.shape[1])
        return (score.softmax(-1) @ y).transpose(1, 2).flatten(2)


@idiom(IMAGE, **SIDES)
class GridIfShapeChanged(nn.Module):
    """YOLOX's head: the grid is kept until an image of another size comes."""

    def __init__(self):
        super().__init__()
        self.grid = torch.zeros(1)

    def forward(self, x):
        h, w = x.shape[-2:]
        if self.grid.shape[2:4] != x.shape[2:4]:
            yv, xv = torch.meshgrid([torch.arange(h), torch.arange(w)], indexing="ij")
            self.grid = torch.stack((xv, yv), 2).view(1, 1, h, w, 2).type(x.dtype)
        grid = self.grid.view(1, -1, 2)
        y = x.flatten(start_dim=2).permute(0, 2, 1)
        return torch.cat([(y[..., :2] + grid) * 8, torch.exp(y[..., 2:4]) * 8], dim=-1)


@idiom(IMAGE, **SIDES)
class SineEmbeddingOfMask(nn.Module):
    """DETR's positions: a mask made of sizes, cumulative sums of it, normalised by their last entries."""

    def forward(self, x):
        mask = torch.zeros((x.shape[0], *x.shape[-2:]), dtype=torch.bool, device=x.device)
        y_embed, x_embed = (~mask).cumsum(1, dtype=torch.float32), (~mask).cumsum(2, dtype=torch.float32)
        y_embed = y_embed / (y_embed[:, -1:, :] + 1e-6) * 2 * math.pi
        x_embed = x_embed / (x_embed[:, :, -1:] + 1e-6) * 2 * math.pi
        dim_t = 10000 ** (2 * torch.div(torch.arange(4), 2, rounding_mode="floor") / 4)
        pos = [e[:, :, :, None] / dim_t for e in (y_embed, x_embed)]
        pos = [torch.stack((p[..., 0::2].sin(), p[..., 1::2].cos()), dim=4).flatten(3) for p in pos]
        return torch.cat((x, *(p.permute(0, 3, 1, 2) for p in pos)), dim=1)
