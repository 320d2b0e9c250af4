"""A model that uses the plug-in's layer. Nothing here says how to translate it."""

from fairway_softclip import SoftClip
from torch import nn

import fairway

net = fairway.Recipe(
    lambda: nn.Sequential(nn.Linear(4, 3), SoftClip(0.5)).eval(),
    ["input: float32[batch, time, 4]"],
    bounds={"batch": (1, 4), "time": (1, 30)},
)
