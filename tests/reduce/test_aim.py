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

from fairway.debug.reduce.call_recorder import record
from fairway.debug.reduce.first_cut import aim, before, exposed
from fairway.debug.reduce.program import Program
from fairway.debug.reduce.program_replay import FILE, FIRST, replay
from fairway.debug.reduce.suspect_calls import by_exceptions, by_node, places
from fairway.debug.reduce.trial_export import FailureSignature, Seen, TrialCase
from fairway.model.subject import build_subject

COMPARE = Seen(FailureSignature("compare", "FW401", "numbers"))
NAMED = Seen(FailureSignature("export", "FW301", "ValueError"))


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
    return record(subject, subject.make(subject.example, 1, "normal"))


def place_of(whole: Program, name: str) -> int:
    return next(i for i, call in enumerate(whole.calls) if call.name.endswith(name))


def counted(*needed: str) -> tuple[Callable[[Program], bool], list[int]]:
    tried: list[int] = []

    def fails(candidate: Program) -> bool:
        tried.append(len(candidate.calls))
        return all(any(call.name.endswith(name) for call in candidate.calls) for name in needed)

    return fails, tried


def test_the_call_that_is_named_is_tried_alone_first() -> None:
    whole = program()
    fails, tried = counted("flip")
    seen = replace(NAMED, lines=((FILE, FIRST + place_of(whole, "flip")),))
    part = aim(whole, seen, lambda p: NAMED, fails, lambda: False)
    assert [call.name for call in part.calls] == ["torch.Tensor.flip"]
    assert tried == [1]


def test_what_lies_before_it_is_added_as_far_as_it_takes() -> None:
    whole = program()
    fails, tried = counted("flip", "tanh")
    seen = replace(NAMED, lines=((FILE, FIRST + place_of(whole, "flip")),))
    part = aim(whole, seen, lambda p: NAMED, fails, lambda: False)
    assert len(part.calls) < 8 < len(whole.calls)
    assert max(tried) < 8


def test_a_place_that_does_not_fail_costs_few_trials_and_changes_nothing() -> None:
    whole = program()
    fails, tried = counted("nothing")
    seen = replace(NAMED, lines=((FILE, FIRST + place_of(whole, "flip")),))
    assert aim(whole, seen, lambda p: NAMED, fails, lambda: False) is whole
    assert len(tried) < 25
    assert aim(whole, seen, lambda p: NAMED, fails, lambda: True) is whole
    assert aim(whole, NAMED, lambda p: NAMED, fails, lambda: False) is whole
    assert len(tried) < 25, "neither where time is up nor where nothing is named"


def test_sizes_that_are_reckoned_are_no_step() -> None:
    whole = program()
    names = [whole.calls[i].name for i in before(whole, frozenset([place_of(whole, "view")]), 0)]
    assert any("shape" in name for name in names)
    assert not any(name.endswith("tanh") for name in names)


def test_the_first_wrong_value_is_found_by_making_all_of_them_outputs() -> None:
    whole = program()
    fails, tried = counted("flip")
    looked: list[Program] = []

    def look(everything: Program) -> Seen:
        looked.append(everything)
        var = whole.calls[place_of(whole, "flip")].var
        return replace(COMPARE, output=[ref.var for ref in everything.outputs].index(var))

    part = aim(whole, COMPARE, look, fails, lambda: False)
    assert [call.name for call in part.calls] == ["torch.Tensor.flip"]
    assert len(looked) == len(tried) == 1


def test_memory_that_is_not_written_to_yet_is_no_output() -> None:
    class Fills(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.empty_like(x).fill_(1.0) + x

    whole = program(Fills())
    made = [call.name for ref in exposed(whole) for call in whole.calls if call.var == ref.var]
    assert not any("empty" in name for name in made)
    assert made


def test_an_exception_names_the_call_that_raised_it() -> None:
    whole = program()
    place = place_of(whole, "flip")
    call = whole.calls[place]
    broken = replace(
        whole, calls=(*whole.calls[:place], replace(call, args=(call.args[0], (7,))), *whole.calls[place + 1 :])
    )
    with pytest.raises(IndexError) as caught:
        replay(broken)(*(whole.seen[ref] for ref in whole.inputs))
    assert places(by_exceptions([caught.value]), broken)[0] == {place}


def test_a_line_of_the_models_own_names_its_call_in_the_layer_that_ran_it() -> None:
    whole = program()
    place = place_of(whole, "flip")
    lines, first = inspect.getsourcelines(Layer.forward)
    own = (inspect.getsourcefile(Layer) or "", first + next(i for i, line in enumerate(lines) if "flip" in line))
    assert whole.calls[place].source[0] == own
    (found,) = places([own, *whole.calls[place].source[1:]], whole)
    assert [whole.calls[i].module for i in found] == ["layers.20"]
    (function,) = places(whole.calls[place].source[1:], whole)
    assert {whole.calls[i].module for i in function} == {"layers.0.linear"}, "all that the layer called, in the first"


def test_a_node_names_the_line_that_it_came_from(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Relu", ["a"], ["b"], name="node_Relu_3")
    node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=f'File "{FILE}", line {FIRST + 5}, in forward')
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [])).SerializeToString())
    said = "Non-zero status code returned while running Relu node. Name:'node_Relu_3' Status"
    assert by_node(path, said) == ((FILE, FIRST + 5),)
    assert by_node(path, said.replace("_3", "_4")) == ()


def test_a_generator_that_no_script_can_write_is_handed_on() -> None:
    class Draws(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.rand(8, generator=torch.Generator().manual_seed(3))

    whole = program(Draws())
    inputs = [whole.seen[ref] for ref in whole.inputs]
    assert replay(whole)(*inputs)[0].shape == inputs[0].shape


def test_a_candidate_is_called_as_its_script_will_be() -> None:
    case = TrialCase.of(program())
    assert list(inspect.signature(case.model.forward).parameters) == ["x0"]


def test_an_operator_that_has_no_translation_is_tried_alone_first() -> None:
    fails, tried = counted("flip")
    seen = Seen(FailureSignature("export", "FW304", "DispatchError aten.flip"))
    part = aim(program(), seen, lambda p: seen, fails, lambda: False)
    assert [call.name for call in part.calls] == ["torch.Tensor.flip"]
    assert tried == [1]
