"""Branches on sizes whose two sides a domain needs."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from case import idiom
from torch import nn

SEQUENCE = "x: float32[batch, time, 6]"
IMAGE = "x: float32[batch, 4, h, w]"
SQUARES = {"batch": (1, 3), "h": (4, 13), "w": (4, 13)}


@idiom("x: float32[batch, h, w, 4]", **SQUARES)
class WindowsPadded(nn.Module):
    """Window attention of Segment Anything and ViTDet: padded to windows, and cut back only if it was padded."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        b, h, w, c = x.shape
        pad_h, pad_w = (4 - h % 4) % 4, (4 - w % 4) % 4
        if pad_h > 0 or pad_w > 0:
            x = F.pad(x, (0, 0, 0, pad_w, 0, pad_h))
        hp, wp = h + pad_h, w + pad_w
        y = x.view(b, hp // 4, 4, wp // 4, 4, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 16, c)
        y = (self.norm(y) @ y.mT).softmax(-1) @ y
        y = y.view(b, hp // 4, wp // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(b, hp, wp, c)
        if hp > h or wp > w:
            y = y[:, :h, :w, :].contiguous()
        return y


@idiom("x: float32[batch, 3, time]", batch=(1, 3), time=(1, 20))
class PadsIfDelta(nn.Module):
    """Demucs: made long enough for the strides, and trimmed in the middle if it grew."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv1d(3, 6, 8, 4), nn.ConvTranspose1d(6, 3, 8, 4)

    def valid_length(self, length):
        return max((math.ceil((length - 8) / 4)), 0) * 4 + 8

    def forward(self, x):
        length = x.shape[-1]
        delta = self.valid_length(length) - length
        if delta:
            x = F.pad(x, (delta // 2, delta - delta // 2))
        y = self.up(torch.relu(self.down(x)))
        if delta:
            y = y[..., delta // 2 : delta // 2 + length]
        return y


@idiom(IMAGE, **SQUARES)
class FactorOfUnet(nn.Module):
    """Padded by reflection where a side does not divide, as image restorers do."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x):
        factor = 2
        h, w = x.shape[2], x.shape[3]
        if h % factor != 0 or w % factor != 0:
            x = F.pad(
                x, (0, factor - w % factor if w % factor else 0, 0, factor - h % factor if h % factor else 0), "reflect"
            )
        y = F.pixel_shuffle(self.conv(F.pixel_unshuffle(x, factor)), factor)
        return y[:, :, :h, :w]


@idiom("x: float32[batch, 5]", batch=(1, 5))
class SqueezedThenRestored(nn.Module):
    """A batch of one is lost by `squeeze` and put back."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 3)

    def forward(self, x):
        y = self.fc(x.unsqueeze(1)).squeeze()
        if y.dim() == 1:
            y = y.unsqueeze(0)
        return y.log_softmax(dim=1)


@idiom(SEQUENCE, batch=(1, 3), time=(1, 20))
class CropOrPadToLength(nn.Module):
    """Whisper's `pad_or_trim`."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(60, 4)

    def forward(self, x, length: int = 10):
        if x.shape[1] > length:
            x = x.index_select(dim=1, index=torch.arange(length))
        if x.shape[1] < length:
            x = F.pad(x, (0, 0, 0, length - x.shape[1]))
        return self.fc(x.flatten(1))


@idiom(IMAGE, **SQUARES)
class NonSquareResized(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        h, w = x.shape[-2:]
        if h != w:
            side = min(h, w)
            x = F.interpolate(x, size=(side, side), mode="bilinear", align_corners=False)
        y = self.conv(x)
        return y + y.transpose(2, 3)


@idiom(SEQUENCE, batch=(1, 3), time=(2, 40))
class ChunkedWhenLong(nn.Module):
    """All at once up to sixteen steps, else queries in chunks to save memory."""

    def forward(self, x):
        n = x.shape[1]
        if n <= 16:
            return (x @ x.mT / math.sqrt(6)).softmax(-1) @ x
        out = []
        for chunk in torch.split(x, 16, dim=1):
            out.append((chunk @ x.mT / math.sqrt(6)).softmax(-1) @ x)
        return torch.cat(out, dim=1)


@idiom("x: float32[batch, 3, h, w]", batch=(1, 2), h=(8, 24), w=(8, 24), multiples={"h": 4, "w": 4})
class PositionsIfOtherSize(nn.Module):
    """DINO's `interpolate_pos_encoding`: the table as it is at the size of training, else resized."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 6, 4, stride=4)
        self.cls = nn.Parameter(torch.randn(1, 1, 6))
        self.pos_embed = nn.Parameter(torch.randn(1, 17, 6))

    def positions(self, x, h, w):
        npatch, n = x.shape[1] - 1, self.pos_embed.shape[1] - 1
        if npatch == n and h == w:
            return self.pos_embed
        side = int(math.sqrt(n))
        patches = self.pos_embed[:, 1:].reshape(1, side, side, 6).permute(0, 3, 1, 2)
        patches = F.interpolate(patches, size=(h // 4, w // 4), mode="bicubic", align_corners=False)
        return torch.cat((self.pos_embed[:, :1], patches.permute(0, 2, 3, 1).flatten(1, 2)), dim=1)

    def forward(self, x):
        h, w = x.shape[-2:]
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = torch.cat((self.cls.expand(x.shape[0], -1, -1), y), dim=1)
        return y + self.positions(y, h, w)


@idiom(IMAGE, **SQUARES)
class SkipOfOtherSize(nn.Module):
    """A U-Net that pads what came up only if the skip is larger."""

    def __init__(self):
        super().__init__()
        self.up, self.out = nn.ConvTranspose2d(4, 4, 2, stride=2), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        y = self.up(F.max_pool2d(x, 2))
        if y.shape != x.shape:
            dy, dx = x.size(2) - y.size(2), x.size(3) - y.size(3)
            y = F.pad(y, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.out(torch.cat([x, y], dim=1))


@idiom("x: float32[batch, time, 6]", batch=(1, 3), time=(1, 14))
class StatisticsOfOneFrame(nn.Module):
    """The spread of a single frame is none."""

    def forward(self, x):
        mean = x.mean(1)
        if x.shape[1] > 1:
            spread = x.std(1)
        else:
            spread = torch.zeros_like(mean)
        return torch.cat([mean, spread], -1)


@idiom("q: float32[batch, time, 8]", batch=(1, 3), time=(1, 18))
class LocalAttentionAutopad(nn.Module):
    """lucidrains' local attention: padded to a multiple, each window sees the one before."""

    @staticmethod
    def pad_to_multiple(tensor, multiple, dim=-1, value=0):
        length = tensor.shape[dim]
        m = length / multiple
        if m.is_integer():
            return False, tensor
        remainder = math.ceil(m) * multiple - length
        return True, F.pad(tensor, (*((0,) * (-1 - dim) * 2), 0, remainder), value=value)

    def forward(self, q):
        length = q.shape[1]
        padded, q = self.pad_to_multiple(q, 4, dim=-2)
        windows = q.shape[1] // 4
        b = q.reshape(q.shape[0], windows, 4, 8)
        before = F.pad(b, (0, 0, 0, 0, 1, 0))[:, :-1]
        position = torch.arange(q.shape[1]).view(windows, 4)
        around = torch.cat([F.pad(position, (0, 0, 1, 0), value=-1)[:-1], position], dim=1)
        score = torch.einsum("bwid,bwjd->bwij", b, torch.cat([before, b], dim=2)) * 8**-0.5
        later = position[:, :, None] < around[:, None, :]
        score = score.masked_fill(later | (around == -1)[:, None, :], -torch.finfo(score.dtype).max)
        out = (score.softmax(-1) @ torch.cat([before, b], dim=2)).flatten(1, 2)
        return out[:, :length] if padded else out


@idiom("x: float32[batch, 4, time]", batch=(1, 3), time=(1, 16))
class KernelLongerThanInput(nn.Module):
    """A pooling whose window shrinks to the input."""

    def forward(self, x):
        window = min(5, x.shape[-1])
        if window < 5:
            y = x.mean(-1, keepdim=True)
        else:
            y = F.avg_pool1d(x, window, stride=1)
        return F.interpolate(y, size=x.shape[-1], mode="nearest")
