"""Trains the small model for a few minutes on generated swipes and writes `swipe.safetensors` beside this file.

python examples/swipe/make_weights.py [another/path.safetensors]
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from beam import TorchStepper, beam_search
from model import PAD, SwipeModel
from safetensors.torch import save_file
from torch.nn import functional as F
from traces import WORDS, batch_of, held_out

STEPS, BATCH = 400, 48


def train():
    torch.manual_seed(11)
    rng = np.random.default_rng(11)
    net = SwipeModel()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=STEPS, pct_start=0.25)
    for step in range(STEPS):
        trajectory, nearest_key, padding, target = batch_of(rng.choice(WORDS, BATCH), rng)
        known, wanted = target[:, :-1], target[:, 1:]
        logits = net(trajectory, nearest_key, padding, known, known == PAD)
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            print(f"step {step + 1:4d}  loss {loss.item():.3f}", flush=True)
    return net.eval()


def judge(net):
    stepper = TorchStepper(net.encoder, net.decoder)
    traces = held_out()
    right = sum(beam_search(stepper, *points) == word for word, points in traces)
    print(f"{right} of {len(traces)} held-out traces right")


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("swipe.safetensors")
    began = time.process_time()
    net = train()
    print(f"trained in {time.process_time() - began:.0f} CPU-seconds")
    judge(net)
    save_file(net.state_dict(), out)
    print(f"{out.name}: {out.stat().st_size / 1e6:.2f} MB")
