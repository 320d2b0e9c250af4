"""Families as people build them: deep nets, long sequences, convolutions, recurrences, transformers, narrow weights."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from family import family
from torch import nn

X8 = "x: {f}[batch, n, 8]"
BOTH = ("float32", "float16")
STORED = "the weights are stored narrow and widened in forward, on both sides alike"


def stack(layers: int, make):
    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(make() for _ in range(layers))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    return Stack


class Residual(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 16), nn.Linear(16, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


family("deep_tanh", X8, scale=10)(stack(100, lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh())))
family("deep_relu", X8, scale=10)(stack(60, lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU())))
family("deep_residual", X8, scale=10)(stack(60, Residual))
family("deep_layer_norm", X8, scale=100)(stack(50, lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))))
family("deep_convolution", "x: {f}[batch, 4, n]", {"n": (3, 40)}, scale=10)(
    stack(50, lambda: nn.Sequential(nn.Conv1d(4, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU()))
)
family("deep_growing", X8, dtypes=("float32",), scale=10)(stack(50, lambda: nn.Linear(8, 8)))

# Long sequences.
family("long_convolution", "x: {f}[batch, 4, n]", {"n": (5, 8192)}, dtypes=("float32",))(
    stack(3, lambda: nn.Conv1d(4, 4, 5, padding=2))
)


@family("long_gru", "x: {f}[batch, n, 4]", {"n": (1, 4096), "batch": (1, 2)}, dtypes=("float32",))
class LongGru(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 8, batch_first=True)

    def forward(self, x):
        return self.gru(x)[0]


@family("long_lstm", "x: {f}[batch, n, 4]", {"n": (1, 4096), "batch": (1, 2)}, dtypes=("float32",))
class LongLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 8, batch_first=True)

    def forward(self, x):
        y, (_, c) = self.lstm(x)
        return y, c


@family("long_attention", "x: {f}[n, 8]", {"n": (1, 4096)}, dtypes=("float32",), scale=100)
class LongAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return torch.softmax(q @ k.T / math.sqrt(8), -1) @ v


@family("linear_attention", X8, {"n": (1, 2000)}, dtypes=("float32",), scale=10)
class LinearAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = torch.cumsum(k.unsqueeze(-1) * v.unsqueeze(-2), 1)
        return (q.unsqueeze(-2) @ state).squeeze(-2) / (q * k.cumsum(1)).sum(-1, keepdim=True)


# Transformers of several kinds.
class Attention(nn.Module):
    """Self-attention; `kind` chooses mask, positions and heads."""

    def __init__(self, kind="plain", heads=2):
        super().__init__()
        self.kind, self.heads = kind, heads
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        batch, n, _ = x.shape
        q, k, v = (t.view(batch, n, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        if self.kind == "rotary":
            q, k = rotate(q), rotate(k)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        places = torch.arange(n)
        if self.kind in ("causal", "alibi", "rotary"):
            scores = scores.masked_fill(places[:, None] < places, float("-inf"))
        if self.kind == "alibi":
            scores = scores - 0.5 * (places[:, None] - places).abs().to(x.dtype)
        return self.out((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, n, 8))


def rotate(x):
    half = x.shape[-1] // 2
    rates = 100.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[-2], dtype=torch.float32)[:, None] * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * cos - right * sin, left * sin + right * cos], -1)


class Block(nn.Module):
    def __init__(self, kind="plain"):
        super().__init__()
        self.attend, self.feed, self.norm = Attention(kind), Residual(), nn.LayerNorm(8)

    def forward(self, x):
        return self.feed(x + self.attend(self.norm(x)))


for _kind in ("plain", "causal", "alibi", "rotary"):
    family(f"transformer_{_kind}", X8, scale=10)(stack(3, lambda kind=_kind: Block(kind)))


@family("sdpa_causal", X8)
class Sdpa(nn.Module):
    def forward(self, x):
        q = x.unsqueeze(1)
        return F.scaled_dot_product_attention(q, q * 0.5, q, is_causal=True)


@family("llama_block", X8, scale=10)
class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attend = nn.RMSNorm(8), Attention("rotary")
        self.gate, self.up, self.down = (nn.Linear(8, 8, bias=False) for _ in range(3))

    def forward(self, x):
        x = x + self.attend(self.norm(x))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


@family("mixture_of_experts", X8, dtypes=("float32",))
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(8, 4), nn.Parameter(torch.randn(4, 8, 8) * 0.3)

    def forward(self, x):
        weight, chosen = torch.topk(torch.softmax(self.gate(x), -1), 2, -1)
        every = torch.einsum("bnd,edf->bnef", x, self.experts)
        picked = torch.gather(every, 2, chosen.unsqueeze(-1).expand(-1, -1, -1, 8))
        return (picked * weight.unsqueeze(-1)).sum(2)


@family("padded_attention", (X8, "y: bool[batch, n] = padding"), scale=10)
class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x, y):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2)).masked_fill(y.unsqueeze(1), -1e4)
        return torch.softmax(scores, -1) @ v


@family("encoder_layer", X8, dtypes=("float32",), scale=10)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        return self.layer(x)


@family("cross_attention", (X8, "y: {f}[batch, m, 8]"), scale=10)
class Cross(nn.Module):
    def forward(self, x, y):
        return torch.softmax(x @ y.transpose(1, 2), -1) @ y


# Convolutions, norms, resizing.
family("residual_image", "x: {f}[batch, 3, 8, 8]", scale=10)(
    lambda x: F.relu(F.conv2d(x, torch.ones(3, 3, 3, 3, dtype=x.dtype) / 9, padding=1)) + x
)
family("nearest_twice", "x: {f}[batch, 3, n, 8]", dtypes=("float32",))(lambda x: F.interpolate(x, scale_factor=2.0))
family("max_pool", "x: {f}[batch, 3, n]", {"n": (3, 40)}, dtypes=("float32",))(lambda x: F.max_pool1d(x, 3, 1, 1))
family("group_norm", "x: {f}[batch, 4, n]", {"n": (2, 40)}, dtypes=("float32",))(lambda x: F.group_norm(x, 2))
family("pixel_shuffle", "x: {f}[batch, 4, n, 4]")(lambda x: F.pixel_shuffle(x, 2))
family("unfolded", "x: {f}[batch, n]", {"n": (4, 40)})(
    lambda x: torch.stack([x[:, :-3], x[:, 1:-2], x[:, 2:-1], x[:, 3:]], -1).mean(-1)
)
family("embedding", "x: int64[batch, n] < 50", dtypes=("none",))(stack(1, lambda: nn.Embedding(50, 8)))


# Narrow weights.
class Stored(nn.Module):
    """A linear layer whose weight is stored as bfloat16, float16 or int8 and widened in forward."""

    how = "int8"

    def __init__(self):
        super().__init__()
        weight = torch.randn(8, 8) * 0.4
        if self.how == "int8":
            self.register_buffer("scale", weight.abs().amax(1, keepdim=True) / 127)
            self.register_buffer("weight", torch.round(weight / self.scale).to(torch.int8))
        else:
            self.register_buffer("weight", weight.to(getattr(torch, self.how)))

    def forward(self, x):
        weight = self.weight.to(x.dtype)
        return F.linear(x, weight * self.scale.to(x.dtype) if self.how == "int8" else weight)


for _how in ("int8", "bfloat16", "float16"):
    layer = type("Stored", (Stored,), {"how": _how})
    family(f"stored_{_how}", X8, dtypes=BOTH, why=STORED)(layer)
    family(f"stored_{_how}_deep", X8, dtypes=("float32",), scale=10, why=STORED)(
        stack(12, lambda layer=layer: nn.Sequential(layer(), nn.Tanh()))
    )
    family(f"stored_{_how}_attention", X8, dtypes=("float32",), why=STORED)(
        stack(2, lambda layer=layer: nn.Sequential(layer(), Attention("causal")))
    )


@family("quantized_both", X8, dtypes=("float32",), scale=100, why="fake-quantized on both sides; a step more or less")
class Quantized(nn.Module):
    """Weights and activations fake-quantized, which becomes QuantizeLinear and DequantizeLinear in the file."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8) * 0.4)

    def forward(self, x):
        x = torch.fake_quantize_per_tensor_affine(x, 1 / 32, 0, -128, 127)
        weight = torch.fake_quantize_per_tensor_affine(self.weight, 1 / 64, 0, -128, 127)
        return F.linear(x, weight)


@family("autocast_to_bfloat16", X8, dtypes=("float32",), why="the value passes through bfloat16 on both sides alike")
class ThroughNarrow(nn.Module):
    def forward(self, x):
        return x.to(torch.bfloat16).float() * 3 + x.half().float()
