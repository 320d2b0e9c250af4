"""Two files for the phone: the encoder runs once per swipe, the decoder once per letter for all beams together."""

from model import trained
from torch import nn

import fairway


class EncoderToShip(nn.Module):
    """The encoder with zeros where there is no point.

    PyTorch itself gives two answers there: nn.TransformerEncoder's fast path writes zeros, its ordinary path
    leaves numbers that are not used. The decoder never looks, so the file may as well be definite.
    """

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, trajectory, nearest_key, padding):
        memory = self.encoder(trajectory, nearest_key, padding)
        return memory.masked_fill(padding.unsqueeze(-1), 0.0)


encoder = fairway.Recipe(
    model=lambda: EncoderToShip(trained().encoder),
    inputs=[
        "trajectory: float32[batch, length, 6] in -10..10",
        "nearest_key: int64[batch, length] < 30",
        "padding: bool[batch, length] = padding-right",
    ],
    bounds={"batch": (1, 8), "length": (4, 250)},
    output_names=["memory"],
    example={"batch": 2, "length": 17},
)

# Targets are padded on the right, as a batch of words is: a row that began with padding would have nothing to
# attend to at its first place.
decoder = fairway.Recipe(
    model=lambda: trained().decoder,
    inputs=[
        "memory: float32[beams, length, 64] in -4..4",
        "memory_padding: bool[beams, length] = padding-right",
        "target: int64[beams, letters] < 30",
        "target_padding: bool[beams, letters] = padding-right",
    ],
    bounds={"beams": (1, 8), "length": (4, 250), "letters": (1, 20)},
    output_names=["logits"],
    example={"beams": 3, "length": 17, "letters": 5},
)
