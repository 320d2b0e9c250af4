"""Suspects are the lines an exporter freezes, and only those."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from transformers import MambaConfig, MambaModel

from fairway.convert.rewrite.find import find_suspects
from fairway.convert.rewrite.live_sites import count_passes, find_live_lines

from .idioms import CalibrationByPair, HeadByName, SpreadByGivenLength, SpreadBySlices, SpreadByTensorLength


def found(model: nn.Module) -> list[tuple[str, str, str]]:
    return [(s.kind, s.where.source or "", s.detail) for s in find_suspects(model)]


def test_a_loop_bounded_by_another_functions_size_has_its_bound() -> None:
    (suspect,) = find_suspects(SpreadBySlices())
    assert suspect.kind == "loop"
    assert suspect.where.source == "for i in range(steps):"
    assert suspect.where.function == "SpreadBySlices.spread"
    assert suspect.where.file == __file__.replace("test_find", "idioms")
    assert suspect.detail == (
        "the loop is bounded by the size steps = np.ceil((frame_len - self.head) / self.interval).astype(int) + 1"
    )


def test_a_loop_bounded_by_a_value_says_where_the_value_was_taken() -> None:
    assert found(SpreadByGivenLength()) == [
        ("loop", "for j in range(n):", "the loop is bounded by the value n = int(frame_len.item())")
    ]


def test_a_tensor_made_from_a_size_counts_as_the_size() -> None:
    assert found(SpreadByTensorLength()) == [
        ("loop", "for j in range(n):", "the loop is bounded by the size n = int(frame_len.item())")
    ]


def test_a_choice_is_found_inside_its_loops() -> None:
    kinds = [kind for kind, _, _ in found(CalibrationByPair())]
    assert kinds == ["loop", "loop", "choice"]
    assert found(CalibrationByPair())[2][2].startswith(
        "a module of self.calibration is chosen by the value rid = receiver_ids[b, n].item(); picked at line"
    )


def test_a_choice_by_name_is_found() -> None:
    assert [kind for kind, _, _ in found(HeadByName())] == ["choice"]


class Configured(nn.Module):
    """Loops over layers, heads, weights and lists written out: nothing an example decides."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.heads = 2
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, rounds: int = 2) -> torch.Tensor:
        if y is None:
            y = x
        if x.dim() == 2 and self.training:
            x = x.unsqueeze(0)
        for layer in self.layers:
            x = layer(x)
        for k in range(self.heads + rounds):
            x = x + k
        for part in [x, y]:
            x = x + part
        for part in x.chunk(3, dim=-1):
            x = x + part
        for k in range(self.scale.shape[0]):
            x = x * self.scale[k]
        for i, layer in enumerate(self.layers):
            x = layer(x) * i
        first = self.layers[0]
        return first(x) + sum(layer(x) for layer in self.layers)


def test_loops_over_the_configuration_are_no_suspects() -> None:
    assert find_suspects(Configured()) == ()


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            x = x + 1
        while x.max() > 10:
            x = x / 2
        return x if x.mean().item() < 3 else -x


def test_branches_on_values_are_found_in_order() -> None:
    assert [(kind, detail) for kind, _, detail in found(Branching())] == [
        ("loop", "`while x.max() > 10` asks for a tensor's value"),
        ("branch", "`if x.sum() > 0` asks for a tensor's value"),
        ("branch", "`if x.mean().item() < 3` asks for a tensor's value"),
    ]


class BranchingOnSizes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 64:
            raise ValueError("a check of the input, not a choice")
        if x.size(1) % 2:
            x = nn.functional.pad(x, (0, 1))
        return x if x.numel() > 8 else -x


def test_branches_on_sizes_are_found_but_checks_of_the_input_are_not() -> None:
    assert [(kind, detail) for kind, _, detail in found(BranchingOnSizes())] == [
        ("branch", "`if x.size(1) % 2` asks for a size that may vary"),
        ("branch", "`if x.numel() > 8` asks for a size that may vary"),
    ]


def test_the_module_path_is_named_and_a_class_is_read_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3), SpreadByTensorLength(), SpreadByTensorLength())
    assert [s.where.module for s in find_suspects(model)] == ["1"]


def test_torch_own_modules_are_never_suspect() -> None:
    assert find_suspects(nn.TransformerEncoderLayer(8, 2, 16)) == ()


class SizeWhile(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        i = 0
        while i < x.shape[1]:
            x = x + i
            i += 1
        return x


def test_a_while_on_a_size_is_a_loop() -> None:
    assert [(k, d) for k, _, d in found(SizeWhile())] == [("loop", "the loop is bounded by the size i < x.shape[1]")]


def test_of_a_librarys_loops_only_those_count_that_follow_a_size() -> None:
    config = MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, state_size=4, use_mambapy=False)
    model = MambaModel(config).eval()
    given = {"input_ids": torch.zeros(1, 3, dtype=torch.long)}

    def run(length: int) -> None:
        with torch.no_grad():
            model(torch.zeros(1, length, dtype=torch.long), use_cache=False)

    assert find_suspects(model, given) == ()
    assert find_live_lines(model, given, [lambda: run(3), lambda: run(3)]) == frozenset()
    loops = find_live_lines(model, given, [lambda: run(3), lambda: run(5)])
    (suspect,) = find_suspects(model, given, loops)
    assert suspect.kind == "loop"
    assert suspect.where.function == "mamba_selective_scan"


def test_a_point_that_pytorch_refuses_does_not_hide_a_loop() -> None:
    config = MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, state_size=4, use_mambapy=False)
    model = MambaModel(config).eval()
    given = {"input_ids": torch.zeros(1, 3, dtype=torch.long)}

    def run(length: int) -> None:
        with torch.no_grad():
            model(torch.zeros(1, length, dtype=torch.long), use_cache=False)

    assert len(find_live_lines(model, given, [lambda: run(3), lambda: 1 / 0, lambda: run(5)])) == 1


def test_without_a_suspicious_line_nothing_is_prepared_for_a_run() -> None:
    def runs() -> Iterator[Callable[[], None]]:
        raise AssertionError("a run was asked for")
        yield

    assert find_live_lines(nn.Linear(2, 2), None, runs()) == frozenset()
    scan = MambaModel(MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, state_size=4, use_mambapy=False))
    with pytest.raises(AssertionError, match="asked for"):
        find_live_lines(scan.eval(), {"input_ids": torch.zeros(1, 3, dtype=torch.long)}, runs())


def test_only_a_list_that_counts_to_a_size_is_a_suspect() -> None:
    class Lists(nn.Module):
        def forward(self, x):
            n = x.shape[1]
            first = torch.tensor(list(range(n)))
            fixed = torch.tensor(list(range(4)))
            cut = torch.tensor(list(range(n))[1:])
            return first, fixed, cut, x

    assert [(k, d) for k, _, d in found(Lists())] == [("list", "the list is as long as the size n = x.shape[1]")]


def test_tracing_is_as_before_after_passes_were_counted() -> None:
    before = sys.gettrace()
    with pytest.raises(ZeroDivisionError):
        count_passes(lambda: 1 / 0, [])
    assert sys.gettrace() is before
