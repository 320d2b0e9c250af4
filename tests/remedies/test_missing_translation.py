"""Operators that torch.onnx lacks, through the remedy; torch's own where they are right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from functorch.experimental.control_flow import map as map_operator_over
from harness import EXPORT, STRICT, TRACE, applied, assert_parity, export, make_case, operators
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument
from torch import nn
from torch.nn import functional

from fairway.convert.ladder.flat_model import TranslationError
from fairway.convert.remedies import complex_picked, fully_masked_rows
from fairway.convert.remedies.contract import Refusal, track_use
from fairway.convert.remedies.missing_translation import REMEDY
from fairway.convert.translations import TRANSLATIONS
from fairway.convert.translations.better import DEFECTS, find_torch_translation

DIMS = [{0: "batch", 1: "time"}]


class Lacking(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        quantized = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7)
        return torch.cummax(x, 1).values, quantized, torch.roll(x, 1, 1), torch.roll(x, x.shape[1] // 2, 1)


class StoodInFor(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        order = x.argsort(1)
        first = order[:1, :2]
        leaks = nn.functional.rrelu(x, 0.1, 0.3)
        parts = [part.sum(1) for part in (*x.tensor_split(3, 1), *torch.tensor_split(x, [1, 2], dim=1))]
        down = x[:, None, ::2]
        up = nn.functional.conv_transpose1d(down, torch.ones(1, 2, 3), None, 2, 1, (x.shape[1] - 1) % 2)
        taken = torch.take_along_dim(x, order, 1), x.take_along_dim(first, dim=-1), torch.take_along_dim(x, order)
        return *taken, leaks, *parts, up, torch.kron(x, x[0])


class Filtered(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(x)
        return torch.fft.irfft(torch.cat([torch.zeros_like(spectrum[:, :1]), spectrum[:, 1:]], 1), n=x.shape[1])


class Plain(nn.Module):
    """Rolls as torch's own can, and scales."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.roll(x, 1, 1) * 0.5


def make(batch: int, time: int) -> tuple[torch.Tensor]:
    return (torch.randn(batch, time),)


def triple(x: torch.Tensor) -> torch.Tensor:
    return x[:, None] * torch.tensor([1.0, 2.0, 3.0])[:, None]


def square(x: torch.Tensor) -> torch.Tensor:
    return triple(x) @ triple(x).mT / 100


