"""Networks of equal blocks, small enough to export in a second or two."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_model
from torch import nn

from fairway.model.checkpoint import load_checkpoint
from fairway.model.meta_build import build_without_parameters

WIDTH = 64
SPEC = ["x: float32[batch, time, 64]"]
BOUNDS = {"batch": (1, 4), "time": (1, 9)}


class Block(nn.Module):
    def __init__(self, index: int, width: int = WIDTH) -> None:
        super().__init__()
        self.index = index
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.fc(self.norm(x)))


class Tower(nn.Module):
    """Equal blocks between a first and a last layer, of which the last is the first one turned over."""

    def __init__(self, blocks: int = 8) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH, bias=False)
        self.blocks = nn.ModuleList(Block(i) for i in range(blocks))
        self.last = nn.Linear(WIDTH, WIDTH, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class Collecting(Tower):
    """Every block's answer goes into the sum, so that blocks hand on more than to the next."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x)
        for block in self.blocks:
            x = block(x)
            total = total + x
        return total


class Stubborn(Block):
    """Computes otherwise where its number is five, which nothing about it tells."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.flip(-1) if self.index == 5 else x)


class OneStubborn(Tower):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Stubborn(i) for i in range(8))


class ByIndex(Tower):
    """One of the equal blocks is called in another way, as a tower does with full attention in every eighth layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, block in enumerate(self.blocks):
            x = block(x.flip(-1) if i == 5 else x)
        return x


class Scaled(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.fc(x)) * torch.sigmoid(scale).unsqueeze(-1)


class AllScaled(nn.Module):
    """Each block computes the same of what all are handed; in the graph the first does it for all."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Scaled(i) for i in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.mean(-1)
        for block in self.blocks:
            x = block(x, scale)
        return x


class Biased(Scaled):
    """Makes a bias where it is handed none, as T5's blocks do."""

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        made = torch.sigmoid(x) if bias is None else bias
        return x + torch.tanh(self.fc(x)) * made, made


class FirstBiased(AllScaled):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Biased(i) for i in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = None
        for block in self.blocks:
            x, bias = block(x, bias)
        return x


class Measured(Scaled):
    def forward(self, x: torch.Tensor, made: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        measured = torch.sigmoid(x)
        return x * measured + torch.tanh(self.fc(x)) * made, measured


class OfTheFirst(AllScaled):
    """Every block measures, and all the later ones are handed what the first one measured."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Measured(i) for i in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.cos(x)
        for i, block in enumerate(self.blocks):
            x, measured = block(x, made)
            made = measured if i == 0 else made
        return x


class Delayed(Scaled):
    """Takes what the block before measured, and the first its own."""

    def forward(self, x: torch.Tensor, before: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        measured = torch.sigmoid(x)
        return x * measured + torch.tanh(self.fc(x)) * (measured if before is None else before), measured


class AllDelayed(FirstBiased):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Delayed(i) for i in range(8))


class Placed(Scaled):
    """Adds to what the first block gets, which nothing about the calls tells."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + torch.cos(x) if self.index == 0 else x
        return x + torch.tanh(self.fc(x))


class FirstPlaced(Tower):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Placed(i) for i in range(8))


class Gated(Scaled):
    """Another class with weights of the same names."""

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.fc(x)) * scale.unsqueeze(-1)


class FollowedByOthers(AllScaled):
    """Other blocks stand behind the run, and what each is handed is chosen by its place."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList((*(Scaled(i) for i in range(8)), *(Gated(i) for i in range(8, 10))))
        self.kinds = "wwwwwwwwwm"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kinds = {"w": x.mean(-1), "m": x.amax(-1)}
        for i, block in enumerate(self.blocks):
            x = block(x, kinds[self.kinds[i]])
        return x


class Neutral(nn.Module):
    """Zeros and ones wherever a rule might look for them, as layers begin; trained ones have others."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.fc = nn.Linear(WIDTH, WIDTH)
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.back = nn.ConvTranspose1d(WIDTH, WIDTH, 1)
        self.norm = nn.GroupNorm(4, WIDTH)
        self.scale, self.gain = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.ones(()))
        self.shift, self.add = nn.Parameter(torch.zeros(WIDTH)), nn.Parameter(torch.zeros(()))
        for layer in (self.fc, self.conv, self.back):
            nn.init.zeros_(layer.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.back(self.norm(self.conv(x.mT))).mT
        rows = (rows * self.scale + self.shift) / self.gain - self.add
        return x + torch.tanh(self.fc(torch.where(self.gain > 0, rows, x)))


class NeutralFirst(Tower):
    """All blocks but the first three have been trained."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Neutral(i) for i in range(8))
        with torch.no_grad():
            for weight in self.blocks[3:].parameters():
                weight.add_(0.3 * torch.randn(weight.shape))


class Routed(nn.Module):
    """Sends each row to one of two layers; how many go to which is known by value only."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, WIDTH)
        chosen = (rows[:, 0] > 0).long()
        order = chosen.argsort(stable=True)
        parts = rows[order].split(nn.functional.one_hot(chosen, 2).sum(0).tolist())
        mixed = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        return x + torch.tanh(mixed[order.argsort()]).reshape(x.shape)


class AllRouted(Tower):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Routed(i) for i in range(8))


class InRounds(Tower):
    """The blocks are gone through twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in (*self.blocks, *self.blocks):
            x = block(x)
        return x


def seeded(kind: type[nn.Module] = Tower, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(5)
    return kind().to(dtype).eval()


def mapped(folder: Path, kind: type[nn.Module] = Tower, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The seeded network with its weights in a checkpoint in the folder."""
    path = folder / "net.safetensors"
    save_model(seeded(kind, dtype), str(path))
    with build_without_parameters():
        model = kind().to(dtype).eval()
    load_checkpoint(model, path, False)
    return model
