"""torch's own translations still have the defects. If a test fails here, torch was fixed, and ours can be removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from ours import Trial
from torch.nn import functional

from fairway.convert.translations import TRANSLATIONS
from fairway.convert.translations.better import DEFECTS, find_torch_translation
from fairway.convert.translations.fake_quantize import register_shapes

aten = torch.ops.aten

WRONG: dict[Any, Callable[..., Any]] = {
    aten.scalar_tensor.default: lambda x, i: x.double() * 0.1,
    aten.log_sigmoid.default: lambda x, i: functional.logsigmoid(x - 90),
    aten.cumsum.default: lambda x, i: torch.cumsum(torch.cat([x + 2**24, x * 0.3]), 0),
    aten.atan2.default: lambda x, i: torch.atan2(i[:1] * 0.0, -x),
    aten.logcumsumexp.default: lambda x, i: torch.logcumsumexp(torch.stack([x - 200, x]), 0),
    aten.scatter_reduce.two: lambda x, i: torch.zeros(4).scatter_reduce(0, i, x, "mean"),
    aten.cross_entropy_loss.default: lambda x, i: functional.cross_entropy(x[None], i[-1:], label_smoothing=0.5),
    aten.nonzero.default: lambda x, i: torch.nonzero(x[0] * 0),
    aten.hamming_window.default: lambda x, i: x[:1] + torch.hamming_window(4),
}
REFUSED: dict[Any, Callable[..., Any]] = {
    aten.bincount.default: lambda x, i: torch.bincount(i, x),
    aten.unique_consecutive.default: lambda x, i: torch.unique_consecutive(i, dim=-1),
    aten.scatter_add.default: lambda x, i: torch.scatter_add(x[0], 0, i[0], x[1]),
    aten.histc.default: lambda x, i: torch.histc(x, 4),
    aten.squeeze.dim: lambda x, i: torch.stack([x, x]).squeeze(0),
    aten.roll.default: lambda x, i: torch.roll(x, x.shape[0] // 2, 0),
    aten.repeat_interleave.Tensor: lambda x, i: torch.ops.aten.repeat_interleave(
        torch.ones_like(i), output_size=x.shape[0]
    ),
    aten.fake_quantize_per_tensor_affine.default: lambda x, i: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 7),
    aten.fake_quantize_per_tensor_affine.tensor_qparams: lambda x, i: torch.fake_quantize_per_tensor_affine(
        x, torch.tensor([0.1]), torch.tensor([0], dtype=torch.int32), 0, 7
    ),
    aten.fake_quantize_per_channel_affine.default: lambda x, i: torch.fake_quantize_per_channel_affine(
        x[None], torch.tensor([0.1]), torch.tensor([0], dtype=torch.int32), 0, 0, 7
    ),
}


def inputs(length: int) -> tuple[torch.Tensor, ...]:
    return torch.arange(1.0, length + 1), torch.arange(length) // 2


def test_every_entry_is_tested_here_and_torch_has_a_translation() -> None:
    assert {*WRONG, *REFUSED} == set(DEFECTS)
    assert set(DEFECTS) <= set(TRANSLATIONS)
    assert all(find_torch_translation(operator) is not None for operator in DEFECTS)


@pytest.fixture(scope="module")
def silent() -> Trial:
    return Trial({str(op): f for op, f in WRONG.items()}, [inputs(5), inputs(4)], table={})


@pytest.mark.parametrize("operator", WRONG, ids=str)
def test_torchs_own_is_wrong_without_a_word(silent: Trial, operator: Any) -> None:
    with pytest.raises(AssertionError, match=r"Not equal to tolerance|PyTorch has"):
        silent.check(str(operator), tolerance=1e-9)


@pytest.mark.parametrize("operator", REFUSED, ids=str)
def test_torchs_own_refuses_or_the_runtime_its_file(operator: Any) -> None:
    with register_shapes(), pytest.raises((torch.onnx.OnnxExporterError, Fail)):
        assert Trial({"": REFUSED[operator]}, [inputs(5), inputs(4)], table={}).answers(0)


def test_an_operator_that_torch_lacks_has_none() -> None:
    assert find_torch_translation(aten.cummax.default) is None
