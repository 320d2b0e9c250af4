"""A model that uses the plug-in's layer. Nothing here says how to translate it."""

import torch
from fairway_softclip import SoftClip
from torch import nn

import fairway


def build() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), SoftClip(0.5)).eval()


net = fairway.Recipe(build, ["input: float32[batch, time, 4]"], bounds={"batch": (1, 4), "time": (1, 30)})
