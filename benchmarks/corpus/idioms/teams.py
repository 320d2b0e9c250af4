"""Habits seen in the sources of product teams: code beside the point, logging, settings, data in dicts."""

from __future__ import annotations

import logging
import math

import numpy as np
import torch
import torch.nn.functional as F
from case import idiom
from torch import nn

log = logging.getLogger(__name__)

SPECTRUM = "x: float32[batch, bins, frames]"
SPAN = {"batch": (1, 3), "bins": (4, 12), "frames": (3, 16)}


class Separator(nn.Module):
    """A base class; most of its methods serve training and long files, and forward calls none of them."""

    step = 4

    def separate_long(self, x):
        total = torch.zeros_like(x)
        for start in range(0, x.shape[-1], self.step):
            piece = x[..., start : start + self.step]
            if piece.shape[-1] < self.step:
                continue
            total[..., start : start + self.step] += self(piece)
        return total

    def band_losses(self, x, y):
        losses = []
        for low in range(0, x.shape[1], self.step):
            if (y[:, low : low + self.step] == 0).all():
                continue
            losses.append((x[:, low : low + self.step] - y[:, low : low + self.step]).abs().mean().item())
        return sum(losses) / max(len(losses), 1)


@idiom(SPECTRUM, **SPAN)
class SeparatorBaseUnused(Separator):
    def __init__(self):
        super().__init__()
        self.rnn, self.mask = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, x):
        b, f, t = x.shape
        y, _ = self.rnn(x.abs().reshape(b * f, t, 1))
        return x * torch.sigmoid(self.mask(y)).view(b, f, t)


