"""Seeded weights in place of trained ones, the same bits in every process.

The trained checkpoints are not public, and 8 MB files do not belong in a repository, so the recipes
build from a seed. `python make_weights.py FOLDER` writes the same weights as .safetensors files.
"""

import argparse
import pathlib
from contextlib import contextmanager

import torch
from heimdall_net import HeimdallNet, HeimdallNetPro
from localization_net import LocalizationNet
from safetensors.torch import save_file
from torch import nn

SEED = 1109
RECEIVERS = 10
IQ_LENGTH = 1024


@contextmanager
def _seeded(seed):
    """A seed of our own and one thread: the order of a sum decides its last bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


@torch.no_grad()
def _settle(model, batches):
    """Gives every BatchNorm the statistics of some data, as training would; then leaves training mode."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
    for norm in norms:
        norm.momentum = None  # a plain average, which keeps nothing of the initial 0 and 1
        nn.init.uniform_(norm.weight, 0.8, 1.2)
        nn.init.normal_(norm.bias, std=0.1)
    model.train()
    for batch in batches:
        model(*batch)
    for norm in norms:
        norm.momentum = 0.1
    return model.eval()


def random_recordings(batch=8, receivers=4, length=IQ_LENGTH):
    """One batch of HeimdallNet's inputs: tones in noise, seen by receivers that are not always there."""
    time = torch.arange(length) / length
    frequency = torch.randint(1, 200, (batch, receivers, 1))
    phase = 2 * torch.pi * (frequency * time + torch.rand(batch, receivers, 1))
    iq_data = torch.stack([phase.cos(), phase.sin()], dim=2) + 0.3 * torch.randn(batch, receivers, 2, length)
    mask = torch.rand(batch, receivers) > 0.2
    mask[:, 0] = True
    return (
        iq_data,
        torch.randn(batch, receivers, 6),
        torch.randn(batch, receivers, 3),
        torch.randint(RECEIVERS, (batch, receivers)),
        mask,
    )


def heimdall_net():
    with _seeded(SEED):
        return _settle(HeimdallNet(RECEIVERS), [random_recordings() for _ in range(4)])


def heimdall_net_pro():
    with _seeded(SEED + 1):
        return _settle(HeimdallNetPro(RECEIVERS), [random_recordings() for _ in range(4)])


def localization_net(backbone_size):
    with _seeded(SEED + 2):
        model = LocalizationNet(backbone_size)
        for name, parameter in model.named_parameters():
            if name.endswith("layer_scale_parameter"):
                # ConvNeXt starts at 1e-6, where its blocks do nothing yet. Trained values look like these.
                nn.init.uniform_(parameter, 0.05, 0.5)
        return _settle(model, [(torch.randn(8, 3, 128, 32),) for _ in range(4)])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, build in {"heimdall_net": heimdall_net, "heimdall_net_pro": heimdall_net_pro}.items():
        path = folder / f"{name}.safetensors"
        save_file(build().state_dict(), path)
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
