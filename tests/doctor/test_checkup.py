"""Complete checkups, on this machine as it is and with a deliberately broken exporter."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fairway.convert.export import make_settings, preload_modules
from fairway.debug.doctor import checkup, examine
from fairway.debug.doctor.checkup import RecipeToTry, check_up
from fairway.debug.doctor.examine import find_mismatch
from fairway.debug.doctor.machine import Machine
from fairway.debug.doctor.probe_steps import DYNAMO, PYTORCH, TORCHSCRIPT, ProbeStep
from fairway.debug.doctor.probes import EXAMPLE_BATCH, OTHER_BATCH, PROBES, Probe, ProbeModel
from fairway.model.recipe import Overrides
from fairway.workers.attempt import Limits, Workers

SEED = "required keyword attribute 'value' has the wrong type"
TWO = ("constant", "linear")

RECIPES = """\
import torch
import fairway

spec = ["x: float32[batch, 3]"]
bounds = {"batch": (2, 6)}


class Good(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


class Bad(torch.nn.Module):
    def forward(self, x):
        return x * torch.rand(1)


class Frozen(torch.nn.Module):
    def forward(self, x):
        return x + torch.arange(len(x)).reshape(-1, 1)


class Broken(torch.nn.Module):
    pass


good, bad, frozen = (fairway.Recipe(net, spec, bounds=bounds) for net in (Good, Bad, Frozen))
"""


FINE = Machine({"python": "3.11"}, "Linux", "glibc 2.36", 2, (), 2**34, 2**34, 2**34)
"""The machine is looked at in test_machine.py."""


@pytest.fixture
def visit(tmp_path: Path) -> Callable[..., checkup.Checkup]:
    (tmp_path / "recipe.py").write_text(RECIPES)

    def check(name: str = "", *routes: str, probes: tuple[str, ...] = TWO) -> checkup.Checkup:
        def load_request() -> RecipeToTry:
            settings = make_settings("quick", routes, None, not routes, Limits(120, 0))
            spelt = " ".join(f"--route {r}" for r in routes)
            return RecipeToTry(f"{tmp_path}/recipe.py:{name}", Overrides(), settings, spelt)

        return check_up(FINE, probes, load_request if name else None, lambda event: None)

    return check


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probes are not walked again where the recipe alone is the question."""
    fine = [ProbeStep("linear", DYNAMO, DYNAMO), ProbeStep("linear", TORCHSCRIPT, TORCHSCRIPT)]
    monkeypatch.setattr(examine, "run_probes", lambda *anything: fine)


def constants(model: Any, example: Any) -> bool:
    """Return whether TorchScript's graph has a constant, which seed 000's exporter could not serialize."""
    if isinstance(model, torch.export.ExportedProgram):
        calls = [node for node in model.graph.nodes if node.op == "call_function"]
        return any(not isinstance(argument, torch.fx.Node) for node in calls for argument in node.args)
    return "prim::Constant" in str(torch.jit.trace(model, example, check_trace=False).inlined_graph)


@pytest.fixture
def break_exporters(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The double: torch.onnx.export raises seed 000's error for any constant, on the ways named."""
    real = torch.onnx.export

    def broken(*ways: bool) -> None:
        def export(model: Any, args: Any = (), *rest: Any, dynamo: bool = True, **named: Any) -> Any:
            if dynamo in ways and constants(model, args):
                raise RuntimeError(SEED)
            return real(model, args, *rest, dynamo=dynamo, **named)

        monkeypatch.setattr(torch.onnx, "export", export)

    return broken


def problems(seen: checkup.Checkup) -> dict[tuple[str, str], str]:
    return {(step.probe, step.tool): step.problem for step in seen.steps if step.problem}


def test_seed_000s_broken_exporter_is_told_from_a_bad_model(
    visit: Callable[..., checkup.Checkup], break_exporters: Callable[..., None]
) -> None:
    break_exporters(True, False)
    seen = visit("good")
    assert problems(seen) == {("constant", tool): f"RuntimeError: {SEED}" for tool in ("dynamo", "TorchScript")}
    assert (seen.diagnosis.blame, seen.is_healthy) == ("machine", False)
    assert seen.diagnosis.sentence == (
        f"Your machine, not your model: dynamo fails for 1 of 2 models that are known to export (constant: "
        f"RuntimeError: {SEED}), TorchScript too."
    )
    assert visit("bad", probes=("linear",)).diagnosis.blame == "model"


def test_where_one_exporter_is_broken_the_other_one_is_named(
    visit: Callable[..., checkup.Checkup], break_exporters: Callable[..., None]
) -> None:
    break_exporters(False)
    seen = visit("good", "trace")
    assert seen.tried is not None
    assert seen.tried.record is not None
    assert seen.tried.record.verdict == "failed"
    assert seen.diagnosis.blame == "machine"
    assert seen.diagnosis.sentence.startswith("Your machine, not your model: TorchScript fails for 1 of 2 models")
    assert "dynamo works; the recipe is verified without --route trace (export-dynamic)" in seen.diagnosis.sentence
    assert [f.code for f in seen.findings] == ["FW601"]


@pytest.mark.usefixtures("healthy")
def test_a_route_that_freezes_the_model_is_the_settings(visit: Callable[..., checkup.Checkup]) -> None:
    seen = visit("frozen", "trace")
    assert seen.diagnosis.blame == "settings", seen.diagnosis
    assert problems(seen) == {}


@pytest.mark.usefixtures("healthy")
def test_a_bad_model_and_a_missing_one_on_a_healthy_machine(visit: Callable[..., checkup.Checkup]) -> None:
    seen = visit("bad")
    assert seen.diagnosis.sentence == (
        "Your model: this machine exports models that are known to export, and the recipe comes out failed "
        "(FW203, forward is random)."
    )
    missing = visit("nothing")
    assert (missing.diagnosis.blame, [f.code for f in missing.findings]) == ("recipe", ["FW103"])


def test_without_torch_there_is_still_a_verdict() -> None:
    seen = check_up(replace(FINE, broken={"torch": "OSError: libgomp"}), (), None, lambda event: None)
    assert (seen.diagnosis.blame, seen.steps) == ("machine", ())
    assert "import torch: OSError: libgomp" in seen.diagnosis.sentence


@pytest.fixture
def workers() -> Iterator[Workers]:
    preload_modules()
    with Workers(Limits(60)) as result:
        yield result


def test_a_probe_that_dies_is_a_result_and_the_next_is_walked(workers: Workers, tmp_path: Path) -> None:
    def die(model: Any, x: torch.Tensor) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGSEGV)
        return x

    probes = [Probe("deadly", die, lambda n: torch.ones(n, 2), 0.0)]
    probes += [Probe("wrong", lambda m, x: x, lambda n: torch.ones(n, 2), 3.0)]
    steps = examine.run_probes(workers, probes, tmp_path, lambda event: None)
    assert [(s.probe, s.tool, s.problem) for s in steps if s.exporter == "TorchScript"] == [
        ("deadly", PYTORCH, "its process died, signal 11"),
        ("wrong", PYTORCH, "returns 10.0 instead of 3.0"),
    ]
    assert len(steps) == 4


def test_after_three_deaths_the_rest_of_the_way_is_left_out(workers: Workers, tmp_path: Path) -> None:
    probes = [Probe(f"p{i}", lambda m, x: os.abort(), lambda n: torch.ones(n), 0.0) for i in range(5)]
    steps = examine.run_probes(workers, probes, tmp_path, lambda event: None)
    assert [s.probe for s in steps] == ["p0", "p1", "p2"] * 2


@pytest.mark.parametrize("probe", PROBES, ids=lambda p: p.name)
def test_a_probes_answer_is_known_and_its_sizes_differ(probe: Probe) -> None:
    model = ProbeModel(probe)
    assert examine._check_answer(model(probe.inputs(OTHER_BATCH)), probe.answer) == ""
    assert examine._check_answer(model(probe.inputs(OTHER_BATCH)), probe.answer * 1.001 + 0.001) != ""
    assert (len(probe.inputs(EXAMPLE_BATCH)), len(probe.inputs(OTHER_BATCH))) == (EXAMPLE_BATCH, OTHER_BATCH)


@pytest.mark.parametrize(
    ("wanted", "got", "said"),
    [
        ([1.0, 2.0], [1.0, 2.00001], ""),
        ([1.0, 2.0], [1.0, 2.5], "gives 2.5 instead of 2.0 at [1]"),
        ([1.0], [float("nan")], "gives nan instead of 1.0 at [0]"),
        ([1.0, 2.0], [1.0], "gives float32[1] instead of float32[2]"),
        ([], [], ""),
    ],
)
def test_an_engines_answer_is_compared(wanted: list[float], got: list[float], said: str) -> None:
    assert find_mismatch([np.array(wanted, np.float32)], [np.array(got, np.float32)]) == said


def test_integers_dtypes_and_counts_are_compared() -> None:
    item = np.array([1, 2])
    assert find_mismatch([item], [np.array([1, 3])]) == "gives 3 instead of 2 at [1]"
    assert find_mismatch([item], [item.astype(np.int32)]) == "gives int32[2] instead of int64[2]"
    assert find_mismatch([item], [item, item]) == "gives 2 outputs instead of 1"