@idiom("x: float32[batch, time, 6]", batch=(1, 4), time=(1, 12))
class PrintsOnFirstCall(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        if not hasattr(self, "_printed"):
            print(f"[PrintsOnFirstCall] input {tuple(x.shape)}, {x.shape[0] * x.shape[1]} rows")
            self._printed = True
        return self.fc(x).relu()


@idiom("x: float32[batch, time, 6]", "lengths: int64[batch] = lengths(time)", batch=(1, 4), time=(1, 12))
class LogsShapesAndValues(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x, lengths):
        log.debug(f"x {list(x.shape)} on {x.device}, lengths {lengths.tolist()}")
        y = self.fc(x)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("mean %.3f, range %s", y.mean().item(), [y.min().item(), y.max().item()])
        keep = (torch.arange(x.size(1), device=x.device)[None, :] < lengths[:, None]).float()
        y = (y * keep.unsqueeze(-1)).sum(dim=1) / keep.sum(dim=1, keepdim=True).clamp(min=1e-6)
        log.debug(f"pooled {y.shape}: {y[0, :3].tolist()}")
        return y


class Settings:
    """A parsed configuration: attributes, `in`, and `get` with a default."""

    def __init__(self, **values):
        self.__dict__.update({k: Settings(**v) if isinstance(v, dict) else v for k, v in values.items()})

    def __contains__(self, key):
        return key in self.__dict__

    def __getitem__(self, key):
        return self.__dict__[key]

    def get(self, key, default=None):
        return self.__dict__.get(key, default)


@idiom(SPECTRUM, **SPAN)
class SettingsRead(nn.Module):
    def __init__(self):
        super().__init__()
        self.conf = Settings(model={"width": 6, "norm": {"eps": 1e-4}}, pool="mean")
        self.conv = nn.Conv1d(1, self.conf.model.width, 3, padding=1)
        if "dropout" in self.conf.model:
            self.drop = nn.Dropout(self.conf.model.dropout)

    def forward(self, x):
        y = self.conv(x.mean(1, keepdim=True))
        if "norm" in self.conf.model:
            y = F.layer_norm(y.transpose(1, 2), (self.conf.model.width,), eps=self.conf.model.norm["eps"])
        if "dropout" in self.conf.model:
            y = self.drop(y)
        return y.mean(1) if self.conf.get("pool", "max") == "mean" else y.amax(1)


class Stage(nn.Module):
    def __init__(self, read, write, size_in, size_out):
        super().__init__()
        self.read, self.write, self.fc = read, write, nn.Linear(size_in, size_out)

    def forward(self, data):
        data[self.write] = torch.tanh(self.fc(data[self.read]))
        if "mask" in data:
            data[self.write] = data[self.write] * data["mask"].unsqueeze(-1).float()
        return data


@idiom("data.points: float32[batch, n, 3]", "data.mask: bool[batch, n] = keep-right-padded", batch=(1, 4), n=(2, 9))
class DataInDict(nn.Module):
    """Each stage takes and returns a dict and adds a key, as perception stacks do."""

    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(Stage("points", "features", 3, 6), Stage("features", "scores", 6, 1))

    def forward(self, data):
        data = self.stages(dict(data))
        pooled = (data["features"] * data["scores"].softmax(1)).sum(1)
        return {"pooled": pooled, **{k: v for k, v in data.items() if k not in ("points", "mask")}}


@idiom("x: float32[batch, receivers, 5]", "ids: int64[batch] < 3", batch=(1, 3), receivers=(1, 5))
class ReceiversByStation(nn.Module):
    """For every receiver and every row, the network of the row's station."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)) for _ in range(3))

    def forward(self, x, ids):
        outputs = []
        for r in range(x.shape[1]):
            rows = []
            for b in range(x.shape[0]):
                rows.append(self.nets[ids[b].item()](x[b, r]))
            outputs.append(torch.stack(rows, dim=0))
        return torch.stack(outputs, dim=1)


def exists(value):
    return value is not None


def default(value, other):
    return value if exists(value) else other


def softmax_kernel(data, *, projection_matrix, is_query, eps=1e-4):
    """performer_pytorch's, with `expand` for einops' `repeat`."""
    b, h, *_ = data.shape
    normalizer = data.shape[-1] ** -0.25
    ratio = projection_matrix.shape[0] ** -0.5
    projection = projection_matrix.unsqueeze(0).unsqueeze(0).expand(b, h, -1, -1).type_as(data)
    dash = torch.einsum("...id,...jd->...ij", normalizer * data, projection)
    diagonal = ((data**2).sum(-1) / 2.0 * normalizer**2).unsqueeze(dim=-1)
    if is_query:
        dash = torch.exp(dash - diagonal - torch.amax(dash, dim=-1, keepdim=True).detach()) + eps
    else:
        dash = torch.exp(dash - diagonal - torch.amax(dash, dim=(-1, -2), keepdim=True).detach()) + eps
    return (ratio * dash).type_as(data)


@idiom("x: float32[batch, time, 8]", "mask: bool[batch, time] = keep-right-padded", batch=(1, 3), time=(2, 12))
class PerformerAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.to_qkv, self.to_out, self.heads = nn.Linear(8, 24, bias=False), nn.Linear(8, 8), 2
        blocks = [torch.linalg.qr(torch.randn(4, 4))[0].T for _ in range(2)]
        self.register_buffer("projection_matrix", torch.cat(blocks)[:6] * torch.randn(6, 4).norm(dim=1)[:, None])

    def forward(self, x, mask=None, context=None):
        b, n, _, h = *x.shape, self.heads
        context = default(context, x)
        q, k, v = (t.reshape(b, n, h, -1).transpose(1, 2) for t in self.to_qkv(context).chunk(3, dim=-1))
        if exists(mask):
            v = v.masked_fill(~mask[:, None, :, None], 0.0)
        q = softmax_kernel(q, projection_matrix=self.projection_matrix, is_query=True)
        k = softmax_kernel(k, projection_matrix=self.projection_matrix, is_query=False)
        inverse = 1.0 / torch.einsum("...nd,...d->...n", q, k.sum(dim=-2).type_as(q))
        out = torch.einsum("...de,...nd,...n->...ne", torch.einsum("...nd,...ne->...de", k, v), q, inverse)
        return self.to_out(out.transpose(1, 2).flatten(2))


@idiom("x: float32[batch, 6]", batch=(1, 5))
class MethodReplacedByClosure(nn.Module):
    """A wrapper that puts a function around the network's own forward."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))
        original = self.net.forward
        scale = nn.Parameter(torch.tensor(0.5))
        self.scale = scale

        def scaled(x):
            return original(x * scale) + x[..., :3]

        self.net.forward = scaled

    def forward(self, x):
        return self.net(x)


@idiom("x: float32[batch, 4, time]", training=True, batch=(1, 3), time=(4, 16))
class EvalInsideForward(nn.Module):
    """A frozen part that is set to eval mode at each call."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6), nn.Dropout(0.3))
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        self.net.eval()
        with torch.no_grad():
            y = self.net(x)
        return self.head(y.mean(-1))


@idiom("x: float32[batch, time]", batch=(1, 3), time=(5, 40))
class FramesByNumpyIntegers(nn.Module):
    """Window and hop come out of numpy, and so does the count of frames."""

    def __init__(self):
        super().__init__()
        rate = np.int64(100)
        self.window, self.hop = np.round(rate * 0.08).astype(np.int64), np.int64(rate // 25)
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        n = x.shape[1]
        frames = max(math.ceil((n - int(self.window)) / self.hop), 0) + 1
        x = F.pad(x, (0, int((frames - 1) * self.hop + self.window) - n))
        return self.fc(x.unfold(1, int(self.window), int(self.hop)))


@idiom("x: float32[batch, time]", "f: float32[batch, events]", batch=(1, 3), time=(4, 20), events=(1, 6))
class ClippedSlicesAdded(nn.Module):
    """Events painted into a signal, their ends clipped to it."""

    def forward(self, x, f):
        x = x.clone()
        for i in range(f.shape[1]):
            start, end = max(0, 3 * i - 2), min(x.shape[1], 3 * i + 2)
            x[:, start:end] += f[:, i : i + 1]
        return x


@idiom("audio: float32[batch, time]", "mask: bool[batch, time] = keep-right-padded", batch=(1, 4), time=(2, 16))
class MasksMadeFloat(nn.Module):
    """Every mask is made float where it is used, and inverted by arithmetic."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, audio, mask):
        m = mask.float()
        mean = (audio * m).sum(-1, keepdim=True) / m.sum(-1, keepdim=True)
        power = ((audio - mean) ** 2 * m).sum(-1, keepdim=True) / m.sum(-1, keepdim=True)
        audio = (audio - mean) / (power + 1e-5).sqrt() * m + (1.0 - m) * -1.0
        return self.gain * audio, (1 - m).bool(), m.sum(-1).long()
