"""Weights in a file are the model's, number by number; what exporters compute from them is left alone."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnx import numpy_helper
from torch import nn

import fairway
from fairway.diagnostics import Finding
from fairway.judge import answers
from fairway.judge import weight_comparison as comparing
from fairway.judge.alterations import compare_numbers
from fairway.judge.weight_comparison import ModelTensors, compare_weights


class Words(nn.Module):
    def __init__(self, count: int = 5000, bias: bool = True) -> None:
        super().__init__()
        self.table = nn.Embedding(count, 16)
        self.attend = nn.TransformerEncoderLayer(16, 2, 64, batch_first=True, dropout=0.0)
        self.up = nn.Linear(16, 96, bias=bias)
        self.norm = nn.LayerNorm(96)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.norm(self.up(self.attend(self.table(ids)))).sum(-1)


class Picture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, groups=4, bias=False),
            nn.BatchNorm2d(16),
            nn.ConvTranspose2d(16, 8, 2),
            nn.BatchNorm2d(8),
        )
        for layer in self.layers:
            if isinstance(layer, nn.BatchNorm2d):
                nn.init.uniform_(layer.weight, 0.5, 2)
                nn.init.normal_(layer.bias)
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Untrained(Picture):
    """All factors of the norms are equal."""

    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers:
            if isinstance(layer, nn.BatchNorm2d):
                layer.reset_parameters()


class Sequence(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.layer = kind(16, 16, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


class Computed(nn.Module):
    """Weights made of others: normed, tied, scaled, concatenated, pruned."""

    def __init__(self) -> None:
        super().__init__()
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(16, 16))
        self.first = nn.Linear(16, 16, bias=False)
        self.second = nn.Linear(16, 16, bias=False)
        self.second.weight = self.first.weight
        self.third = nn.Linear(16, 16)
        self.register_buffer("mask", torch.ones(16, 16).tril())
        with torch.no_grad():
            self.third.weight[torch.rand(16, 16) < 0.8] = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        joint = torch.cat([self.first.weight, self.third.weight * 0.25])
        tied = self.second(self.first(self.normed(x)))
        return nn.functional.linear(tied, joint) @ joint + self.third(x) @ (self.mask * 2) + x @ self.mask


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.randn(16, 16))
        self.up = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.mul_(0.5)
        return self.up(x)


IDS, IMAGE, ROWS = torch.arange(12).reshape(2, 6), torch.randn(2, 3, 9, 9), torch.randn(2, 6, 16)
RIGHT: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "words": (Words, IDS),
    "words_half": (lambda: Words().half(), IDS),
    "words_bfloat16": (lambda: Words().bfloat16(), IDS),
    "picture": (Picture, IMAGE),
    "untrained": (Untrained, IMAGE),
    "lstm": (lambda: Sequence(nn.LSTM), ROWS),
    "gru": (lambda: Sequence(nn.GRU), ROWS),
    "computed": (Computed, ROWS),
}


def _export(model: nn.Module, example: torch.Tensor, dynamo: bool) -> onnx.ModelProto:
    buffer = io.BytesIO()
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            if dynamo:
                torch.onnx.export(model, (example,), dynamo=True, verbose=False).save(buffer)
            else:
                torch.onnx.export(model, (example,), buffer, dynamo=False)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return onnx.ModelProto.FromString(buffer.getvalue())


def _compare(file: onnx.ModelProto, model: nn.Module) -> list[Finding]:
    return compare_weights(ir.from_proto(file), ModelTensors(model))


@pytest.mark.parametrize("dynamo", [False, True], ids=["trace", "dynamo"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_file_has_no_finding(name: str, dynamo: bool) -> None:
    torch.manual_seed(0)
    make, example = RIGHT[name]
    model = make().eval()
    assert _compare(_export(model, example, dynamo), model) == []


def _change(file: onnx.ModelProto, change: Callable[[np.ndarray], np.ndarray | None], shape: tuple[int, ...]) -> str:
    """Change the first initializer of that shape; return its name."""
    tensor = next(one for one in file.graph.initializer if tuple(one.dims) == shape)
    array = numpy_helper.to_array(tensor).copy()
    array = array if (changed := change(array)) is None else changed
    tensor.CopyFrom(numpy_helper.from_array(array.astype(array.dtype), tensor.name))
    return tensor.name


def _swap(array: np.ndarray) -> None:
    array[[7, 4321]] = array[[4321, 7]]


def _move(array: np.ndarray) -> None:
    array[3, 5] += 1e-3


WRONG = {
    "rows_swapped": (
        _swap,
        (5000, 16),
        "table.weight: 32 of 80000 elements differ in 2 of 5000 rows, first at [7, 0]",
        "the rows are the same in another order",
    ),
    "one_element": (_move, (16, 96), "up.weight: 1 of 1536 elements differ in 1 of 96 rows, first at [5, 3]", ""),
    "bias_zeroed": (np.zeros_like, (96,), "up.bias: 96 of 96 elements differ, first at [0]", ""),
}


@pytest.mark.parametrize("dynamo", [False, True], ids=["trace", "dynamo"])
@pytest.mark.parametrize("name", WRONG)
def test_a_changed_weight_is_named_with_its_place(name: str, dynamo: bool) -> None:
    torch.manual_seed(0)
    model = Words().eval()
    change, shape, seen, end = WRONG[name]
    file = _export(model, IDS, dynamo)
    initializer = _change(file, change, shape)
    (finding,) = _compare(file, model)
    assert (finding.code, finding.severity) == ("FW420", "error")
    assert seen in finding.seen
    assert finding.seen.endswith(end)
    assert finding.seen.startswith((seen, f"{initializer} is {seen}"))


@pytest.mark.parametrize("dynamo", [False, True], ids=["trace", "dynamo"])
def test_weights_of_another_seed_are_named(dynamo: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "MAX_REPORTED", 2)
    torch.manual_seed(0)
    model = Words().eval()
    torch.manual_seed(1)
    findings = _compare(_export(Words().eval(), IDS, dynamo), model)
    assert {finding.code for finding in findings} == {"FW420"}
    assert len(findings) == 2
    assert findings[-1].seen.endswith("; 3 more weights differ")
    assert any("table.weight: 80000 of 80000 elements differ" in finding.seen for finding in findings)


def test_a_weight_cast_to_half_is_the_models() -> None:
    torch.manual_seed(0)
    model = Words().eval()
    file = _export(model, IDS, True)
    for tensor in file.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            half = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
    assert _compare(file, model) == []
    table = next(one for one in file.graph.initializer if one.name == "table.weight")
    half = numpy_helper.to_array(table).copy()
    half[9] *= 2
    table.CopyFrom(numpy_helper.from_array(half, table.name))
    assert ["table.weight" in finding.seen for finding in _compare(file, model)] == [True]


def test_a_weight_times_a_factor_is_a_warning() -> None:
    torch.manual_seed(0)
    model = Words().eval()
    file = _export(model, IDS, True)
    _change(file, lambda array: array * np.float32(1.5), (96,))
    (finding,) = _compare(file, model)
    assert finding.severity == "warning"
    assert finding.seen.endswith("the numbers are the model's times a factor")


def test_a_norm_that_was_folded_excuses_no_other_weight() -> None:
    torch.manual_seed(0)
    model = Picture().eval()
    file = _export(model, IMAGE, True)
    names = [tensor.name for tensor in file.graph.initializer]
    assert "layers.1.running_mean" not in names, "the exporter folds the norm"
    assert "layers.0.weight" in names
    _change(file, lambda array: np.roll(array, 1, 0), (16, 3, 3, 3))
    assert any("layers.0.weight" in finding.seen for finding in _compare(file, model))


def test_what_forward_writes_to_is_not_compared() -> None:
    model = Stateful().eval()
    file = _export(model, ROWS, False)
    file.graph.initializer.append(numpy_helper.from_array(np.zeros((16, 16), np.float32), "seen"))
    assert [f.data["weight"] for f in compare_weights(ir.from_proto(file), ModelTensors(model))] == ["seen"]
    weights = ModelTensors(model)
    model(ROWS)
    assert compare_weights(ir.from_proto(file), weights) == []


@pytest.mark.parametrize("large", [False, True])
def test_verify_refuses_a_file_with_two_rows_swapped(
    tmp_path: Path, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sample is likely to draw one of two rows of 5,000."""
    monkeypatch.setattr(answers, "LARGE_MODEL_BYTES", 0 if large else answers.LARGE_MODEL_BYTES)
    torch.manual_seed(0)
    model = Words().eval()
    spec = ["ids: int64[batch, time] < 5000"]
    bounds = {"batch": (1, 3), "time": (1, 9)}
    done = fairway.export(model, spec, tmp_path / "right.onnx", bounds=bounds, level="quick")
    assert (done.verdict, [f.code for f in done.findings if f.code == "FW420"]) == ("verified", [])
    file = onnx.load(tmp_path / "right.onnx")
    _change(file, _swap, (5000, 16))
    onnx.save(file, tmp_path / "wrong.onnx")
    result = fairway.verify(tmp_path / "wrong.onnx", model, spec, bounds=bounds, level="quick")
    assert result.verdict == "wrong"
    assert any(f.code == "FW420" and "table.weight: 32 of 80000" in f.seen for f in result.findings)


