"""Rows of different lengths: lists of tensors, splits by counts, spans, groups numbered by the data."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from case import idiom
from torch import nn
from torch.nn.utils.rnn import pad_sequence

SEQUENCE = "x: float32[batch, time, 4]"
LENGTHS = "lengths: int64[batch] = lengths(time)"
SPAN = {"batch": (1, 4), "time": (2, 10)}


def pad(input_ele, mel_max_length=None):
    max_len = mel_max_length if mel_max_length else max([input_ele[i].size(0) for i in range(len(input_ele))])
    out_list = []
    for batch in input_ele:
        out_list.append(F.pad(batch, (0, 0, 0, max_len - batch.size(0)), "constant", 0.0))
    return torch.stack(out_list)


@idiom("x: float32[batch, n, 4]", "duration: int64[batch, n] in 1..3", batch=(1, 3), n=(1, 5))
class ExpandedVectors(nn.Module):
    """FastSpeech 2's length regulator: each vector is expanded by its own count, row by row."""

    def expand(self, batch, predicted):
        out = []
        for i, vec in enumerate(batch):
            expand_size = predicted[i].item()
            out.append(vec.expand(max(int(expand_size), 0), -1))
        return torch.cat(out, 0)

    def forward(self, x, duration):
        output, mel_len = [], []
        for batch, expand_target in zip(x, duration):
            expanded = self.expand(batch, expand_target)
            output.append(expanded)
            mel_len.append(expanded.shape[0])
        return pad(output), torch.tensor(mel_len)


@idiom(SEQUENCE, LENGTHS, **SPAN)
class MeanOfEachPrefix(nn.Module):
    """Each row's mean over its own length."""

    def forward(self, x, lengths):
        return torch.stack([x[i, :n].mean(dim=0) for i, n in enumerate(lengths)])


@idiom(SEQUENCE, LENGTHS, **SPAN)
class BestOfEachPrefix(nn.Module):
    """A loop over the batch that cuts each row and takes its largest and last values."""

    def forward(self, x, lengths):
        pooled = []
        for b in range(x.size(0)):
            valid = x[b, : lengths[b]]
            pooled.append(torch.cat([valid.max(0)[0], valid[-1]]))
        return torch.stack(pooled)


@idiom("x: float32[12, 4]", "counts: int64[3] in 1..4")
class SegmentsSplit(nn.Module):
    """`split` by counts, a maximum for each part."""

    def forward(self, x, counts):
        parts = torch.split(x[: counts.sum()], counts.tolist())
        return torch.stack([part.max(dim=0).values for part in parts])


@idiom(SEQUENCE, LENGTHS, **SPAN)
class RowsWithoutPadding(nn.Module):
    """Real steps alone through a layer, by a mask, and put back."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, lengths):
        max_len = lengths.max().item()
        mask = torch.arange(max_len)[None, :] < lengths[:, None]
        x = x[:, :max_len]
        flat = self.fc(x[mask])
        out = torch.zeros_like(x)
        out[mask] = flat
        return out, mask


@idiom(
    "x: float32[batch, time, 4]",
    "start: int64[batch, 2] in 0..2",
    "width: int64[batch, 2] in 1..3",
    batch=(1, 3),
    time=(5, 9),
)
class SpansPooled(nn.Module):
    """Words out of subtokens: the mean of each span, in a loop over rows and spans."""

    def forward(self, x, start, width):
        out = torch.zeros(x.size(0), start.size(1), x.size(2))
        for i in range(x.size(0)):
            for j in range(start.size(1)):
                s, e = start[i, j].item(), (start[i, j] + width[i, j]).item()
                out[i, j] = x[i, s:e].mean(dim=0)
        return out


@idiom("x: float32[edges, 4]", "index: int64[edges] < 6", edges=(1, 14))
class ScatteredMean(nn.Module):
    """torch_scatter in plain PyTorch: `dim_size` from the largest index."""

    def forward(self, x, index):
        dim_size = int(index.max()) + 1 if index.numel() > 0 else 0
        out = torch.zeros(dim_size, x.size(1)).scatter_add_(0, index.unsqueeze(-1).expand_as(x), x)
        count = torch.zeros(dim_size).scatter_add_(0, index, torch.ones_like(index, dtype=x.dtype))
        return out / count.clamp(min=1).view(-1, 1)


@idiom("x: float32[edges, 4]", "index: int64[edges] < 6", edges=(1, 14))
class SoftmaxOfGroups(nn.Module):
    """PyG's edge softmax."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(4, 1)

    def forward(self, x, index):
        n = int(index.max()) + 1
        src = self.score(x).squeeze(-1)
        top = src.new_full((n,), float("-inf")).scatter_reduce_(0, index, src, "amax", include_self=True)
        out = (src - top[index]).exp()
        total = src.new_zeros(n).scatter_add_(0, index, out)
        return out / (total[index] + 1e-16)


