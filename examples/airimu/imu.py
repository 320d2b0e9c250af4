"""Generated IMU recordings: smooth motion as it was, and as a cheap sensor would have reported it."""

import math

import torch

RATE = 200.0  # samples per second
GRAVITY = torch.tensor([0.0, 0.0, 9.81])

# Every sensor of this make errs alike (offset, scale), and each one a little in its own way (spread).
ACC_OFFSET = torch.tensor([0.12, -0.08, 0.15])
GYRO_OFFSET = torch.tensor([0.015, 0.02, -0.01])
ACC_SCALE, GYRO_SCALE = 1.01, 0.99
ACC_SPREAD, GYRO_SPREAD = 0.03, 0.004
ACC_NOISE, GYRO_NOISE = 0.06, 0.008


def _smooth(generator, batch, time, amplitude):
    """A sum of four slow sines per axis, 0.2 to 3 Hz."""
    seconds = torch.arange(time) / RATE
    hertz = 0.2 + 2.8 * torch.rand(batch, 1, 3, 4, generator=generator)
    phase = 2 * math.pi * torch.rand(batch, 1, 3, 4, generator=generator)
    weight = amplitude * torch.randn(batch, 1, 3, 4, generator=generator)
    return (weight * torch.sin(2 * math.pi * hertz * seconds[None, :, None, None] + phase)).sum(-1)


def recording(seed, batch, time):
    """Returns `(acc, gyro, true_acc, true_gyro)`, each float32[batch, time, 3]."""
    generator = torch.Generator().manual_seed(seed)

    def noise(scale, *size):
        return scale * torch.randn(*size, generator=generator)

    true_acc = GRAVITY + _smooth(generator, batch, time, 1.0)
    true_gyro = _smooth(generator, batch, time, 0.3)
    acc = ACC_SCALE * true_acc + ACC_OFFSET + noise(ACC_SPREAD, batch, 1, 3) + noise(ACC_NOISE, batch, time, 3)
    gyro = GYRO_SCALE * true_gyro + GYRO_OFFSET + noise(GYRO_SPREAD, batch, 1, 3) + noise(GYRO_NOISE, batch, time, 3)
    return acc, gyro, true_acc, true_gyro
