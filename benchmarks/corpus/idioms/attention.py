"""Attention in the ways people write it, and routing among experts."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from case import idiom
from torch import nn

SEQUENCE = "x: float32[batch, time, 8]"
SPAN = {"batch": (1, 4), "time": (1, 16)}
PADDED = {"batch": (1, 4), "time": (2, 16)}


@idiom(SEQUENCE, **SPAN)
class MultiheadSelf(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


@idiom(SEQUENCE, "padding: bool[batch, time] = padding-right", **PADDED)
class MultiheadPadded(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x, padding):
        return self.attention(x, x, x, key_padding_mask=padding)


@idiom(SEQUENCE, **SPAN)
class EncoderLayers(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        return self.encoder(x)


@idiom(SEQUENCE, "padding: bool[batch, time] = padding-right", **PADDED)
class EncoderPadded(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x, padding):
        return self.encoder(x, src_key_padding_mask=padding).masked_fill(padding.unsqueeze(-1), 0.0)


@idiom(SEQUENCE, **PADDED)
class EncoderCausal(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.encoder(x, mask=mask, is_causal=True)


@idiom(SEQUENCE, "memory: float32[batch, source, 8]", batch=(1, 4), time=(2, 9), source=(1, 9))
class DecoderLayers(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 2)

    def forward(self, x, memory):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.decoder(x, memory, tgt_mask=mask)


@idiom("source: float32[batch, n, 8]", "target: float32[batch, m, 8]", batch=(1, 3), n=(1, 9), m=(2, 9))
class WholeTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

    def forward(self, source, target):
        return self.model(source, target)


@idiom("q: float32[batch, n, 8]", "k: float32[batch, m, 8]", batch=(1, 4), n=(1, 9), m=(1, 9))
class Sdpa3d(nn.Module):
    def forward(self, q, k):
        return F.scaled_dot_product_attention(q, k, k)


@idiom(
    "q: float32[batch, 2, n, 4]",
    "k: float32[batch, 2, m, 4]",
    "mask: bool[batch, m]",
    batch=(1, 4),
    n=(1, 9),
    m=(1, 9),
)
class SdpaFullyMaskedRows(nn.Module):
    """Rows without any key give zeros in PyTorch."""

    def forward(self, q, k, mask):
        return F.scaled_dot_product_attention(q, k, k, attn_mask=mask[:, None, None, :])


@idiom("q: float32[batch, 4, n, 4]", "k: float32[batch, 2, n, 4]", batch=(1, 4), n=(2, 9))
class SdpaGroupedCausal(nn.Module):
    def forward(self, q, k):
        return F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)


@idiom("q: float32[batch, 2, n, 4]", "bias: float32[2, n, n]", batch=(1, 4), n=(1, 9))
class SdpaFloatBias(nn.Module):
    def forward(self, q, bias):
        return F.scaled_dot_product_attention(q, q, q, attn_mask=bias, scale=0.3)


@idiom(SEQUENCE, **SPAN)
class HandWrittenHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.qkv(x).split(8, dim=2)
        q, k, v = (y.view(b, t, 2, c // 2).transpose(1, 2) for y in (q, k, v))
        score = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        score = score.masked_fill(torch.tril(torch.ones(t, t)) == 0, float("-inf"))
        return self.out((score.softmax(-1) @ v).transpose(1, 2).contiguous().view(b, t, c))


@idiom(SEQUENCE, **SPAN)
class NanoGptBlock(nn.Module):
    """The causal mask is a buffer of the largest length, cut to the one at hand."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.register_buffer("bias", torch.tril(torch.ones(32, 32)).view(1, 1, 32, 32))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, 2, 4).transpose(1, 2) for y in self.qkv(x).split(c, 2))
        score = (q @ k.mT) * 0.5
        score = score.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf")).softmax(-1)
        return (score @ v).transpose(1, 2).reshape(b, t, c)


