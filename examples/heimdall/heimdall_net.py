"""HeimdallNet and HeimdallNetPro: several receivers' recordings in, the transmitter's position out.

This is the model as its team runs it, Python loops and `.item()` included. Nothing here was changed for
the sake of an exporter; see `patched.py` for the one method that can be swapped.
"""

import torch
import torch.nn.functional as F
from torch import nn


class SqueezeExcite(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.reduce = nn.Conv1d(channels, squeezed, 1)
        self.expand = nn.Conv1d(squeezed, channels, 1)

    def forward(self, x):
        scale = F.adaptive_avg_pool1d(x, 1)
        scale = torch.sigmoid(self.expand(F.silu(self.reduce(scale))))
        return x * scale


class MBConv1d(nn.Module):
    """Expand, depthwise convolution, squeeze-and-excite, project; residual where the shapes allow it."""

    def __init__(self, in_channels, out_channels, expand, stride):
        super().__init__()
        hidden = in_channels * expand
        layers = []
        if expand != 1:
            layers += [nn.Conv1d(in_channels, hidden, 1, bias=False), nn.BatchNorm1d(hidden), nn.SiLU()]
        layers += [
            nn.Conv1d(hidden, hidden, 3, stride=stride, padding=1, groups=hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.SiLU(),
            SqueezeExcite(hidden, max(1, in_channels // 4)),
            nn.Conv1d(hidden, out_channels, 1, bias=False),
            nn.BatchNorm1d(out_channels),
        ]
        self.block = nn.Sequential(*layers)
        self.residual = stride == 1 and in_channels == out_channels

    def forward(self, x):
        if self.residual:
            return x + self.block(x)
        return self.block(x)


class IQEncoder(nn.Module):
    """A one-dimensional EfficientNet over raw IQ samples: `[rows, 2, length]` to `[rows, 256]`."""

    # in, out, expand, stride
    BLOCKS = (
        (32, 16, 1, 1),
        (16, 24, 6, 2),
        (24, 24, 6, 1),
        (24, 40, 6, 2),
        (40, 40, 6, 1),
        (40, 80, 6, 2),
        (80, 80, 6, 1),
        (80, 80, 6, 1),
        (80, 112, 6, 1),
        (112, 112, 6, 1),
    )

    def __init__(self, out_dim=256):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(2, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm1d(32), nn.SiLU())
        self.blocks = nn.Sequential(*[MBConv1d(*block) for block in self.BLOCKS])
        self.head = nn.Sequential(nn.Conv1d(112, 192, 1, bias=False), nn.BatchNorm1d(192), nn.SiLU())
        self.project = nn.Linear(192, out_dim)

    def forward(self, iq):
        x = self.head(self.blocks(self.stem(iq)))
        x = F.adaptive_avg_pool1d(x, 1).squeeze(-1)
        return self.project(x)


class GeometryEncoder(nn.Module):
    """Encodes the receivers' places alone: each place, and each pair's distance, bearing and height."""

    def __init__(self, out_dim=256):
        super().__init__()
        self.place = nn.Sequential(nn.Linear(3, 32), nn.ReLU())
        self.pair = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU())
        self.combine = nn.Sequential(nn.Linear(160, out_dim), nn.ReLU())

    def forward(self, positions, mask):
        difference = positions.unsqueeze(2) - positions.unsqueeze(1)
        east, north, up = difference.unbind(-1)
        distance = torch.sqrt(east**2 + north**2)
        cos_bearing = north / (distance + 1e-6)
        sin_bearing = east / (distance + 1e-6)
        pairs = self.pair(torch.stack([distance, cos_bearing, sin_bearing, up], dim=-1))

        pair_mask = (mask.unsqueeze(2) & mask.unsqueeze(1)).unsqueeze(-1).float()
        pairs = (pairs * pair_mask).sum(dim=(1, 2)) / pair_mask.sum(dim=(1, 2)).clamp(min=1)
        place_mask = mask.unsqueeze(-1).float()
        places = (self.place(positions) * place_mask).sum(dim=1) / place_mask.sum(dim=1).clamp(min=1)
        return self.combine(torch.cat([places, pairs], dim=-1))


class SetAggregator(nn.Module):
    """Any number of receivers into one vector: maximum, mean, and a mean weighted by learned quality."""

    def __init__(self, dim=256):
        super().__init__()
        self.quality = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, 1))
        self.combine = nn.Sequential(nn.Linear(dim * 3, dim), nn.LayerNorm(dim), nn.ReLU())

    def forward(self, x, mask):
        keep = mask.unsqueeze(-1)
        largest = x.masked_fill(~keep, -1e9).max(dim=1)[0]
        mean = (x * keep.float()).sum(dim=1) / keep.float().sum(dim=1).clamp(min=1)
        quality = torch.softmax(self.quality(x).masked_fill(~keep, -1e9), dim=1)
        weighted = (x * quality).sum(dim=1)
        return self.combine(torch.cat([largest, mean, weighted], dim=-1))


def empty(tensor):
    return tensor.numel() == 0


class PerformerAttention(nn.Module):
    """Attention linear in the number of receivers, through random features with a ReLU kernel."""

    def __init__(self, dim=256, heads=8, random_features=64):
        super().__init__()
        self.heads = heads
        self.head_dim = dim // heads
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(dim, dim, bias=False)
        self.to_v = nn.Linear(dim, dim, bias=False)
        self.to_out = nn.Linear(dim, dim)
        self.register_buffer("projection", torch.randn(random_features, self.head_dim))

    def _split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, self.head_dim).transpose(1, 2)

    def _kernel(self, x):
        return F.relu(x * self.head_dim**-0.25 @ self.projection.t()) + 1e-3

    def forward(self, x, mask):
        q, k, v = self._split(self.to_q(x)), self._split(self.to_k(x)), self._split(self.to_v(x))
        out = v
        if not empty(q):
            q, k = self._kernel(q), self._kernel(k)
            k = k * mask[:, None, :, None].float()
            context = k.transpose(-2, -1) @ v
            scale = (q * k.sum(dim=-2, keepdim=True)).sum(dim=-1, keepdim=True)
            out = q @ context / scale
        out = out.transpose(1, 2).reshape(x.shape)
        return self.to_out(out)


