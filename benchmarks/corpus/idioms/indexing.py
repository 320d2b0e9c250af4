"""Boolean masks, scatter and gather, writes in place, sorting and counting."""

from __future__ import annotations

import torch
from case import idiom
from torch import nn

ROWS = "x: float32[batch, time, 4]"
SPAN = {"batch": (1, 4), "time": (2, 14)}


@idiom(ROWS, "keep: bool[batch, time] = keep", **SPAN)
class BooleanSelect(nn.Module):
    def forward(self, x, keep):
        return x[keep]


@idiom(ROWS, "keep: bool[batch, time] = keep", **SPAN)
class BooleanAssign(nn.Module):
    def forward(self, x, keep):
        y = x.clone()
        y[~keep] = 0
        return y


@idiom(ROWS, "keep: bool[batch, time] = keep", **SPAN)
class MaskedFillMean(nn.Module):
    def forward(self, x, keep):
        x = x.masked_fill(~keep.unsqueeze(-1), 0.0)
        return x.sum(1) / keep.sum(1, keepdim=True)


@idiom(ROWS, "keep: bool[batch, time] = keep", **SPAN)
class MaskedScatter(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, keep):
        wide = keep.unsqueeze(-1).expand_as(x)
        return x.masked_scatter(wide, self.fc(x[keep]))


@idiom("x: float32[batch, time]", **SPAN)
class Nonzero(nn.Module):
    def forward(self, x):
        return torch.nonzero(x > 0)


@idiom("x: float32[batch, time]", **SPAN)
class NonzeroTupleGather(nn.Module):
    def forward(self, x):
        rows, columns = torch.where(x > -10)
        return x[rows, columns] * 2, rows


@idiom("x: int64[n] < 6", n=(1, 20))
class UniqueSorted(nn.Module):
    def forward(self, x):
        return torch.unique(x)


@idiom("x: int64[n] < 6", n=(1, 20))
class UniqueWithCounts(nn.Module):
    def forward(self, x):
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
        return values, inverse, counts


@idiom("x: int64[n] < 6", n=(1, 20))
class Bincount(nn.Module):
    def forward(self, x):
        return torch.bincount(x, minlength=6)


@idiom("x: float32[batch, time, 4]", "at: int64[batch, 3] < 2", **SPAN)
class IndexPutAccumulate(nn.Module):
    def forward(self, x, at):
        rows = torch.arange(x.shape[0]).unsqueeze(1).expand_as(at)
        return x.index_put((rows, at), torch.ones(()), accumulate=True)


@idiom(ROWS, **SPAN)
class SliceAssign(nn.Module):
    def forward(self, x):
        y = x.clone()
        y[:, 1:, 0] = y[:, :-1, 0] * 2
        y[:, 0, :] += 1
        return y