REPLACED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "divisor_override": lambda x: functional.avg_pool2d(triple(x), (2, 1), divisor_override=3),
    "batch norm in training": lambda x: functional.batch_norm(
        triple(x), torch.ones(3), torch.ones(3) * 2, training=True
    ),
    "negative padding": lambda x: functional.pad(triple(x)[..., :3], (-3, 4), mode="replicate"),
    "a norm with keepdim": lambda x: torch.linalg.norm(x, keepdim=True),
    "the power 0 of a batch": lambda x: torch.linalg.matrix_power(square(x), 0),
    "ellipses of different ranks": lambda x: torch.einsum("...ij,...jk->...ik", square(x), square(x)[0]),
    "erfcx": lambda x: torch.special.erfcx(10 + x.abs()),
    "antialiasing with corners": lambda x: functional.interpolate(
        square(x)[:, None], size=(2, 5), mode="bicubic", align_corners=True, antialias=True
    ),
    "division of a size rounded up": lambda x: x.new_ones(-(-x.shape[1] // 8)),
    "half of a size, rounded": lambda x: x[:, : round(x.shape[1] / 2)],
    "map over a dim": lambda x: map_operator_over(lambda row, all_rows: row.sin() + all_rows.sum(), x, x * 2),
}


class Replaced(nn.Module):
    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = list(names)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(REPLACED[name](x) for name in self.names)


@pytest.mark.parametrize("name", REPLACED)
def test_torch_translates_the_call_wrongly_or_not_at_all(name: str) -> None:
    model = Replaced([name])
    with pytest.raises((AssertionError, TranslationError, Fail, InvalidArgument)):
        assert_parity(export(make_case(model, make(3, 9)), DIMS), model, make(3, 9), make(2, 5), atol=1e-5)


def test_calls_that_torch_translates_wrongly_are_right_with_it() -> None:
    model = Replaced([*REPLACED])
    case = make_case(model, make(3, 9))
    exported = export(case, DIMS, REMEDY)
    assert_parity(exported, model, make(3, 9), make(1, 4), make(4, 17), make(2, 8), atol=2e-5)
    assert case.used == {REMEDY.name}


def test_torch_has_no_translation_without_it() -> None:
    class Cummax(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cummax(x, 1).values

    with pytest.raises(Exception, match="No ONNX function found"):
        export(make_case(Cummax(), make(2, 5)), DIMS)


@pytest.mark.parametrize("route", [EXPORT, STRICT])
def test_parity_holds_with_it(route: Any) -> None:
    case = make_case(Lacking(), make(2, 5), route)
    model = export(case, DIMS, REMEDY)
    assert_parity(model, Lacking(), make(2, 5), make(1, 1), make(3, 8), atol=1e-6)
    assert case.used == {REMEDY.name}


def test_torchs_own_is_used_if_it_is_right() -> None:
    case = make_case(Plain(), make(2, 5))
    model = export(case, DIMS, REMEDY)
    assert "Gather" not in operators(model), "ours gathers, torch's slices"
    assert case.used == set()


def test_its_table_has_only_operators_that_torch_lacks_or_translates_wrongly() -> None:
    case = make_case(Plain(), make(2, 5))
    with applied(case, REMEDY):
        assert set(case.translations) == {o for o in TRANSLATIONS if find_torch_translation(o) is None or o in DEFECTS}


def test_it_is_refused_under_the_torchscript_exporter() -> None:
    answer = REMEDY.detect(make_case(Plain(), make(2, 5), TRACE))
    assert answer == Refusal("the TorchScript exporter takes no translations")


def test_applying_it_twice_changes_nothing_more_and_other_remedies_win() -> None:
    case = make_case(Plain(), make(2, 5))
    target = torch.ops.aten.scaled_dot_product_attention.default
    with applied(case, REMEDY):
        once = set(case.translations)
        with applied(case, REMEDY):
            assert set(case.translations) == once
        with fully_masked_rows.REMEDY.apply(case, fully_masked_rows.Match("")):
            assert case.translations[target].__wrapped__ is fully_masked_rows.translate  # type: ignore[attr-defined]
        assert set(case.translations) == once
    assert case.translations == {}


def test_a_translation_notes_the_remedy_that_was_being_applied_once() -> None:
    case = make_case(Plain(), make(2, 5))
    case.applying = "one"
    noted = track_use(case, lambda x: x + 1)
    case.applying = "other"
    assert track_use(case, noted) is noted
    assert case.used == set()
    assert noted(1) == 2
    assert case.used == {"one"}


def test_a_spectrum_is_filtered_and_transformed_back() -> None:
    with pytest.raises(Exception, match="No ONNX function found"):
        export(make_case(Filtered(), make(3, 5)), DIMS)
    case = make_case(Filtered(), make(3, 5))
    model = export(case, DIMS, complex_picked.REMEDY)
    # ONNX Runtime's transform is a few last places off, PyTorch's is not.
    assert_parity(model, Filtered(), make(3, 5), make(1, 2), make(4, 20), atol=3e-5)
    assert case.used == {complex_picked.REMEDY.name}


def test_sizes_stay_open_where_torchs_own_code_fixes_them() -> None:
    with pytest.raises(Exception, match="specialized"):
        export(make_case(StoodInFor(), make(3, 5)), DIMS)
    case = make_case(StoodInFor(), make(3, 5))
    model = export(case, DIMS, REMEDY)
    assert_parity(model, StoodInFor(), make(3, 5), make(1, 2), make(4, 20), atol=1e-6)
    assert case.used == {REMEDY.name}