class PerformerAggregator(nn.Module):
    def __init__(self, dim=256):
        super().__init__()
        self.norm_in = nn.LayerNorm(dim)
        self.attention = PerformerAttention(dim)
        self.norm_out = nn.LayerNorm(dim)

    def forward(self, x, mask):
        x = self.norm_out(x + self.attention(self.norm_in(x), mask))
        hidden = x.clone()
        hidden[~mask.unsqueeze(-1).expand_as(hidden)] = -1e9
        largest = hidden.max(dim=1)[0]
        keep = mask.unsqueeze(-1).float()
        mean = (x * keep).sum(dim=1) / keep.sum(dim=1).clamp(min=1)
        return (largest + mean) / 2


class HeimdallNet(nn.Module):
    """Up to ten receivers, each with its own calibration net; `mask` is True where one took part."""

    def __init__(self, max_receivers=10, dim=256):
        super().__init__()
        self.iq_encoder = IQEncoder(dim)
        self.feature_encoder = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU())
        self.receiver_embedding = nn.Embedding(max_receivers, 64)
        self.fuse = nn.Sequential(nn.Linear(dim + 128 + 64, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.calibration = nn.ModuleList(
            [nn.Sequential(nn.Linear(dim, dim), nn.LayerNorm(dim), nn.GELU()) for _ in range(max_receivers)]
        )
        self.aggregator = self._make_aggregator(dim)
        self.geometry = GeometryEncoder(dim)
        self.fusion = nn.Sequential(nn.Linear(dim * 2, dim), nn.ReLU())
        self.position_head = nn.Linear(dim, 2)
        self.uncertainty_head = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, 2), nn.Softplus())

    def _make_aggregator(self, dim):
        return SetAggregator(dim)

    def _calibrate(self, x, receiver_ids):
        batch_size, num_receivers = receiver_ids.shape
        calibrated = []
        for n in range(num_receivers):
            samples = []
            for b in range(batch_size):
                receiver_id = receiver_ids[b, n].item()
                samples.append(self.calibration[receiver_id](x[b, n]))
            calibrated.append(torch.stack(samples))
        return torch.stack(calibrated, dim=1)

    def forward(self, iq_data, features, positions, receiver_ids, mask):
        batch_size, num_receivers, channels, length = iq_data.shape
        iq = self.iq_encoder(iq_data.view(batch_size * num_receivers, channels, length))
        iq = iq.view(batch_size, num_receivers, -1)
        x = torch.cat([iq, self.feature_encoder(features), self.receiver_embedding(receiver_ids)], dim=-1)
        x = self._calibrate(self.fuse(x), receiver_ids)

        x = torch.cat([self.aggregator(x, mask), self.geometry(positions, mask)], dim=-1)
        x = self.fusion(x)
        return {"positions": self.position_head(x), "uncertainties": self.uncertainty_head(x)}


class HeimdallNetPro(HeimdallNet):
    """HeimdallNet whose receivers attend to each other before they are put together."""

    def _make_aggregator(self, dim):
        return PerformerAggregator(dim)
