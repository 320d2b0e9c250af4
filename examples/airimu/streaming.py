"""CodeNet one sample at a time: what it must remember goes in and comes out, so that nothing is computed twice.

A feature looks 12 samples ahead, and a sample uses the feature nearest to it; so the answer that comes with sample t
belongs to sample t - 16. CodeNet gives none for the first 9 samples. Hence the first 25 answers of a stream mean
nothing. From there on they are those of the whole recording; its last 16 samples are still to come when it ends.
"""

import torch
import torch.nn.functional as F
from model import CodeNet

import fairway


class StreamingCodeNet(CodeNet):
    """CodeNet's own layers and weights, fed from memory: 7 samples, 7 frames of the first layer, two GRU states."""

    def forward(self, acc, gyro, samples, frames, h1, h2, clock):
        conv1, norm1, act1, _, conv2, norm2, act2, _ = self.cnn.net
        samples = torch.cat([samples[:, 1:], torch.cat([acc, gyro], dim=-1)], dim=1)
        frame = act1(norm1(F.conv1d(samples.transpose(1, 2), conv1.weight, conv1.bias))).transpose(1, 2)
        ticks = (clock % 3 == 0) & (clock >= 3)
        frames = torch.where(ticks, torch.cat([frames[:, 1:], frame], dim=1), frames)

        feature = act2(norm2(F.conv1d(frames.transpose(1, 2), conv2.weight, conv2.bias))).transpose(1, 2)
        between, after1 = self.gru1(feature, h1)
        _, after2 = self.gru2(between, h2)
        ticks = (clock % 9 == 3) & (clock >= 12)
        h1, h2 = torch.where(ticks, after1, h1), torch.where(ticks, after2, h2)

        correction_acc = self.acc_decoder(h2) * self.acc_std
        correction_gyro = self.gyro_decoder(h2) * self.gyro_std
        acc_cov = torch.exp(self.acc_cov_decoder(h2) - 5.0)
        gyro_cov = torch.exp(self.gyro_cov_decoder(h2) - 5.0)
        return correction_acc, correction_gyro, acc_cov, gyro_cov, samples, frames, h1, h2, clock + 1


def build():
    return StreamingCodeNet().eval()


streaming = fairway.Recipe(
    model=build,
    inputs=[
        "acc: float32[1, 1, 3] in -20..20",
        "gyro: float32[1, 1, 3] in -4..4",
        "samples: float32[1, 7, 6]",
        "frames: float32[1, 7, 32]",
        "h1: float32[1, 1, 128] in -1..1",
        "h2: float32[1, 1, 256] in -1..1",
        "clock: int64[1] < 1000000",
    ],
    checkpoint="codenet.safetensors",
    output_names=[
        "correction_acc",
        "correction_gyro",
        "acc_cov",
        "gyro_cov",
        "samples_next",
        "frames_next",
        "h1_next",
        "h2_next",
        "clock_next",
    ],
)
