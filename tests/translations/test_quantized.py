"""Fake quantization, also of halves between two steps. A capture leaves no shapes registered."""

from __future__ import annotations

import pytest
import torch
from ours import Inputs, Trial

from fairway.convert.translations.fake_quantize import register_shapes

SCALES, ZEROS = torch.tensor([0.1, 0.25, 1.0]), torch.tensor([0, 3, -2], dtype=torch.int32)
INT = torch.int32

FUNCTIONS = {
    "per tensor": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7),
    "per tensor, bytes": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.037, 128, 0, 255),
    "by tensors": lambda x: torch.fake_quantize_per_tensor_affine(
        x, torch.tensor([0.25]), torch.tensor([-1], dtype=INT), -128, 127
    ),
    "if it is on": lambda x: tuple(
        torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
            x, torch.tensor([0.25]), torch.tensor([1], dtype=INT), torch.tensor([on]), 0, 15
        )[0]
        for on in (1, 0)
    ),
    "per channel": lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS, 1, -8, 7),
    "per channel of the last dim": lambda x: torch.fake_quantize_per_channel_affine(
        x.transpose(1, 2), SCALES, ZEROS.float(), 2, 0, 15
    ),
}


def images(batch: int, length: int) -> Inputs:
    """Quarters, so that some lie right between two steps."""
    generator = torch.Generator().manual_seed(batch + length)
    return (torch.randn(batch, 3, length, generator=generator).mul(8).round() / 8,)


@pytest.fixture(scope="module")
def trial() -> Trial:
    made = Trial(FUNCTIONS, [images(2, 5), images(1, 1), images(3, 0), images(4, 33)])
    with register_shapes():
        assert made.model
    return made


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_gives_what_pytorch_gives(trial: Trial, name: str) -> None:
    trial.check(name, tolerance=1e-7)


def test_without_it_torch_has_no_shapes_also_after_it() -> None:
    """Goes red when torch has them; `captured` can go then."""
    with register_shapes():
        assert torch.fake_quantize_per_tensor_affine(torch.empty(2, device="meta"), 0.1, 0, 0, 9).shape == (2,)
    with pytest.raises(NotImplementedError):
        torch.fake_quantize_per_tensor_affine(torch.empty(2, device="meta"), 0.1, 0, 0, 9)
