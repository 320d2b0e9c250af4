"""A plain UNet: two convolutions per level, max pooling down, transposed convolutions up, skip connections."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn


class DoubleConv(nn.Sequential):
    """Two 3×3 convolutions, each with a group norm and SiLU."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__(
            nn.Conv2d(channels_in, channels_out, 3, padding=1),
            nn.GroupNorm(8, channels_out),
            nn.SiLU(),
            nn.Conv2d(channels_out, channels_out, 3, padding=1),
            nn.GroupNorm(8, channels_out),
            nn.SiLU(),
        )


class Up(nn.Module):
    """Doubles the size, joins the skip connection, then convolves."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(channels_in, channels_out, 2, stride=2)
        self.conv = DoubleConv(2 * channels_out, channels_out)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        return self.conv(torch.cat([skip, self.up(x)], dim=1))


class UNet(nn.Module):
    """Four times down and up again. A width of 112 channels at the top makes 95 million parameters."""

    def __init__(self, width: int = 112, classes: int = 4) -> None:
        super().__init__()
        channels = [width * 2**level for level in range(5)]
        self.first = DoubleConv(3, channels[0])
        self.pool = nn.MaxPool2d(2)
        self.downs = nn.ModuleList(DoubleConv(a, b) for a, b in pairwise(channels))
        self.ups = nn.ModuleList(Up(b, a) for a, b in reversed([*pairwise(channels)]))
        self.last = nn.Conv2d(channels[0], classes, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.first(image)
        skips = []
        for down in self.downs:
            skips.append(x)
            x = down(self.pool(x))
        for up in self.ups:
            x = up(x, skips.pop())
        return self.last(x)
