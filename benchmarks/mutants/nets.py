"""Small networks of many kinds: what the wrong files are made from. Each takes milliseconds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2))
        self.second = nn.Conv2d(6, 8, 3, stride=2, padding=1, groups=2)
        self.head = nn.Linear(8, 5)
        nn.init.uniform_(self.first[1].running_mean, -1, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        small = self.first(image)
        up = F.interpolate(small, scale_factor=2.0, mode="bilinear", align_corners=False)
        deep = F.avg_pool2d(torch.sigmoid(self.second(small)), 2, padding=1, stride=1)
        return self.head(deep.mean((2, 3))), up.amax(1)


class Recurrent(nn.Module):
    """GRU whose state comes in and goes out."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, state = self.cell(x, state)
        return self.out(y), state


class Remembering(nn.Module):
    """Two-layer, two-way LSTM that starts from nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(3, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (h, c) = self.cell(x)
        return torch.tanh(self.out(y)), h, c


class Filter(nn.Module):
    """A loop over time with a state: a leaky integrator whose step depends on the state."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.gain = nn.Linear(3, 3), nn.Parameter(torch.rand(3) * 0.5 + 0.25)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        state = x.new_zeros(x.shape[0], 3)
        kept = []
        for t in range(x.shape[1]):
            state = state + self.gain * (torch.tanh(self.mix(x[:, t])) - state)
            kept.append(state)
        return torch.stack(kept, 1), state


