"""Two networks turn a swipe over the keyboard into a word: one reads the trace, one spells."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

PAD, UNK, SOS, EOS = 0, 1, 2, 3
TOKENS = ["<pad>", "<unk>", "<sos>", "<eos>", *"abcdefghijklmnopqrstuvwxyz"]
LONGEST_TRACE, LONGEST_WORD = 250, 20


@dataclass(frozen=True)
class Config:
    d_model: int
    heads: int
    feedforward: int
    encoder_layers: int
    decoder_layers: int
    dropout: float = 0.1


FULL = Config(d_model=256, heads=8, feedforward=1024, encoder_layers=6, decoder_layers=4)  # the one on the phones
SMALL = Config(d_model=64, heads=4, feedforward=256, encoder_layers=2, decoder_layers=2)  # trains in minutes


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=LONGEST_TRACE):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        frequency = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(1, max_len, d_model)
        pe[0, :, 0::2] = torch.sin(position * frequency)
        pe[0, :, 1::2] = torch.cos(position * frequency)
        self.register_buffer("pe", pe, persistent=False)

    def forward(self, x):
        return x + self.pe[:, : x.size(1)]


class TrajectoryEncoder(nn.Module):
    """`padding` is True where there is no point. What comes out at those places means nothing."""

    def __init__(self, config=SMALL):
        super().__init__()
        d = config.d_model
        self.trajectory_projection = nn.Linear(6, d // 2)
        self.key_embedding = nn.Embedding(len(TOKENS), d // 2)
        self.norm = nn.LayerNorm(d)
        self.position = PositionalEncoding(d)
        layer = nn.TransformerEncoderLayer(d, config.heads, config.feedforward, config.dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, config.encoder_layers)

    def forward(self, trajectory, nearest_key, padding):
        x = torch.cat([self.trajectory_projection(trajectory), self.key_embedding(nearest_key)], dim=-1)
        x = self.position(self.norm(x))
        return self.encoder(x, src_key_padding_mask=padding)


class WordDecoder(nn.Module):
    """Logits for the token after each one in `target`."""

    def __init__(self, config=SMALL):
        super().__init__()
        d = config.d_model
        self.d_model = d
        self.embedding = nn.Embedding(len(TOKENS), d)
        self.position = PositionalEncoding(d)
        layer = nn.TransformerDecoderLayer(d, config.heads, config.feedforward, config.dropout, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, config.decoder_layers)
        self.output = nn.Linear(d, len(TOKENS))

    def forward(self, memory, memory_padding, target, target_padding):
        y = self.position(self.embedding(target) * math.sqrt(self.d_model))
        causal = nn.Transformer.generate_square_subsequent_mask(target.size(1)).to(target.device)
        y = self.decoder(
            y,
            memory,
            tgt_mask=causal,
            tgt_key_padding_mask=target_padding,
            memory_key_padding_mask=memory_padding,
        )
        return self.output(y)


class SwipeModel(nn.Module):
    """Both together, as they are trained and as the checkpoint keeps them."""

    def __init__(self, config=SMALL):
        super().__init__()
        self.encoder = TrajectoryEncoder(config)
        self.decoder = WordDecoder(config)

    def forward(self, trajectory, nearest_key, padding, target, target_padding):
        memory = self.encoder(trajectory, nearest_key, padding)
        return self.decoder(memory, padding, target, target_padding)


def trained(path=Path(__file__).with_name("swipe.safetensors")):
    model = SwipeModel(SMALL)
    model.load_state_dict(load_file(path))
    return model.eval()
