"""Trains CodeNet for a few seconds on generated recordings and writes `codenet.safetensors` beside this file.

python examples/airimu/make_weights.py [another/path.safetensors]
"""

import sys
import time
from pathlib import Path

import torch
from imu import recording
from model import CodeNet
from safetensors.torch import save_file

STEPS, BATCH, LENGTH = 120, 16, 307


def errors(net, acc, gyro, true_acc, true_gyro):
    """Return the sensor's error after the correction, and how sure the net is of it."""
    correction_acc, correction_gyro, acc_cov, gyro_cov = net(acc, gyro)
    run_in = net.interval
    left_acc = acc[:, run_in:] + correction_acc - true_acc[:, run_in:]
    left_gyro = gyro[:, run_in:] + correction_gyro - true_gyro[:, run_in:]
    return left_acc, left_gyro, acc_cov, gyro_cov


def train():
    torch.manual_seed(7)
    net = CodeNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=STEPS)
    for step in range(STEPS):
        left_acc, left_gyro, acc_cov, gyro_cov = errors(net, *recording(step, BATCH, LENGTH))
        # In units of each head's own scale, so that the gyroscope is not drowned by the accelerometer.
        miss = (left_acc / net.acc_std).pow(2).mean() + (left_gyro / net.gyro_std).pow(2).mean()
        # Gaussian likelihood of the error that is left; `detach` keeps it from pulling at the corrections.
        doubt = sum(
            (left.detach().pow(2) / cov + cov.log()).mean()
            for left, cov in ((left_acc, acc_cov), (left_gyro, gyro_cov))
        )
        optimizer.zero_grad()
        (miss + 0.1 * doubt).backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 20 == 19:
            print(f"step {step + 1:3d}  miss {miss.item():.3f}  doubt {doubt.item():7.3f}  gradient {norm.item():.2f}")
    return net.eval()


@torch.no_grad()
def judge(net):
    acc, gyro, true_acc, true_gyro = recording(10_000, 8, 1009)
    left_acc, left_gyro, acc_cov, gyro_cov = errors(net, acc, gyro, true_acc, true_gyro)
    for name, raw, left, cov, unit in (
        ("acc", acc - true_acc, left_acc, acc_cov, "m/s²"),
        ("gyro", gyro - true_gyro, left_gyro, gyro_cov, "rad/s"),
    ):
        before, after = raw[:, net.interval :].mean(1), left.mean(1)
        print(
            f"{name:4s} bias {before.pow(2).mean().sqrt():.4f} -> {after.pow(2).mean().sqrt():.4f} {unit}; "
            f"expected std {cov.mean().sqrt():.4f}, actual {left.pow(2).mean().sqrt():.4f}"
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("codenet.safetensors")
    began = time.process_time()
    net = train()
    judge(net)
    save_file(net.state_dict(), out)
    print(f"{out.name}: {out.stat().st_size / 1e6:.2f} MB, {time.process_time() - began:.0f} CPU-seconds")
