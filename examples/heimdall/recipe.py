"""Heimdall's three models, each with the inputs its inference service has to accept."""

from functools import partial

import make_weights
from heimdall_net import HeimdallNet
from localization_net import LocalizationNet
from patched import calibrate_all

import fairway

SPECTROGRAM = ["mel_spectrogram: float32[batch, 3, 128, 32]"]

RECORDINGS = [
    "iq_data: float32[batch, receivers, 2, 1024]",
    "features: float32[batch, receivers, 6]",
    "positions: float32[batch, receivers, 3] in -10..10",
    "receiver_ids: int64[batch, receivers] < 10",
    "mask: bool[batch, receivers] = keep",
]

heimdall_net = fairway.Recipe(
    model=make_weights.heimdall_net,
    inputs=RECORDINGS,
    bounds={"batch": (1, 8), "receivers": (1, 10)},
    example={"batch": 2, "receivers": 3},
)

heimdall_net_pro = fairway.Recipe(
    model=make_weights.heimdall_net_pro,
    inputs=RECORDINGS,
    bounds={"batch": (1, 8), "receivers": (1, 10)},
    example={"batch": 2, "receivers": 3},
)

# The same model with its loop swapped by hand, and names of which no two are the same.
heimdall_net_patched = fairway.Recipe(
    model=make_weights.heimdall_net,
    inputs=RECORDINGS,
    bounds={"batch": (1, 8), "receivers": (1, 10)},
    example={"batch": 2, "receivers": 3},
    output_names=["transmitter_positions", "uncertainties"],
    patches={HeimdallNet._calibrate: calibrate_all},
)

localization_tiny = fairway.Recipe(
    model=partial(make_weights.localization_net, "tiny"),
    inputs=SPECTROGRAM,
    bounds={"batch": (1, 8)},
    example={"batch": 2},
)

# What the team ships: 197 M parameters, 787 MB.
localization_large = fairway.Recipe(
    model=partial(make_weights.localization_net, "large"),
    inputs=SPECTROGRAM,
    bounds={"batch": (1, 8)},
    example={"batch": 2},
)

# The large model's heads on a backbone of a hundredth the size that ends in the same 1536 features.
localization_narrow = fairway.Recipe(
    model=partial(make_weights.localization_net, "narrow"),
    inputs=SPECTROGRAM,
    bounds={"batch": (1, 8)},
    example={"batch": 2},
)

# The number the team had in its table for "large", on the narrow backbone: it fails the same way, sooner.
localization_mistake = fairway.Recipe(
    model=partial(LocalizationNet, "narrow", backbone_dim=2048),
    inputs=SPECTROGRAM,
    bounds={"batch": (1, 8)},
    example={"batch": 2},
)
