"""LocalizationNet: a mel spectrogram in, the transmitter's position and its uncertainty out."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import ConvNextConfig, ConvNextModel

STAGES = {
    "tiny": {"depths": (3, 3, 9, 3), "hidden_sizes": (96, 192, 384, 768)},
    "small": {"depths": (3, 3, 27, 3), "hidden_sizes": (96, 192, 384, 768)},
    "base": {"depths": (3, 3, 27, 3), "hidden_sizes": (128, 256, 512, 1024)},
    "large": {"depths": (3, 3, 27, 3), "hidden_sizes": (192, 384, 768, 1536)},
    # Ends in as many features as "large" for a hundredth of its weights. Not a published ConvNeXt.
    "narrow": {"depths": (1, 1, 2, 0), "hidden_sizes": (24, 48, 96, 1536)},
}

BACKBONE_DIM = {
    "tiny": 768,
    "small": 768,
    "base": 1024,
    "large": 1536,
    "narrow": 1536,
}


class LocalizationNet(nn.Module):
    """`mel_spectrogram[batch, 3, 128, 32]` to `positions[batch, 2]` and `uncertainties[batch, 2]`.

    `backbone_dim` is what the heads expect of the backbone. The team once had 2048 in the table for
    "large"; nothing complains until the first forward pass.
    """

    def __init__(self, backbone_size="large", backbone_dim=None, hidden_dim=128):
        super().__init__()
        if backbone_dim is None:
            backbone_dim = BACKBONE_DIM[backbone_size]

        self.backbone = ConvNextModel(ConvNextConfig(**STAGES[backbone_size]))
        self.position_head = self._head(backbone_dim, hidden_dim)
        self.uncertainty_head = self._head(backbone_dim, hidden_dim)

    @staticmethod
    def _head(in_dim, hidden_dim):
        return nn.Sequential(
            nn.Linear(in_dim, hidden_dim),
            nn.BatchNorm1d(hidden_dim),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(hidden_dim, hidden_dim // 2),
            nn.BatchNorm1d(hidden_dim // 2),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(hidden_dim // 2, 2),
        )

    def forward(self, mel_spectrogram):
        pooled = self.backbone(mel_spectrogram).pooler_output
        positions = self.position_head(pooled)
        uncertainties = torch.clamp(F.softplus(self.uncertainty_head(pooled)), min=0.01, max=1.0)
        return {"positions": positions, "uncertainties": uncertainties}