@idiom("x: float32[n, 4]", "cluster: int64[n] < 5", n=(1, 12))
class PooledByCluster(nn.Module):
    """Clusters get new numbers by `unique`, and are summed."""

    def forward(self, x, cluster):
        unique, inverse = torch.unique(cluster, return_inverse=True)
        out = x.new_zeros(unique.numel(), x.size(1)).index_add_(0, inverse, x)
        return out, unique


@idiom("x: float32[n, 4]", "batch: int64[n] < 3", n=(3, 12))
class GraphsByBincount(nn.Module):
    """A graph's nodes as a part of the list; each part attends to itself."""

    def forward(self, x, batch):
        order = torch.argsort(batch, stable=True)
        x = x[order]
        sizes = torch.bincount(batch, minlength=3).tolist()
        outs = []
        for nodes in torch.split(x, sizes):
            outs.append(torch.softmax(nodes @ nodes.t(), dim=-1) @ nodes)
        return torch.cat(outs)


@idiom("text: float32[batch, seq, 4]", "image: float32[24, 4]", "here: bool[batch, seq]", batch=(1, 3), seq=(2, 8))
class ImageTokensMerged(nn.Module):
    """Placeholders of a sentence replaced by an image's tokens, in order."""

    def forward(self, text, image, here):
        count = int(here.sum())
        out = text.clone()
        out[here] = image[:count] + 1
        return out


@idiom("feature: float32[3, h, w]", "boxes: int64[n, 4] in 1..3", n=(1, 4), h=(8, 12), w=(8, 12))
class BoxesPooled(nn.Module):
    """Regions cut out of a map one by one, each pooled to the same size."""

    def forward(self, feature, boxes):
        crops = []
        for box in boxes:
            x, y, w, h = box.tolist()
            crops.append(F.adaptive_avg_pool2d(feature[:, y : y + h, x : x + w], 1).flatten())
        return torch.stack(crops)


@idiom("x: float32[n, 4]", "counts: int64[n] in 0..3", n=(2, 8))
class RowsRepeated(nn.Module):
    """Rows repeated by counts, with the number of each copy."""

    def forward(self, x, counts):
        total = int(counts.sum())
        rows = torch.repeat_interleave(x, counts, dim=0)
        first = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
        return rows, torch.arange(total) - first


@idiom("wave: float32[batch, time]", batch=(1, 3), time=(8, 40))
class ChunksInLoop(nn.Module):
    """Long recordings in chunks of eight, the last one padded, put together again."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, wave):
        outs = []
        for start in range(0, wave.size(-1), 8):
            chunk = wave[..., start : start + 8]
            if chunk.size(-1) < 8:
                chunk = F.pad(chunk, (0, 8 - chunk.size(-1)))
            outs.append(self.fc(chunk))
        return torch.cat(outs, dim=-1)[..., : wave.size(-1)]


@idiom("x: float32[batch, time, 4]", batch=(1, 3), time=(1, 12))
class TableOfSines(nn.Module):
    """Positions by a loop over `math.sin`, as the first tutorials have it."""

    def forward(self, x):
        n, d = x.size(1), x.size(2)
        pe = torch.zeros(n, d)
        for pos in range(n):
            for i in range(0, d, 2):
                pe[pos, i] = math.sin(pos / (10000 ** (i / d)))
                pe[pos, i + 1] = math.cos(pos / (10000 ** (i / d)))
        return x + pe


@idiom("x: float32[batch, time, 4]", batch=(1, 3), time=(1, 10))
class PrefixMeans(nn.Module):
    """The mean of everything so far, for each step."""

    def forward(self, x):
        return torch.stack([x[:, : t + 1].mean(dim=1) for t in range(x.size(1))], dim=1)


@idiom("ids: int64[batch, seq] < 9", "lengths: int64[batch] = lengths(seq)", batch=(1, 4), seq=(2, 9))
class SortedAndPadded(nn.Module):
    """Ragged rows of a tokenizer, embedded apart, padded together."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 4)

    def forward(self, ids, lengths):
        sentences = [self.embed(ids[i, : lengths[i]]) for i in range(ids.shape[0])]
        padded = pad_sequence(sentences, batch_first=True)
        return padded, padded.sum(dim=1) / lengths.unsqueeze(-1)


@idiom("labels: int64[n] < 5", "x: float32[n, 4]", n=(1, 10))
class CentersOfClasses(nn.Module):
    """Prototypes: the mean of each class that is there, in a loop over `unique`."""

    def forward(self, labels, x):
        prototypes = [x[labels == c].mean(0) for c in torch.unique(labels)]
        return torch.stack(prototypes)
