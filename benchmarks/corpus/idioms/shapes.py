"""Resizing, pooling, padding, folding: sizes that are computed from sizes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import idiom
from torch import nn

IMAGE = "x: float32[batch, 3, h, w]"
SPAN = {"batch": (1, 3), "h": (8, 20), "w": (8, 20)}


@idiom(IMAGE, **SPAN)
class InterpolateScale(nn.Module):
    def forward(self, x):
        return F.interpolate(x, scale_factor=2, mode="nearest")


@idiom(IMAGE, **SPAN)
class InterpolateBilinearScale(nn.Module):
    def forward(self, x):
        return F.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=False)


@idiom(IMAGE, **SPAN)
class InterpolateToOther(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 3, 3, stride=2, padding=1)

    def forward(self, x):
        return x + F.interpolate(self.down(x), size=x.shape[-2:], mode="bilinear", align_corners=True)


@idiom(IMAGE, **SPAN)
class InterpolateHalfSize(nn.Module):
    def forward(self, x):
        return F.interpolate(x, size=(x.shape[2] // 2, x.shape[3] // 2), mode="bicubic", align_corners=False)


@idiom(IMAGE, **SPAN)
class InterpolateAntialias(nn.Module):
    def forward(self, x):
        return F.interpolate(x, size=(7, 5), mode="bilinear", antialias=True)


@idiom(IMAGE, **SPAN)
class InterpolateArea(nn.Module):
    def forward(self, x):
        return F.interpolate(x, size=(4, 4), mode="area")


@idiom(IMAGE, **SPAN)
class InterpolateNearestExact(nn.Module):
    def forward(self, x):
        return F.interpolate(x, size=(11, 13), mode="nearest-exact")


@idiom("x: float32[batch, 4, time]", batch=(1, 3), time=(2, 20))
class InterpolateLinear(nn.Module):
    def forward(self, x):
        return F.interpolate(x, size=x.shape[-1] * 2 - 1, mode="linear", align_corners=True)


@idiom(IMAGE, **SPAN)
class PositionGridResized(nn.Module):
    """Learnt positions resized to the image at hand, as vision transformers do."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 6, 4, stride=4)
        self.position = nn.Parameter(torch.randn(1, 6, 5, 5))

    def forward(self, x):
        y = self.patch(x)
        grid = F.interpolate(self.position, size=y.shape[-2:], mode="bicubic", align_corners=False)
        return (y + grid).flatten(2).transpose(1, 2)


@idiom(IMAGE, **SPAN)
class AdaptiveAverageToOne(nn.Module):
    def forward(self, x):
        return F.adaptive_avg_pool2d(x, 1).flatten(1)


@idiom(IMAGE, **SPAN)
class AdaptiveAverageToFixed(nn.Module):
    def forward(self, x):
        return F.adaptive_avg_pool2d(x, (3, 2))


