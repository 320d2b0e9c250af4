"""Translations through fairway.export: whose are used, which remedies are told, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnxscript import opset18 as op

import fairway
from fairway.diagnostics.errors import UserError
from fairway.model.recipe import Overrides, load_subject

QUICK: dict[str, Any] = {"level": "quick", "routes": ("export-dynamic",)}
LINE = ["x: float32[batch, time]"]
BOUNDS = {"batch": (1, 3), "time": (1, 6)}


@torch.library.custom_op("tests::shifted", mutates_args=())
def shifted(x: torch.Tensor, by: float) -> torch.Tensor:
    return x + by


@shifted.register_fake
def _shape(x: torch.Tensor, by: float) -> torch.Tensor:
    return torch.empty_like(x)


class Custom(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.tests.shifted(x, 2.0)


class Running(torch.nn.Module):
    """Mentions scaled_dot_product_attention, and calls it nowhere."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumprod(x, 1)


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu() * 0.5


def translated(x: Any, by: float) -> Any:
    return op.Add(x, op.Constant(value_float=by))


def test_a_users_operator_is_exported_with_the_users_translation(tmp_path: Path) -> None:
    table = {torch.ops.tests.shifted.default: translated}
    result = fairway.export(Custom(), LINE, tmp_path / "c.onnx", bounds=BOUNDS, translations=table, **QUICK)
    assert result.verdict == "verified"
    assert result.remedies == ()
    assert result.record.subject.translations == ("tests.shifted.default",)
    refused = fairway.export(Custom(), LINE, tmp_path / "d.onnx", bounds=BOUNDS, **QUICK)
    assert [finding.code for finding in refused.findings] == ["FW304"]
    assert refused.findings[0].seen == "tests.shifted"
    where = refused.findings[0].where
    assert where is not None
    assert where.source == "return torch.ops.tests.shifted(x, 2.0)"


def test_ones_own_wins_over_a_remedys_and_is_judged_like_any_other(tmp_path: Path) -> None:
    def mistaken(self: Any, dim: int, dtype: int = -1) -> Any:
        return op.Neg(self)

    table = {torch.ops.aten.cumprod.default: mistaken}
    result = fairway.export(Running(), LINE, tmp_path / "m.onnx", bounds=BOUNDS, translations=table, **QUICK)
    assert result.verdict == "wrong"
    assert result.remedies == ()
    path = tmp_path / "r.onnx"
    assert fairway.export(Running(), LINE, path, bounds=BOUNDS, **QUICK).remedies == ("missing_translation",)
    assert "Scan" in {node.op_type for node in onnx.load(path).graph.node}


def test_a_remedy_whose_translations_nobody_called_is_not_told(tmp_path: Path) -> None:
    """This file names attention, so that fully_masked_rows is applied; nothing here calls it."""
    result = fairway.export(Plain(), LINE, tmp_path / "p.onnx", bounds=BOUNDS, **QUICK)
    assert (result.verdict, result.remedies) == ("verified", ())
    assert result.route == "export-dynamic"


def test_a_recipe_takes_them_too(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.py"
    recipe.write_text(
        "import torch, fairway\n"
        "net = fairway.Recipe(torch.nn.ReLU, ['input: float32[n]'], bounds={'n': (1, 3)},\n"
        "    translations={torch.ops.aten.relu.default: print})\n"
    )
    assert load_subject(str(recipe), Overrides()).translations == {torch.ops.aten.relu.default: print}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ([], "translations: expected a mapping of operators to functions, got list"),
        ({"aten.relu": print}, "translations: expected an operator such as torch.ops.aten.add.Tensor, got 'aten.relu'"),
        (
            {torch.relu: print},
            "translations: expected an operator such as torch.ops.aten.add.Tensor, got <built-in method relu",
        ),
        (
            {torch.ops.aten.relu: print},
            "torch.ops.aten.relu has several forms; name one: torch.ops.aten.relu.default, torch.ops.aten.relu.out",
        ),
        ({torch.ops.aten.relu.default: 3}, "the translation of torch.ops.aten.relu.default cannot be called: 3"),
    ],
)
def test_what_is_no_translation_is_refused(tmp_path: Path, table: Any, said: str) -> None:
    with pytest.raises(UserError) as error:
        fairway.export(Plain(), LINE, tmp_path / "x.onnx", bounds=BOUNDS, translations=table, **QUICK)
    assert error.value.finding.code == "FW020"
    assert error.value.finding.seen.startswith(said)
