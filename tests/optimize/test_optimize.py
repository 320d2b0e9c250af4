"""`fairway optimize` against planted passes: it keeps the good one and says what is wrong with each of the others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fairway.cli.optimize import optimize as command
from fairway.convert.export import make_judging_settings
from fairway.convert.types import Settings
from fairway.diagnostics.errors import UserError
from fairway.model.recipe import Overrides, load_subject
from fairway.record.reader import compare_with_record
from fairway.tune.optimize import optimize as module
from fairway.tune.optimize.optimize import OptimizeGoal, optimize_file
from fairway.tune.optimize.optimize_result import OptimizeResult
from fairway.tune.optimize.passes import PASSES, Pass
from fairway.workers.attempt import Limits

WIDE = 192
QUICK = OptimizeGoal(at=("batch=8",), seconds=0.25, threads=1)

RECIPE = """
import torch, fairway
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("w", torch.randn({wide}, {wide}, generator=generator) / 14)
    def forward(self, x):
        return x @ self.w
net = fairway.Recipe(model=Net, inputs=["x: float32[batch, {wide}]"], bounds={{"batch": (1, 8)}})
other = fairway.Recipe(model=lambda: torch.nn.Hardtanh(), inputs=["input: float32[batch, {wide}]"])
"""


def save(path: Path, weight: np.ndarray, detour: int, name: str = "x") -> None:
    """x @ w, after so many products with the identity, which no optimizer removes."""
    nodes, last = [], name
    for i in range(detour):
        nodes.append(helper.make_node("MatMul", [last, "one"], [f"d{i}"]))
        last = f"d{i}"
    nodes.append(helper.make_node("MatMul", [last, "w"], ["y"]))
    weights = [numpy_helper.from_array(weight.astype(np.float32), "w")]
    weights += [numpy_helper.from_array(np.eye(len(weight), dtype=np.float32), "one")] if detour else []
    shape = ["batch", len(weight)]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)


def weight_of(path: Path) -> np.ndarray:
    return next(numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer if t.name == "w")


def straight(source: Path, target: Path) -> None:
    save(target, weight_of(source), 0)


def wrong(source: Path, target: Path) -> None:
    save(target, weight_of(source) * 1.01, 0)


def longer(source: Path, target: Path) -> None:
    save(target, weight_of(source), 12)


def renamed(source: Path, target: Path) -> None:
    save(target, weight_of(source), 0, "input")


def unchanged(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())


def raising(source: Path, target: Path) -> None:
    raise RuntimeError("shape inference failed\nand more")


def dying(source: Path, target: Path) -> None:
    import os

    os.abort()


def hanging(source: Path, target: Path) -> None:
    time.sleep(60)


def garbage(source: Path, target: Path) -> None:
    target.write_text("no model")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    import torch

    (tmp_path / "recipe.py").write_text(RECIPE.format(wide=WIDE))
    generator = torch.Generator().manual_seed(0)
    save(tmp_path / "net.onnx", (torch.randn(WIDE, WIDE, generator=generator) / 14).numpy(), 6)
    return tmp_path / "net.onnx"


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def plant(*functions: Callable[[Path, Path], None]) -> None:
        passes = tuple(Pass(item.__name__, "planted", item) for item in functions)
        monkeypatch.setattr(module, "PASSES", passes)

    return plant


def settings(timeout: float = 60.0) -> Settings:
    return make_judging_settings("quick", Limits(timeout, 0))


def run(source: Path, recipe: bool = True, goal: OptimizeGoal = QUICK, timeout: float = 60.0) -> OptimizeResult:
    subject = load_subject(f"{source.parent / 'recipe.py'}:net", Overrides()) if recipe else None
    overrides = Overrides((), {} if recipe else {"batch": (1, 8)})
    goal = replace(goal, overrides=overrides)
    return optimize_file(source, source.with_name("out.onnx"), subject, settings(timeout), goal)


def test_the_good_pass_is_kept_and_the_others_have_reasons(source: Path, planted: Callable[..., None]) -> None:
    planted(wrong, longer, renamed, raising, dying, garbage, straight, unchanged)
    outcome = run(source)
    reported = {item.name: item.reason for item in outcome.tried}
    assert outcome.kept == ("straight",)
    assert reported["wrong"].startswith("wrong: FW401, ")
    assert reported["longer"] == "slower"
    assert reported["renamed"] == "changes the names or types of inputs or outputs"
    assert reported["raising"] == "raised RuntimeError: shape inference failed"
    assert reported["dying"].startswith("the attempt's process died")
    assert reported["garbage"].startswith("raised ")
    assert reported["straight"] == "faster"
    assert reported["unchanged"] in ("not faster", "slower"), (
        "a thing beside itself is seen to differ once in a hundred"
    )
    assert outcome.together is not None
    assert outcome.together.points[0][1].low > 1.5
    assert outcome.result is not None
    assert outcome.result.verified
    assert not list(source.parent.glob(".fairway-*")), "the workshop is gone"
    stored, changed = compare_with_record(source.with_name("out.onnx"))
    assert changed is None
    assert stored is not None
    assert stored.verdict == "verified"
    assert stored.optimized.kept == ("straight",)
    assert stored.optimized.judged_against == "PyTorch, by the recipe"
    assert [item.name for item in stored.optimized.passes] == list(reported)


def test_where_nothing_helps_nothing_is_written(source: Path, planted: Callable[..., None]) -> None:
    planted(wrong, longer, unchanged)
    outcome = run(source)
    assert (outcome.kept, outcome.result) == ((), None)
    assert not source.with_name("out.onnx").exists()


def test_without_a_recipe_the_file_judges_and_the_result_is_unproven(
    source: Path, planted: Callable[..., None]
) -> None:
    planted(wrong, straight)
    outcome = run(source, recipe=False)
    assert outcome.kept == ("straight",)
    assert outcome.judged_against == "net.onnx itself, over batch 1..8"
    assert outcome.result is not None
    assert outcome.result.verdict == "unproven"
    assert outcome.result.findings[0].code == "FW507"
    stored, changed = compare_with_record(source.with_name("out.onnx"))
    assert changed is None
    assert stored is not None
    assert stored.verdict == "unproven"


def test_a_pass_that_hangs_is_left_out(source: Path, planted: Callable[..., None]) -> None:
    planted(hanging)
    (row,) = run(source, recipe=False, timeout=2.0).tried
    assert row.reason.startswith("the time limit was reached")


def test_a_smaller_file_counts_only_where_it_was_asked_for(source: Path, planted: Callable[..., None]) -> None:
    def lighter(source: Path, target: Path) -> None:
        model = onnx.load(source)
        del model.metadata_props[:]
        onnx.save(model, target)

    model = onnx.load(source)
    model.metadata_props.add(key="padding", value="x" * 100_000)
    onnx.save(model, source)
    planted(lighter)
    assert run(source, recipe=False).kept == ()
    result = run(source, recipe=False, goal=OptimizeGoal(True, ("batch=8",), 0.25, 1))
    assert result.kept == ("lighter",)
    assert result.tried[0].reason == "smaller, and not slower"
    assert result.after is not None
    assert result.after.bytes < result.before.bytes - 90_000


@pytest.mark.parametrize(
    ("value", "low", "high", "alone", "where_smaller"),
    [
        (1.1, 1.02, 1.2, True, True),
        (1.0, 0.9, 1.1, False, True),
        (0.98, 0.97, 0.99, False, True),
        (0.95, 0.92, 0.96, False, True),
        (0.93, 0.91, 0.94, False, False),
    ],
)
def test_what_is_smaller_may_be_hardly_slower(
    value: float, low: float, high: float, alone: bool, where_smaller: bool
) -> None:
    from fairway.tune.bench.ratio import Ratio
    from fairway.tune.optimize.faster import Speeds

    here, elsewhere = Ratio(value, low, high), Ratio(1.0, 0.99, 1.01)
    speeds = Speeds((({"batch": 8}, elsewhere), ({"batch": 64}, here)))
    assert (speeds.is_worthwhile(smaller=False), speeds.is_worthwhile(smaller=True)) == (alone, where_smaller)


def test_a_lucky_pass_is_dropped_when_it_is_not_faster_again(
    source: Path, planted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairway.tune.bench.ratio import Ratio
    from fairway.tune.optimize.faster import Race, Speeds

    lucky = iter([Speeds((({"batch": 8}, Ratio(1.1, 1.02, 1.2)),)), Speeds((({"batch": 8}, Ratio(1.0, 0.9, 1.1)),))])
    monkeypatch.setattr(Race, "compare", lambda *arguments: next(lucky))
    planted(unchanged)
    result = run(source, recipe=False)
    assert result.kept == ()
    assert result.tried[0].reason == "faster, but not when timed against the input again"
    assert not source.with_name("out.onnx").exists()


def test_an_input_that_is_wrong_is_refused(source: Path, planted: Callable[..., None]) -> None:
    planted(straight)
    save(source, weight_of(source) * 1.01, 6)
    with pytest.raises(UserError) as caught:
        run(source)
    assert caught.value.finding.code == "FW416"
    assert "net.onnx is wrong: FW401" in caught.value.finding.seen


@pytest.mark.parametrize("one", PASSES, ids=lambda one: one.name)
def test_every_pass_makes_a_file_that_runs(one: Pass, source: Path) -> None:
    import onnxruntime

    target = source.with_name("made.onnx")
    one.apply(source, target)
    x = np.ones((2, WIDE), dtype=np.float32)
    runs = [
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for path in (source, target)
    ]
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-5, atol=1e-5)


def test_a_pass_whose_package_is_missing_says_what_to_install(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PASSES", (Pass("slim", "planted", straight, "no_such_package"),))
    (row,) = run(source, recipe=False).tried
    assert row.reason == "no_such_package is not installed: pip install 'fairway-onnx[optimize]'"


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_tells_the_story(
    source: Path, planted: Callable[..., None], capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    planted(raising, straight)
    options = {"at": ["batch=8"], "seconds": 0.25, "threads": 1, "level": "quick", "dims": ["batch=1..8"]}
    assert command(source, json=as_json, **options) == 0
    message = capsys.readouterr().out
    written = source.with_name("net.optimized.onnx")
    assert written.exists()
    if as_json:
        reported = json.loads(message)
        assert (reported["verdict"], reported["optimized"]["kept"], reported["path"]) == (
            "unproven",
            ["straight"],
            str(written),
        )
        return
    assert "raising   left out, raised RuntimeError: shape inference failed" in message
    assert "straight  KEPT, faster: " in message
    assert "judged    against net.onnx itself, over batch 1..8" in message
    assert "unproven  " in message


def test_the_command_says_when_nothing_helped(
    source: Path, planted: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    planted(raising)
    assert command(source, dims=["batch=1..8"], at=["batch=8"], threads=1) == 1
    assert "nothing helped, so nothing was written; " in capsys.readouterr().out


def test_an_input_that_does_not_run_is_named_before_any_pass(source: Path, planted: Callable[..., None]) -> None:
    planted(straight)
    model = onnx.load(source)
    shape = numpy_helper.from_array(np.array([3, WIDE], dtype=np.int64), "shape")
    model.graph.initializer.append(shape)
    model.graph.node[0].input[0] = "reshaped"
    model.graph.node.insert(0, helper.make_node("Reshape", ["x", "shape"], ["reshaped"]))
    onnx.save(model, source)
    with pytest.raises(UserError) as caught:
        run(source, recipe=False)
    assert caught.value.finding.code == "FW408"
    assert caught.value.finding.seen.startswith("net.onnx at batch=8: ")
    assert "requested shape:{3,192}" in caught.value.finding.seen