def test_scaled_numbers_are_seen_though_another_order_has_one_more_number_equal() -> None:
    ours = torch.arange(1.0, 17.0).reshape(4, 4)
    theirs = ours * torch.tensor([[2.0], [3.0], [5.0], [7.0]])
    theirs[0, 1] = ours[1, 0] = 5.0
    theirs[1] = ours[1] * 3
    ours[0, 1] = 2.5
    found = compare_numbers(ours, [theirs, theirs.T])
    assert found is not None
    assert found.is_scaled


class PlainTables(nn.Module):
    """Tables that are no parameters: whole numbers and bools in buffers, tensors in attributes and lists."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("groups", torch.randint(0, 90, (300,)))
        self.register_buffer("allowed", torch.rand(300) > 0.5)
        self.scores = torch.rand(300)
        self.tables = [torch.randn(300, 2)]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        near = self.scores[ids] * self.groups[ids] * self.allowed[ids]
        return near[..., None] + self.tables[0][ids]


TABLES = {"groups": np.int64, "allowed": np.bool_, "scores": np.float32, "tables": np.float32}


@pytest.mark.parametrize("name", TABLES)
def test_an_error_in_a_table_that_is_no_parameter_is_named(name: str) -> None:
    torch.manual_seed(0)
    model = PlainTables().eval()
    file = _export(model, torch.tensor([[1, 2, 3]]), True)
    assert _compare(file, model) == []
    shape = (300, 2) if name == "tables" else (300,)
    arrays = [(tensor, numpy_helper.to_array(tensor).copy()) for tensor in file.graph.initializer]
    ((tensor, array),) = (pair for pair in arrays if (pair[1].dtype, pair[1].shape) == (TABLES[name], shape))
    array[217] = ~array[217] if array.dtype == np.bool_ else array[217] + 1
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    (finding,) = _compare(file, model)
    assert name in finding.data["weight"]


class MaskedLayers(nn.Module):
    """Layers with some connections cut, as in autoregressive networks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 10), nn.Linear(10, 10)
        self.register_buffer("mask", torch.arange(120).reshape(10, 12) % 4 != 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.linear(x, self.mask * self.first.weight, self.first.bias)
        return nn.functional.linear(torch.tanh(x), torch.tril(self.second.weight), self.second.bias)


def test_a_masked_weight_is_computed_and_other_zeros_are_named() -> None:
    model = MaskedLayers().eval()
    file = _export(model, torch.ones(3, 12), dynamo=False)
    assert _compare(file, model) == []
    initializer = next(i for i in file.graph.initializer if list(i.dims) in ([10, 12], [12, 10]))
    numbers = numpy_helper.to_array(initializer).copy()
    numbers.flat[numbers.nonzero()[0].size // 2 :: 40] = 0
    initializer.CopyFrom(numpy_helper.from_array(numbers, initializer.name))
    assert [finding.data["weight"] for finding in _compare(file, model)] == ["first.weight"]
