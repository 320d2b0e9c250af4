"""The first cut goes to the calls that a failure points at, in a few small trials."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn

from fairway.debug.reduce.call_recorder import record_calls
from fairway.debug.reduce.first_cut import collect_calls_before, cut_to_suspect, list_tensor_refs
from fairway.debug.reduce.program import Program
from fairway.debug.reduce.program_replay import FIRST_CALL_LINE, REPLAY_FILE, replay
from fairway.debug.reduce.suspect_calls import find_places, list_exception_lines, list_node_lines
from fairway.debug.reduce.trial_export import FailureSignature, TrialCase, TrialOutcome
from fairway.model.subject import build_subject

COMPARE = TrialOutcome(FailureSignature("compare", "FW401", "numbers"))
NAMED = TrialOutcome(FailureSignature("export", "FW301", "ValueError"))


class Layer(nn.Module):
    def __init__(self, odd: bool) -> None:
        super().__init__()
        self.linear, self.odd = nn.Linear(8, 8), odd

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.linear(x))
        return x.view(x.shape[0], -1, 4).flip(1).flatten(1).view(x.shape) if self.odd else x


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(i == 20) for i in range(40)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def program(model: nn.Module | None = None) -> Program:
    torch.manual_seed(0)
    model = (model or Deep()).eval()
    subject = build_subject(model, ["x: float32[batch, time, 8]"], bounds={"batch": (1, 4), "time": (1, 9)})
    return record_calls(subject, subject.make(subject.example, 1, "normal"))


def place_of(whole: Program, name: str) -> int:
    return next(i for i, call in enumerate(whole.calls) if call.name.endswith(name))


def counted(*needed: str) -> tuple[Callable[[Program], bool], list[int]]:
    tried: list[int] = []

    def fails(candidate: Program) -> bool:
        tried.append(len(candidate.calls))
        return all(any(call.name.endswith(name) for call in candidate.calls) for name in needed)

    return fails, tried


def test_the_call_that_is_named_is_tried_alone_first() -> None:
    full = program()
    fails, tried = counted("flip")
    seen = replace(NAMED, lines=((REPLAY_FILE, FIRST_CALL_LINE + place_of(full, "flip")),))
    part = cut_to_suspect(full, seen, lambda p: NAMED, fails, lambda: False)
    assert [call.name for call in part.calls] == ["torch.Tensor.flip"]
    assert tried == [1]


def test_what_lies_before_it_is_added_as_far_as_it_takes() -> None:
    full = program()
    fails, tried = counted("flip", "tanh")
    seen = replace(NAMED, lines=((REPLAY_FILE, FIRST_CALL_LINE + place_of(full, "flip")),))
    part = cut_to_suspect(full, seen, lambda p: NAMED, fails, lambda: False)
    assert len(part.calls) < 8 < len(full.calls)
    assert max(tried) < 8


def test_a_place_that_does_not_fail_costs_few_trials_and_changes_nothing() -> None:
    full = program()
    fails, tried = counted("nothing")
    seen = replace(NAMED, lines=((REPLAY_FILE, FIRST_CALL_LINE + place_of(full, "flip")),))
    assert cut_to_suspect(full, seen, lambda p: NAMED, fails, lambda: False) is full
    assert len(tried) < 25
    assert cut_to_suspect(full, seen, lambda p: NAMED, fails, lambda: True) is full
    assert cut_to_suspect(full, NAMED, lambda p: NAMED, fails, lambda: False) is full
    assert len(tried) < 25, "neither where time is up nor where nothing is named"


def test_sizes_that_are_reckoned_are_no_step() -> None:
    full = program()
    names = [full.calls[i].name for i in collect_calls_before(full, frozenset([place_of(full, "view")]), 0)]
    assert any("shape" in name for name in names)
    assert not any(name.endswith("tanh") for name in names)


def test_the_first_wrong_value_is_found_by_making_all_of_them_outputs() -> None:
    full = program()
    fails, tried = counted("flip")
    looked: list[Program] = []

    def look(everything: Program) -> TrialOutcome:
        looked.append(everything)
        var = full.calls[place_of(full, "flip")].var
        return replace(COMPARE, output=[ref.var for ref in everything.outputs].index(var))

    part = cut_to_suspect(full, COMPARE, look, fails, lambda: False)
    assert [call.name for call in part.calls] == ["torch.Tensor.flip"]
    assert len(looked) == len(tried) == 1


def test_memory_that_is_not_written_to_yet_is_no_output() -> None:
    class Fills(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.empty_like(x).fill_(1.0) + x

    full = program(Fills())
    made = [call.name for ref in list_tensor_refs(full) for call in full.calls if call.var == ref.var]
    assert not any("empty" in name for name in made)
    assert made


def test_an_exception_names_the_call_that_raised_it() -> None:
    full = program()
    place = place_of(full, "flip")
    call = full.calls[place]
    broken = replace(
        full, calls=(*full.calls[:place], replace(call, args=(call.args[0], (7,))), *full.calls[place + 1 :])
    )
    with pytest.raises(IndexError) as caught:
        replay(broken)(*(full.seen[ref] for ref in full.inputs))
    assert find_places(list_exception_lines([caught.value]), broken)[0] == {place}


def test_a_line_of_the_model_names_its_call_in_its_layer() -> None:
    full = program()
    place = place_of(full, "flip")
    lines, first = inspect.getsourcelines(Layer.forward)
    own = (inspect.getsourcefile(Layer) or "", first + next(i for i, line in enumerate(lines) if "flip" in line))
    assert full.calls[place].source[0] == own
    (result,) = find_places([own, *full.calls[place].source[1:]], full)
    assert [full.calls[i].module for i in result] == ["layers.20"]
    (function,) = find_places(full.calls[place].source[1:], full)
    assert {full.calls[i].module for i in function} == {"layers.0.linear"}, "all that the layer called, in the first"


def test_a_node_names_the_line_that_it_came_from(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Relu", ["a"], ["b"], name="node_Relu_3")
    trace = f'File "{REPLAY_FILE}", line {FIRST_CALL_LINE + 5}, in forward'
    node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [])).SerializeToString())
    message = "Non-zero status code returned while running Relu node. Name:'node_Relu_3' Status"
    assert list_node_lines(path, message) == ((REPLAY_FILE, FIRST_CALL_LINE + 5),)
    assert list_node_lines(path, message.replace("_3", "_4")) == ()


def test_a_generator_that_no_script_can_write_is_handed_on() -> None:
    class Draws(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.rand(8, generator=torch.Generator().manual_seed(3))

    full = program(Draws())
    inputs = [full.seen[ref] for ref in full.inputs]
    assert replay(full)(*inputs)[0].shape == inputs[0].shape


def test_a_candidate_is_called_as_its_script_will_be() -> None:
    case = TrialCase.of(program())
    assert list(inspect.signature(case.model.forward).parameters) == ["x0"]


def test_an_operator_that_has_no_translation_is_tried_alone_first() -> None:
    fails, tried = counted("flip")
    seen = TrialOutcome(FailureSignature("export", "FW304", "DispatchError aten.flip"))
    part = cut_to_suspect(program(), seen, lambda p: seen, fails, lambda: False)
    assert [call.name for call in part.calls] == ["torch.Tensor.flip"]
    assert tried == [1]
