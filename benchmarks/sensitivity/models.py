"""Three small models with layers that are planted to lose much when quantized.

Of the channels between two layers the first is a few hundred times as large as the others, and the next layer takes it
a few hundred times as small. In float nothing is lost; in bytes, the other channels share what the large one leaves.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

OUTLIER = 300.0


class ConvNet(nn.Module):
    """Nineteen convolutions in residual pairs, and a classifier."""

    planted = ("blocks.2.first", "blocks.2.second", "blocks.6.first", "blocks.6.second")
    """Both of a pair: the first rounds what it gives, the second what it is given."""
    inputs = ("x: float32[batch, 3, 32, 32]",)
    bounds: ClassVar = {"batch": (1, 4)}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 48, 3, padding=1)
        self.blocks = nn.ModuleList([_Pair(48) for _ in range(9)])
        self.head = nn.Linear(48, 10)
        self.apply(keep_size)
        for place in (2, 6):
            plant(self.blocks[place].first, self.blocks[place].second)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


class _Pair(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.second(torch.relu(self.first(x)))) * 0.5


class Encoder(nn.Module):
    """Twelve layers of a transformer encoder, post-norm, with a classifier for each place."""

    planted = ("layers.3.linear2", "layers.8.linear2")
    inputs = ("x: float32[batch, seq, 128]",)
    bounds: ClassVar = {"batch": (1, 4), "seq": (8, 64)}

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True) for _ in range(12)]
        )
        self.head = nn.Linear(128, 50)
        for place in (3, 8):
            plant(self.layers[place].linear1, self.layers[place].linear2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Recurrent(nn.Module):
    """Two GRUs between layers that look at each step by itself."""

    planted = ("after.2", "after.8")
    inputs = ("x: float32[batch, time, 16]",)
    bounds: ClassVar = {"batch": (1, 4), "time": (8, 200)}

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.Linear(16, 64), *_steps(64, 6))
        self.first = nn.GRU(64, 192, batch_first=True)
        self.second = nn.GRU(192, 192, batch_first=True)
        self.after = nn.Sequential(nn.Linear(192, 128), *_steps(128, 9), nn.Linear(128, 6))
        self.apply(keep_size)
        plant(self.after[0], self.after[2])
        plant(self.after[6], self.after[8])

    def forward(self, x):
        x, _ = self.first(self.before(x))
        x, _ = self.second(x)
        return self.after(x)


def _steps(width: int, count: int) -> list[nn.Module]:
    return [one for _ in range(count) for one in (nn.ReLU(), nn.Linear(width, width))] + [nn.ReLU()]


def keep_size(module: nn.Module) -> None:
    """Signals neither fade nor grow from layer to layer, as in a trained model; torch's own start lets them fade."""
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")


def plant(before: nn.Module, after: nn.Module) -> None:
    """The first channel between two layers with a relu between them: large on the way, and not below zero."""
    with torch.no_grad():
        before.weight[0] *= OUTLIER
        before.bias[0] = OUTLIER
        after.weight[:, 0] /= OUTLIER


MODELS = {"convnet": ConvNet, "encoder": Encoder, "gru": Recurrent}


def build(name: str) -> nn.Module:
    torch.manual_seed(7)
    return MODELS[name]().eval()
