"""Values that become sizes: lengths, counts, boxes, cluster numbers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import idiom
from torch import nn
from torch.nn.utils.rnn import pad_sequence

SEQUENCE = "x: float32[batch, time, 4]"
LENGTHS = "lengths: int64[batch] = lengths(time)"
SPAN = {"batch": (1, 4), "time": (2, 10)}


def sequence_mask(lengths, max_length=None):
    if max_length is None:
        max_length = lengths.max()
    x = torch.arange(max_length, dtype=lengths.dtype, device=lengths.device)
    return x.unsqueeze(0) < lengths.unsqueeze(1)


@idiom("tokens: int64[batch, n] < 9", "lengths: int64[batch] = lengths(n)", batch=(1, 3), n=(2, 8))
class DurationsToPath(nn.Module):
    """VITS: durations from the text, the frames' mask from their sums, the path by cumulative sums."""

    def __init__(self):
        super().__init__()
        self.embed, self.duration = nn.Embedding(9, 4), nn.Linear(4, 1)

    def forward(self, tokens, lengths):
        x = self.embed(tokens)
        x_mask = sequence_mask(lengths, tokens.size(1)).float()
        w = torch.ceil(torch.exp(self.duration(x).squeeze(-1)) * x_mask)
        y_lengths = torch.clamp_min(torch.sum(w, 1), 1).long()
        y_mask = sequence_mask(y_lengths, None).to(x_mask.dtype)
        until = torch.cumsum(w, -1).unsqueeze(-1)
        frame = torch.arange(y_mask.shape[1], dtype=w.dtype)
        path = (frame < until).to(w.dtype)
        path = path - F.pad(path, (0, 0, 1, 0))[:, :-1]
        path = path * x_mask.unsqueeze(-1) * y_mask.unsqueeze(1)
        return torch.matmul(path.transpose(1, 2), x), y_lengths


@idiom("x: float32[batch, n, 4]", "durations: int64[batch, n] in 1..3", batch=(1, 3), n=(1, 6))
class LengthRegulator(nn.Module):
    """FastSpeech: each row repeated by its own counts, then padded to the longest."""

    def forward(self, x, durations):
        rows = [torch.repeat_interleave(row, d, dim=0) for row, d in zip(x, durations)]
        return pad_sequence(rows, batch_first=True), durations.sum(-1)


@idiom(SEQUENCE, LENGTHS, **SPAN)
class RaggedAndBack(nn.Module):
    """Only real steps go through the layer; split by their lengths and padded again."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x, lengths):
        flat = torch.cat([row[:n] for row, n in zip(x, lengths.tolist())])
        return pad_sequence(torch.split(self.fc(flat), lengths.tolist()), batch_first=True, padding_value=-1.0)


@idiom("x: int64[n] < 6", "y: float32[n]", n=(1, 12))
class OneHotOfWhatIsThere(nn.Module):
    """As many classes as the largest label has it."""

    def forward(self, x, y):
        hot = F.one_hot(x).float()
        return hot.t() @ hot, (hot * y.unsqueeze(1)).sum(0) / hot.sum(0).clamp(min=1)


@idiom("x: float32[nodes, 4]", "batch: int64[nodes] < 4", nodes=(1, 12))
class GraphsPooled(nn.Module):
    """torch_geometric's pooling: as many graphs as the largest number says."""

    def forward(self, x, batch):
        size = int(batch.max().item() + 1)
        total = x.new_zeros(size, x.size(1)).index_add_(0, batch, x)
        count = x.new_zeros(size).scatter_add_(0, batch, torch.ones_like(batch, dtype=x.dtype))
        best = x.new_full((size, 4), float("-inf")).scatter_reduce(0, batch[:, None].expand_as(x), x, "amax")
        return total / count.clamp(min=1).unsqueeze(-1), torch.where(best.isinf(), torch.zeros_like(best), best)