class Attending(nn.Module):
    """Attention over the elements that are real, then their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2)) / 8**0.5
        weights = torch.softmax(scores.masked_fill(padding[:, None], -1e9), -1)
        y = self.norm(x + self.out(weights @ v))
        real = (~padding)[..., None].float()
        return y, (y * real).sum(1) / real.sum(1)


class Reader(nn.Module):
    """BERT as transformers builds it, two small layers."""

    def __init__(self) -> None:
        super().__init__()
        import transformers

        config = transformers.BertConfig(
            vocab_size=99,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=64,
            attn_implementation="eager",
        )
        self.model = transformers.BertModel(config)
        for p in self.model.parameters():  # its own start (std 0.02) leaves the layers next to no say
            nn.init.normal_(p, 1.0 if p.dim() == 1 else 0.0, 0.3)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        found = self.model(input_ids=ids, attention_mask=mask)
        return found.last_hidden_state, found.pooler_output


class Decoder(nn.Module):
    """Causal attention with positions, padded on the left."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(120, 16), nn.Embedding(96, 16)
        self.qkv, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 20)

    def forward(self, ids: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        place = (keep.cumsum(-1) - 1).clamp(min=0)
        x = self.words(ids) + self.places(place)
        q, k, v = (t.reshape(ids.shape[0], -1, 2, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        step = torch.arange(ids.shape[1])
        seen = (step[:, None] >= step[None])[None, None] & (keep[:, None, None] > 0)
        scores = (q @ k.transpose(-1, -2)) * 8**-0.5
        y = torch.softmax(torch.where(seen, scores, torch.full_like(scores, -1e9)), -1) @ v
        logits = self.head(x + self.out(y.transpose(1, 2).flatten(2)))
        return logits, logits[:, -1].argmax(-1)


class Ranker(nn.Module):
    """Integers out: the best, the three best, and how many are good."""

    def __init__(self) -> None:
        super().__init__()
        self.items, self.score = nn.Embedding(50, 12), nn.Linear(12, 9)

    def forward(self, item: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        scores = self.score(torch.tanh(self.items(item))).sum(1)
        top = torch.topk(scores, 3, -1)
        return scores.argmax(-1), top.values, top.indices, (scores > 0).sum(-1)


class Heads(nn.Module):
    """Many outputs by name, two of them alike in shape."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ELU())
        self.left, self.right, self.spread = nn.Linear(16, 4), nn.Linear(16, 4), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.body(x)
        left, right = self.left(h), self.right(h)
        return {
            "left": left,
            "right": right,
            "gap": (left - right).abs().amax(-1),
            "spread": F.softplus(self.spread(h)),
            "mean": h.mean(1),
        }


class Half(nn.Module):
    """float16 throughout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 24), nn.SiLU(), nn.Linear(24, 8), nn.Sigmoid()).half()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.layers(x)
        return y, (x * y).float().mean(-1)


class Brain(nn.Module):
    """bfloat16 weights, float32 arithmetic, as people keep weights small."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(6, 20).bfloat16())
        self.b = nn.Parameter(torch.randn(20, 6).bfloat16())

    def forward(self, x: Tensor) -> Tensor:
        return F.hardswish(x @ self.a.float()) @ self.b.float() + x.clamp(-2, 2)


@torch.jit.script
def _either(x: Tensor, calm: Tensor, wild: Tensor) -> Tensor:
    if bool(x.mean() > 0):
        y = torch.tanh(x @ calm)
    else:
        y = (x @ wild) * 0.5
    return y


class Choosing(nn.Module):
    """Takes a branch by the values: of the whole input (scripted, so that an If is written), by row, by element."""

    def __init__(self) -> None:
        super().__init__()
        self.calm, self.wild = nn.Parameter(torch.randn(5, 5)), nn.Parameter(torch.randn(5, 5))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = _either(x, self.calm, self.wild)
        by_row = torch.where(x.sum(-1, keepdim=True) > 0.3, y, -y)
        return by_row, torch.where(x < 0, x * 0.1, x.square())


class Indexing(nn.Module):
    """Gathers, scatters and slices by indices that come in."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(30, 6))

    def forward(self, x: Tensor, pick: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows = self.table[pick]
        best = x.gather(1, (pick % 6)[:, None].expand(-1, 6))
        bins = x.new_zeros(30, 6).index_add(0, pick, x)
        return rows[:, 1:5:2] + x[:, :2], best - x.flip(-1), bins


class Sums(nn.Module):
    """Running sums and contractions over time."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 4, 2) * 0.3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        run = x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]
        y = torch.einsum("btc,cde->bted", run, self.w)
        corr = torch.einsum("btc,btd->bcd", x, run) / x.shape[1]
        return y.reshape(x.shape[0], -1, 8), corr, x.norm(dim=-1)


class Rules(nn.Module):
    """Booleans in, booleans out."""

    def forward(self, x: Tensor, flag: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        high, low = x > 0.5, x < -0.5
        inside = ~(high | low)
        odd = high.sum(-1) % 2 == 1
        return (inside & flag) | (high ^ flag), odd & flag.any(-1), flag.all(-1) | low.any(-1)


class Whole(nn.Module):
    """Integer arithmetic with casts on the way."""

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide = a.long() * 257 + b.long()
        down = torch.div(wide, 7, rounding_mode="floor")
        return wide % 13, down, (a.int() - b.int()).abs().clamp(max=100), (wide.float() / 100).sqrt()


class Wave(nn.Module):
    """Convolutions and group norm over time, strided."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv1d(2, 8, 5, stride=2, padding=2), nn.GroupNorm(4, 8)
        self.second = nn.Conv1d(8, 4, 3, dilation=2, padding=2)

    def forward(self, wave: Tensor) -> tuple[Tensor, Tensor]:
        y = self.second(F.gelu(self.norm(self.first(wave))))
        return y, y.amax(-1)


class Residual(nn.Module):
    """Twelve residual layers with RMS norm and gates."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ParameterList([torch.rand(8) + 0.5 for _ in range(12)])
        self.up = nn.ModuleList([nn.Linear(8, 16) for _ in range(12)])
        self.down = nn.ModuleList([nn.Linear(8, 8) for _ in range(12)])

    def forward(self, x: Tensor) -> Tensor:
        for norm, up, down in zip(self.norms, self.up, self.down, strict=True):
            h = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * norm
            a, b = up(h).chunk(2, -1)
            x = x + down(F.silu(a) * b)
        return x


class Stepping(nn.Module):
    """One step of a decoder: keys and values of the past come in, possibly none, and go out longer."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        key, value = torch.cat([key, self.k(x)], 1), torch.cat([value, self.v(x)], 1)
        weights = torch.softmax(self.q(x) @ key.transpose(-1, -2) / 8**0.5, -1)
        return weights @ value, key, value


class Pooling(nn.Module):
    """Rows of differing lengths: mean, maximum and last of what is real."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(4, 6)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = torch.relu(self.lift(x))
        real = torch.arange(x.shape[1])[None] < lengths[:, None]
        mean = (y * real[..., None]).sum(1) / lengths[:, None]
        most = y.masked_fill(~real[..., None], float("-inf")).amax(1)
        last = y.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, 6)).squeeze(1)
        return mean, most, last


def mlp() -> Any:
    return nn.Sequential(nn.Linear(12, 20), nn.LayerNorm(20), nn.GELU(), nn.Linear(20, 6), nn.Softmax(-1))
