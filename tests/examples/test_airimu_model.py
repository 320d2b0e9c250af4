"""The AirIMU example means what its README says, before any exporter is involved."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

FOLDER = Path(__file__).parents[2] / "examples" / "airimu"


def load(name):
    """Import the module under a unique name, because every example has a `model.py`."""
    spec = importlib.util.spec_from_file_location(f"airimu_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


model, imu = load("model"), load("imu")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(net_class):
    net = net_class()
    net.load_state_dict(load_file(FOLDER / "codenet.safetensors"))
    return net.eval()


def gather(feat, frame_len):
    index = ((torch.arange(frame_len) + 4) // 9).clamp(max=feat.shape[1] - 1)
    return feat[:, index, :]


def test_the_spreading_loop_is_a_gather_at_every_length():
    net = model.CodeNet()
    for frame_len in [*range(1, 60), 991, 1000, 1001, 1991]:
        feat = torch.randn(2, -(-frame_len // 9), 3)
        looped = net.spread(torch.zeros(2, frame_len, 3), feat, frame_len)
        assert torch.equal(looped, gather(feat, frame_len)), frame_len


@pytest.mark.parametrize("time", [10, 11, 18, 19, 20, 1009, 2000])
@pytest.mark.parametrize("batch", [1, 8])
@torch.no_grad()
def test_every_corner_of_the_domain_is_legal(batch, time):
    acc, gyro, _, _ = imu.recording(0, batch, time)
    for output in trained(model.CodeNet)(acc, gyro):
        assert output.shape == (batch, time - 9, 3)
        assert torch.isfinite(output).all()


@torch.no_grad()
def test_there_is_a_feature_for_every_nine_samples():
    net = model.CodeNet().eval()
    for time in range(10, 60):
        assert net.encoder(torch.zeros(1, time, 6)).shape[1] - 1 == -(-(time - 9) // 9)


@torch.no_grad()
def test_spelling_out_h0_changes_nothing():
    acc, gyro, _, _ = imu.recording(5, 2, 307)
    for implicit, explicit in zip(
        trained(model.CodeNet)(acc, gyro), trained(model.CodeNetExplicitH0)(acc, gyro), strict=True
    ):
        assert torch.equal(implicit, explicit)


@torch.no_grad()
def test_the_corrections_remove_most_of_the_bias():
    acc, gyro, true_acc, true_gyro = imu.recording(10_000, 8, 1009)
    correction_acc, correction_gyro, _, _ = trained(model.CodeNet)(acc, gyro)
    for raw, true, correction in ((acc, true_acc, correction_acc), (gyro, true_gyro, correction_gyro)):
        error = (raw - true)[:, 9:]
        before, after = error.mean(1), (error + correction).mean(1)
        assert after.pow(2).mean() < 0.25 * before.pow(2).mean()


@torch.no_grad()
def test_no_output_is_constant():
    acc, gyro, _, _ = imu.recording(3, 4, 1009)
    for output in trained(model.CodeNet)(acc, gyro):
        assert (output.std(1) > 0.01 * output.abs().mean()).all()