@idiom("nodes.x: float32[n, 4]", "nodes.batch: int64[n] < 3", n=(1, 10))
class DenseBatch(nn.Module):
    """`to_dense_batch`: sorted by graph, counted, and put into the largest graph's width."""

    def forward(self, nodes):
        order = nodes["batch"].argsort(stable=True)
        x, batch = nodes["x"][order], nodes["batch"][order]
        count = torch.bincount(batch, minlength=3)
        start = torch.cat([count.new_zeros(1), count.cumsum(0)[:-1]])
        widest = int(count.max())
        index = torch.arange(batch.numel()) - start[batch] + batch * widest
        out = x.new_zeros(3 * widest, 4)
        out[index] = x
        mask = torch.zeros(3 * widest, dtype=torch.bool)
        mask[index] = True
        return out.view(3, widest, 4), mask.view(3, widest)


@idiom("heat: float32[batch, h, w]", batch=(1, 3), h=(3, 8), w=(3, 8))
class PeaksFound(nn.Module):
    """CenterNet without a number of peaks: local maxima over a threshold, read out with `nonzero`."""

    def forward(self, heat):
        peak = F.max_pool2d(heat.unsqueeze(1), 3, stride=1, padding=1).squeeze(1) == heat
        where = (peak & (heat > 0.3)).nonzero()
        return where, heat[where[:, 0], where[:, 1], where[:, 2]], torch.bincount(where[:, 0], minlength=heat.shape[0])


@idiom("logits: float32[time, 5]", time=(1, 16))
class CtcCollapsed(nn.Module):
    """torchaudio's tutorial decoder: repeats merged, blanks left out."""

    def forward(self, logits):
        indices = torch.argmax(logits, dim=-1)
        indices = torch.unique_consecutive(indices, dim=-1)
        return indices[indices != 0]


@idiom("image: float32[3, h, w]", "box: int64[4] in 1..4", h=(8, 14), w=(8, 14))
class CroppedByBox(nn.Module):
    """The box says where to cut; the crop is made a fixed size."""

    def forward(self, image, box):
        x, y, w, h = (int(v) for v in box)
        crop = image[:, y : y + h, x : x + w]
        return F.interpolate(crop.unsqueeze(0), size=(5, 5), mode="bilinear", align_corners=False).squeeze(0)


@idiom(SEQUENCE, "keep: bool[batch, time] = keep-right-padded", **SPAN)
class ShareOfTokensKept(nn.Module):
    """Half of the longest row's real tokens are kept by their scores."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(4, 1)

    def forward(self, x, keep):
        scores = self.score(x).squeeze(-1).masked_fill(~keep, -1e4)
        k = max(1, int(keep.sum(1).max().item() * 0.5))
        values, index = scores.topk(k, dim=1)
        return x.gather(1, index.unsqueeze(-1).expand(-1, -1, 4)) * values.sigmoid().unsqueeze(-1)


@idiom("x: float32[total, 4]", "counts: int64[3] in 1..4", total=(12, 16))
class AttentionPerSegment(nn.Module):
    """Several sequences end to end, each attending to itself, as flash attention's `varlen` does."""

    def forward(self, x, counts):
        cu = F.pad(counts.cumsum(0), (1, 0)).tolist()
        out = torch.zeros_like(x)
        for start, end in zip(cu[:-1], cu[1:]):
            part = x[start:end]
            out[start:end] = (part @ part.t() * 0.5).softmax(-1) @ part
        return out


@idiom("x: float32[n, 4]", "steps: int64[n] in 0..5", n=(1, 8))
class RolledOutLongest(nn.Module):
    """A table up to the largest step; each row reads its own."""

    def forward(self, x, steps):
        longest = steps.max().item()
        table = torch.linspace(0, 1, longest + 1)
        decay = 0.9 ** torch.arange(longest + 1)
        return x * table[steps].unsqueeze(1) + decay[steps, None], table
