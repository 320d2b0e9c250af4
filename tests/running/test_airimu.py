"""AirIMU, one sample at a time with its state carried, is AirIMU on the whole recording."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fairway.deploy.run import run
from fairway.deploy.run.windows import WindowSettings
from fairway.model.recipe import Overrides, load_subject

FOLDER = Path(__file__).parents[2] / "examples" / "airimu"
OUTPUTS = ("correction_acc", "correction_gyro", "acc_cov", "gyro_cov")
CARRIED = ("samples", "frames", "h1", "h2", "clock")
RUN_IN, LATE = 9, 16


def codenet() -> Any:
    spec = importlib.util.spec_from_file_location("airimu_model_for_run", FOLDER / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    net = module.CodeNet()
    net.load_state_dict(load_file(FOLDER / "codenet.safetensors"))
    return net.eval()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The streaming form, exported and verified."""
    path = tmp_path_factory.mktemp("airimu") / "streaming.onnx"
    from fairway.convert.export import export_subject
    from fairway.convert.types import Settings

    subject = load_subject(f"{FOLDER}/streaming.py:streaming", Overrides())
    result = export_subject(subject, path, Settings(level="quick", routes=("trace",)))
    assert result.verified, str(result)
    return path


def test_window_1_with_carried_state_is_the_whole_sequence_at_float_precision(file: Path, tmp_path: Path) -> None:
    samples = 400
    draw = np.random.default_rng(0)
    acc = (draw.standard_normal((samples, 3)) * 3).astype(np.float32)
    gyro = draw.standard_normal((samples, 3)).astype(np.float32)
    np.savez(tmp_path / "imu.npz", acc=acc, gyro=gyro)
    how = WindowSettings(1, over="1", carry={name: f"{name}_next" for name in CARRIED})
    run(file, tmp_path / "imu.npz", tmp_path / "out", how)
    with torch.no_grad():
        whole = codenet()(torch.from_numpy(acc)[None], torch.from_numpy(gyro)[None])
    for name, theirs in zip(OUTPUTS, whole, strict=True):
        ours = np.load(tmp_path / "out" / f"{name}.npy")
        assert ours.shape == (samples, 3)
        late = ours[RUN_IN + LATE :]
        assert np.abs(late - theirs[0, : samples - RUN_IN - LATE].numpy()).max() < 1e-6, name
        assert np.abs(np.diff(late, axis=0)).max() > 1e-4, "the answers change along the recording"


def test_without_the_state_the_answers_are_others(file: Path, tmp_path: Path) -> None:
    acc = np.ones((30, 3), np.float32)
    np.savez(tmp_path / "imu.npz", acc=acc, gyro=acc, h2=np.ones((1, 1, 256), np.float32))
    carry = {name: f"{name}_next" for name in CARRIED}
    run(file, tmp_path / "imu.npz", tmp_path / "out", WindowSettings(1, over="1", carry=carry))
    np.savez(tmp_path / "imu.npz", acc=acc, gyro=acc)
    run(file, tmp_path / "imu.npz", tmp_path / "other", WindowSettings(1, over="1", carry=carry))
    first, second = (np.load(tmp_path / name / "correction_acc.npy") for name in ("out", "other"))
    assert np.abs(first - second).max() > 1e-4