@idiom(IMAGE, **SPAN)
class AdaptiveToShapeDerived(nn.Module):
    def forward(self, x):
        return F.adaptive_avg_pool2d(x, (x.shape[2] // 2, x.shape[3] // 2))


@idiom("x: float32[batch, 4, time]", batch=(1, 3), time=(5, 20))
class AdaptiveMax1d(nn.Module):
    def forward(self, x):
        return F.adaptive_max_pool1d(x, 3)


@idiom(IMAGE, **SPAN)
class PoolsWithCeil(nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, 3, 2, ceil_mode=True), F.avg_pool2d(x, 3, 2, padding=1, count_include_pad=False)


@idiom(IMAGE, **SPAN)
class MaxPoolIndices(nn.Module):
    def forward(self, x):
        y, index = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(y, index, 2, output_size=x.shape[-2:])


@idiom(IMAGE, **SPAN)
class PadReflect(nn.Module):
    def forward(self, x):
        return F.pad(x, (1, 2, 3, 0), mode="reflect")


@idiom(IMAGE, **SPAN)
class PadReplicateCircular(nn.Module):
    def forward(self, x):
        return F.pad(F.pad(x, (1, 1, 2, 2), mode="replicate"), (2, 1, 1, 2), mode="circular")


@idiom(IMAGE, **SPAN)
class PadNegative(nn.Module):
    def forward(self, x):
        return F.pad(x, (-1, 2, -2, -1), value=3.0)


@idiom(IMAGE, **SPAN)
class PadToSquare(nn.Module):
    def forward(self, x):
        side = max(x.shape[2], x.shape[3])
        return F.pad(x, (0, side - x.shape[3], 0, side - x.shape[2]))


@idiom(IMAGE, **SPAN)
class CropToMultiple(nn.Module):
    def forward(self, x):
        h, w = x.shape[2] // 4 * 4, x.shape[3] // 4 * 4
        return x[:, :, :h, :w].reshape(x.shape[0], 3, h // 4, 4, w // 4, 4).mean((3, 5))


@idiom(IMAGE, **SPAN)
class UnfoldFold(nn.Module):
    def forward(self, x):
        patches = F.unfold(x, 3, padding=1)
        return F.fold(patches * 0.5, x.shape[-2:], 3, padding=1)


@idiom("x: float32[batch, time, 4]", batch=(1, 3), time=(5, 20))
class TensorUnfold(nn.Module):
    def forward(self, x):
        return x.unfold(1, 5, 2).mean(-1)


@idiom("x: float32[batch, 8, h, w]", batch=(1, 3), h=(2, 9), w=(2, 9))
class PixelShuffle(nn.Module):
    def forward(self, x):
        return F.pixel_shuffle(x, 2)


@idiom("x: float32[batch, 3, h, w]", batch=(1, 3), h=(4, 12), w=(4, 12), multiples={"h": 2, "w": 2})
class PixelUnshuffle(nn.Module):
    def forward(self, x):
        return F.pixel_unshuffle(x, 2)


@idiom("x: float32[batch, h, w, 4]", batch=(1, 3), h=(4, 12), w=(4, 12), multiples={"h": 4, "w": 4})
class SwinWindows(nn.Module):
    def forward(self, x):
        b, h, w, c = x.shape
        y = torch.roll(x, (-2, -2), (1, 2)).view(b, h // 4, 4, w // 4, 4, c)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        y = y - y.mean(1, keepdim=True)
        y = y.view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return torch.roll(y, (2, 2), (1, 2))


@idiom(IMAGE, **SPAN)
class TransposedConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        return self.up(x)


@idiom(IMAGE, **SPAN)
class TransposedConvToSize(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1)

    def forward(self, x):
        return self.up(self.down(x), output_size=x.shape)


@idiom("x: float32[batch, 4, time]", batch=(1, 3), time=(1, 20))
class CausalConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, dilation=2, groups=2)

    def forward(self, x):
        return self.conv(F.pad(x, (4, 0)))


@idiom("x: float32[batch, 4, time]", batch=(1, 3), time=(1, 20))
class ConvSamePadding(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 5, 4, padding="same", padding_mode="zeros")

    def forward(self, x):
        return self.conv(x)


@idiom(IMAGE, **SPAN)
class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 6, 3, padding=1, stride=2)
        self.mid = nn.Conv2d(6, 6, 3, padding=1)
        self.up = nn.Conv2d(9, 3, 3, padding=1)

    def forward(self, x):
        y = self.mid(torch.relu(self.down(x)))
        y = F.interpolate(y, scale_factor=2.0)
        y = y[..., : x.shape[2], : x.shape[3]]
        return self.up(torch.cat([x, y], 1))


@idiom(IMAGE, **SPAN)
class MeshgridCoordinates(nn.Module):
    def forward(self, x):
        ys, xs = torch.meshgrid(torch.linspace(-1, 1, x.shape[2]), torch.linspace(-1, 1, x.shape[3]), indexing="ij")
        return torch.cat([x, torch.stack([xs, ys]).expand(x.shape[0], -1, -1, -1)], 1)


@idiom(IMAGE, **SPAN)
class GridSample(nn.Module):
    def forward(self, x):
        theta = torch.tensor([[0.8, 0.1, 0.0], [-0.2, 0.9, 0.1]]).expand(x.shape[0], 2, 3)
        grid = F.affine_grid(theta, x.shape, align_corners=False)
        return F.grid_sample(x, grid, align_corners=False, padding_mode="border")


@idiom(IMAGE, "grid: float32[batch, 5, 6, 2] in -1..1", **SPAN)
class GridSampleNearest(nn.Module):
    def forward(self, x, grid):
        return F.grid_sample(x, grid, mode="nearest", align_corners=True)


@idiom("x: float32[batch, time, 6]", batch=(1, 4), time=(1, 12))
class ViewsAndStrides(nn.Module):
    def forward(self, x):
        y = x.view(x.shape[0], -1, 2, 3).permute(0, 2, 1, 3).contiguous()
        return y.flatten(2), x.movedim(1, 0).reshape(-1, 6), x.reshape(-1)[::2]


@idiom("x: float32[batch, time, 6]", batch=(1, 4), time=(1, 12))
class RollByHalf(nn.Module):
    def forward(self, x):
        return torch.roll(x, x.shape[1] // 2, 1)


@idiom("a: float32[n, 3]", "b: float32[m, 4]", n=(1, 6), m=(1, 6))
class ConcatOfSizes(nn.Module):
    def forward(self, a, b):
        a = a.unsqueeze(1).expand(-1, b.shape[0], -1)
        b = b.unsqueeze(0).expand(a.shape[0], -1, -1)
        return torch.cat([a, b], -1).reshape(-1, 7)


@idiom("x: float32[batch, time, 6]", batch=(1, 4), time=(2, 12))
class ChunkUneven(nn.Module):
    def forward(self, x):
        first, second = x.tensor_split(2, dim=1)
        return first.sum(1) - second.sum(1)


@idiom("x: float32[batch, time, 6]", batch=(1, 4), time=(0, 12))
class MayBeEmpty(nn.Module):
    def forward(self, x):
        return x.sum(1), (x > 0).any(1), torch.cat([x, x.new_ones(x.shape[0], 1, 6)], 1)


@idiom("x: float32[batch, time, 6]", batch=(1, 4), time=(1, 12))
class NumelAndLen(nn.Module):
    def forward(self, x):
        return x.sum() / x.numel() + len(x), x.new_full((x.size(1),), x.dim())