@idiom(SEQUENCE, **SPAN)
class RelativeBiasT5(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Embedding(9, 1)

    def forward(self, x):
        n = x.shape[1]
        distance = (torch.arange(n)[None] - torch.arange(n)[:, None]).clamp(-4, 4) + 4
        score = x @ x.mT + self.bias(distance).squeeze(-1)
        return score.softmax(-1) @ x


@idiom(SEQUENCE, **SPAN)
class Alibi(nn.Module):
    def forward(self, x):
        n = x.size(1)
        slope = torch.tensor([0.5, 0.25]).view(2, 1, 1)
        distance = torch.arange(n).view(1, 1, n) - torch.arange(n).view(1, n, 1)
        y = x.view(x.shape[0], n, 2, 4).transpose(1, 2)
        score = y @ y.mT + slope * distance
        return (score.softmax(-1) @ y).transpose(1, 2).flatten(2)


@idiom(SEQUENCE, **SPAN)
class KernelAttention(nn.Module):
    def forward(self, x):
        q, k = F.elu(x) + 1, F.elu(x.flip(-1)) + 1
        state = torch.einsum("btd,bte->bde", k, x)
        return torch.einsum("btd,bde->bte", q, state) / torch.einsum("btd,bd->bt", q, k.sum(1)).unsqueeze(-1)


@idiom(SEQUENCE, **SPAN)
class KernelAttentionCausal(nn.Module):
    def forward(self, x):
        q, k = F.elu(x) + 1, F.elu(x.flip(-1)) + 1
        state = torch.einsum("btd,bte->btde", k, x).cumsum(1)
        return torch.einsum("btd,btde->bte", q, state) / (q * k.cumsum(1)).sum(-1, keepdim=True)


@idiom(SEQUENCE, **SPAN)
class VmapMask(nn.Module):
    def forward(self, x):
        n = x.shape[1]
        allowed = torch.vmap(torch.vmap(lambda i, j: j <= i, (None, 0)), (0, None))(torch.arange(n), torch.arange(n))
        return x @ x.mT * allowed


@idiom("x: float32[batch, 6]", "y: float32[batch, 6]", batch=(1, 5))
class VmapPerRow(nn.Module):
    def forward(self, x, y):
        return torch.vmap(torch.dot)(x, y)


@idiom("x: float32[batch, time, 8]", "past: float32[batch, history, 8]", batch=(1, 3), time=(1, 4), history=(0, 12))
class CacheAppended(nn.Module):
    def forward(self, x, past):
        keys = torch.cat([past, x], 1)
        position = torch.arange(keys.shape[1])
        allowed = position[None, :] <= position[past.shape[1] :, None]
        score = (x @ keys.mT).masked_fill(~allowed, float("-inf"))
        return score.softmax(-1) @ keys, keys


@idiom("x: float32[tokens, 6]", tokens=(1, 12))
class ExpertsDense(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.experts = nn.Parameter(torch.randn(4, 6, 6))

    def forward(self, x):
        weight, index = self.gate(x).softmax(-1).topk(2)
        chosen = self.experts[index]
        return (torch.einsum("ni,nkij->nkj", x, chosen) * weight.unsqueeze(-1)).sum(1)


@idiom("x: float32[tokens, 6]", tokens=(1, 12))
class ExpertsLoopWhere(nn.Module):
    """Mixtral's way: for every expert, the tokens that chose it."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))

    def forward(self, x):
        weight, index = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, rank = torch.where(index == number)
            out.index_add_(0, token, expert(x[token]) * weight[token, rank].unsqueeze(-1))
        return out


@idiom("x: float32[tokens, 6]", tokens=(1, 12))
class ExpertsSkipEmpty(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 3)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x):
        choice = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mask = choice == number
            if mask.any():
                out[mask] = expert(x[mask])
        return out


@idiom("x: float32[batch, 3, time]", batch=(1, 3), time=(4, 12))
class SqueezeExcite(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return x * torch.sigmoid(self.fc(x.mean(-1))).unsqueeze(-1)


@idiom("x: float32[batch, n, 6]", "y: float32[batch, m, 6]", batch=(1, 3), n=(1, 7), m=(1, 7))
class Perceiver(nn.Module):
    def __init__(self):
        super().__init__()
        self.latent = nn.Parameter(torch.randn(4, 6))
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x, y):
        latent = self.latent.unsqueeze(0).expand(x.shape[0], -1, -1)
        both = torch.cat([x, y], 1)
        return self.attention(latent, both, both)[0]