@idiom(ROWS, **SPAN)
class ShiftInPlace(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        out[:, 1:] = x[:, :-1]
        out[..., -1] = 1
        return out


@idiom(ROWS, **SPAN)
class InPlaceChain(nn.Module):
    def forward(self, x):
        y = x * 1
        y.add_(1).mul_(2).clamp_(min=-1)
        y[:, :, :2].zero_()
        return y


@idiom("x: float32[batch, 6]", "index: int64[batch, 3] < 6", batch=(1, 5))
class GatherColumns(nn.Module):
    def forward(self, x, index):
        return torch.gather(x, 1, index)


@idiom("x: float32[batch, 3]", "index: int64[batch, 3] < 6", batch=(1, 5))
class ScatterAdd(nn.Module):
    def forward(self, x, index):
        return torch.zeros(x.shape[0], 6).scatter_add(1, index, x)


@idiom("x: float32[batch, 3]", "index: int64[batch, 3] < 6", batch=(1, 5))
class ScatterReduceMax(nn.Module):
    def forward(self, x, index):
        return torch.full((x.shape[0], 6), -5.0).scatter_reduce(1, index, x, "amax")


@idiom("x: float32[batch, 3]", "index: int64[batch, 3] < 6", batch=(1, 5))
class ScatterReduceMean(nn.Module):
    def forward(self, x, index):
        return torch.zeros(x.shape[0], 6).scatter_reduce(1, index, x, "mean", include_self=False)


@idiom("x: float32[n, 4]", "group: int64[n] < 3", n=(1, 12))
class IndexAdd(nn.Module):
    def forward(self, x, group):
        return torch.zeros(3, 4).index_add(0, group, x)


@idiom("nodes: float32[n, 4]", "edges: int64[2, e] < 2", n=(2, 9), e=(1, 15))
class GraphMessagePassing(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, nodes, edges):
        source, target = edges
        message = self.fc(torch.cat([nodes[source], nodes[target]], -1)).relu()
        degree = torch.zeros(nodes.shape[0]).index_add_(0, target, torch.ones(source.shape[0]))
        total = torch.zeros_like(nodes).index_add_(0, target, message)
        return nodes + total / degree.clamp(min=1).unsqueeze(-1)


@idiom("ids: int64[batch] < 5", batch=(1, 6))
class OneHot(nn.Module):
    def forward(self, ids):
        return torch.nn.functional.one_hot(ids, 5).float()


@idiom("x: float32[batch, time]", **SPAN)
class SortDescending(nn.Module):
    def forward(self, x):
        values, index = x.sort(dim=1, descending=True)
        return values, index


@idiom("x: float32[batch, time]", **SPAN)
class ArgsortStable(nn.Module):
    def forward(self, x):
        return torch.argsort(x, dim=-1, stable=True)


@idiom("x: float32[batch, time]", **SPAN)
class TopKFromShape(nn.Module):
    def forward(self, x):
        return x.topk(x.shape[1] // 2 + 1, dim=1).values


@idiom("x: float32[batch, time]", **SPAN)
class MedianOverTime(nn.Module):
    def forward(self, x):
        return x.median(1).values


@idiom("x: float32[batch, time]", **SPAN)
class QuantileOverTime(nn.Module):
    def forward(self, x):
        return torch.quantile(x, torch.tensor([0.25, 0.5, 0.9]), dim=1)


@idiom("x: float32[batch, time]", **SPAN)
class KthValue(nn.Module):
    def forward(self, x):
        return x.kthvalue(2, dim=1).values


@idiom("x: float32[batch, time]", **SPAN)
class Searchsorted(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.linspace(-2, 2, 9))

    def forward(self, x):
        return torch.searchsorted(self.edges, x.contiguous())


@idiom("x: float32[batch, time]", **SPAN)
class Bucketize(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.linspace(-2, 2, 9))
        self.embed = nn.Embedding(10, 3)

    def forward(self, x):
        return self.embed(torch.bucketize(x, self.edges, right=True))


@idiom("x: float32[batch, time]", **SPAN)
class CumulativeSums(nn.Module):
    def forward(self, x):
        return x.cumsum(1), x.flip(1).cumsum(1).flip(1)


@idiom("x: float32[batch, time]", **SPAN)
class CumulativeProduct(nn.Module):
    def forward(self, x):
        return x.cumprod(1)


@idiom("x: float32[batch, time]", **SPAN)
class CumulativeMax(nn.Module):
    def forward(self, x):
        return x.cummax(1)


@idiom("x: float32[batch, time]", **SPAN)
class LogCumulativeSumExp(nn.Module):
    def forward(self, x):
        return x.logcumsumexp(1)


@idiom("x: float32[batch, time]", **SPAN)
class FirstIndexWhere(nn.Module):
    def forward(self, x):
        return (x > 0).int().argmax(1), x.argmin(1)


@idiom("x: float32[batch, time, 4]", "lengths: int64[batch] = lengths(time)", **SPAN)
class LastByLength(nn.Module):
    def forward(self, x, lengths):
        return x[torch.arange(x.shape[0]), lengths - 1]


@idiom("x: float32[batch, time, 4]", "lengths: int64[batch] = lengths(time)", **SPAN)
class MaskFromLengths(nn.Module):
    def forward(self, x, lengths):
        keep = torch.arange(x.shape[1])[None, :] < lengths[:, None]
        return (x * keep.unsqueeze(-1)).sum(1) / lengths.unsqueeze(1)


@idiom("x: float32[batch, time, 4]", "lengths: int64[batch] = lengths(time)", **SPAN)
class MaskToLongest(nn.Module):
    """The mask is as wide as the longest row, a size that comes from a value."""

    def forward(self, x, lengths):
        longest = int(lengths.max())
        keep = torch.arange(longest)[None, :] < lengths[:, None]
        return x[:, :longest] * keep.unsqueeze(-1)


@idiom("x: float32[batch, 5]", "n: int64[batch] in 1..3", batch=(1, 4))
class RepeatInterleaveByCounts(nn.Module):
    """The length regulator of text-to-speech."""

    def forward(self, x, n):
        return torch.repeat_interleave(x, n, dim=0)


@idiom("boxes: float32[n, 2]", "scores: float32[n] in 0..1", n=(1, 10))
class GreedyNms(nn.Module):
    """Non-maximum suppression written out, as there is no torchvision."""

    def forward(self, boxes, scores):
        low, high = boxes.min(1).values, boxes.max(1).values
        order = scores.argsort(descending=True)
        low, high = low[order], high[order]
        overlap = (torch.minimum(high[:, None], high) - torch.maximum(low[:, None], low)).clamp(min=0)
        iou = overlap / (high - low + (high - low)[:, None] - overlap + 1e-6)
        keep = torch.ones(boxes.shape[0], dtype=torch.bool)
        for i in range(boxes.shape[0]):
            later = torch.arange(boxes.shape[0]) > i
            keep = keep & ~(later & (iou[i] > 0.5) & keep[i])
        return order[keep]


@idiom("logp: float32[beams, 7]", "score: float32[beams]", beams=(1, 6))
class BeamStep(nn.Module):
    def forward(self, logp, score):
        total = (score.unsqueeze(1) + logp.log_softmax(-1)).flatten()
        best, index = total.topk(logp.shape[0])
        return best, torch.div(index, 7, rounding_mode="floor"), index % 7


@idiom("logits: float32[batch, time, 6]", **SPAN)
class CtcGreedy(nn.Module):
    def forward(self, logits):
        best = logits.argmax(-1)
        changed = torch.cat([torch.ones_like(best[:, :1], dtype=torch.bool), best[:, 1:] != best[:, :-1]], 1)
        keep = changed & (best != 0)
        return torch.where(keep, best, torch.zeros_like(best)), keep.sum(1)


@idiom("x: float32[batch, time]", **SPAN)
class TakeAlongFlatten(nn.Module):
    def forward(self, x):
        return torch.take_along_dim(x, x.argsort(1), 1), x.diff(dim=1)


@idiom("a: float32[n, 3]", "b: float32[m, 3]", n=(1, 8), m=(1, 8))
class PairwiseDistance(nn.Module):
    def forward(self, a, b):
        return torch.cdist(a, b), torch.cdist(a, b).argmin(1)


@idiom("x: float32[batch, time]", **SPAN)
class TriangularMasks(nn.Module):
    def forward(self, x):
        square = x.unsqueeze(2) * x.unsqueeze(1)
        return torch.tril(square), torch.triu(square, 1), torch.diagonal(square, dim1=1, dim2=2)
