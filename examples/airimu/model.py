"""CodeNet reads a stretch of raw IMU samples and says how wrong each one is, and how sure it is of that."""

import math

import torch
from torch import nn


class CNNEncoder(nn.Module):
    def __init__(self, channels=(6, 32, 64), kernels=(7, 7), strides=(3, 3), paddings=(3, 3)):
        super().__init__()
        layers = []
        for i in range(len(channels) - 1):
            layers.append(nn.Conv1d(channels[i], channels[i + 1], kernels[i], strides[i], paddings[i]))
            layers.append(nn.BatchNorm1d(channels[i + 1]))
            layers.append(nn.GELU())
            layers.append(nn.Dropout(0.1))
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)


def _head():
    return nn.Sequential(nn.Linear(256, 128), nn.GELU(), nn.Linear(128, 3))


class CodeNet(nn.Module):
    """One correction for every 9 samples; the first 9 samples are run-in and get none."""

    def __init__(self):
        super().__init__()
        self.interval = 9
        self.inter_head = self.interval // 2
        self.inter_tail = self.interval - self.inter_head
        self.register_buffer("acc_std", torch.tensor(0.1))  # m/s^2
        self.register_buffer("gyro_std", torch.tensor(math.pi / 180))  # rad/s

        self.cnn = CNNEncoder()
        self.gru1 = nn.GRU(64, 128, batch_first=True)
        self.gru2 = nn.GRU(128, 256, batch_first=True)
        self.acc_decoder = _head()
        self.gyro_decoder = _head()
        self.acc_cov_decoder = _head()
        self.gyro_cov_decoder = _head()

    def encoder(self, x):
        x = self.cnn(x.transpose(-1, -2)).transpose(-1, -2)
        x, _ = self.gru1(x)
        x, _ = self.gru2(x)
        return x

    def spread(self, to_update, feat, frame_len):
        """Feature i covers the samples from 9i-4 up to 9i+5; `to_update` is written in place."""

        def clip(value, top):
            return max(0, min(value, top))

        if torch.is_tensor(frame_len):  # while tracing, sizes are tensors, and range() won't take them
            frame_len = int(frame_len.item())
        steps = math.ceil((frame_len - self.inter_head) / self.interval) + 1  # can be one more than feat has

        for i in range(steps):
            start = clip(i * self.interval - self.inter_head, frame_len)
            end = clip(i * self.interval + self.inter_tail, frame_len)
            idx = clip(i, feat.shape[1] - 1)
            to_update[:, start:end, :] += feat[:, idx : idx + 1, :]

        return to_update

    def forward(self, acc, gyro):
        frame_len = acc.shape[1] - self.interval
        feature = self.encoder(torch.cat([acc, gyro], dim=-1))[:, 1:, :]
        zeros = torch.zeros_like(acc[:, self.interval :, :])

        correction_acc = self.acc_decoder(feature) * self.acc_std
        correction_gyro = self.gyro_decoder(feature) * self.gyro_std
        acc_cov = torch.exp(self.acc_cov_decoder(feature) - 5.0)
        gyro_cov = torch.exp(self.gyro_cov_decoder(feature) - 5.0)

        return (
            self.spread(zeros.clone(), correction_acc, frame_len),
            self.spread(zeros.clone(), correction_gyro, frame_len),
            self.spread(zeros.clone(), acc_cov, frame_len),
            self.spread(zeros.clone(), gyro_cov, frame_len),
        )


class CodeNetExplicitH0(CodeNet):
    """The team's cure: both GRUs are handed the zeros they would have started from anyway."""

    def encoder(self, x):
        x = self.cnn(x.transpose(-1, -2)).transpose(-1, -2)
        h0_gru1 = torch.zeros(1, x.shape[0], 128, device=x.device, dtype=x.dtype)
        x, _ = self.gru1(x, h0_gru1)
        h0_gru2 = torch.zeros(1, x.shape[0], 256, device=x.device, dtype=x.dtype)
        x, _ = self.gru2(x, h0_gru2)
        return x
