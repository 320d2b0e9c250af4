"""The ranking: the planted layer is first however the work is spread, and no finished trial is lost."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.quantize.nets import mlp, of_file

from fairway.diagnostics.errors import UserError
from fairway.tune.quantize import layer_trials as sensitivity
from fairway.tune.quantize.accuracy import OrtFile
from fairway.tune.quantize.error_metrics import add_scores, score_outputs
from fairway.tune.quantize.layer_trials import make_groups, plan_trials
from fairway.tune.quantize.prepare import Unit
from fairway.tune.quantize.quality_budget import Budget
from fairway.tune.quantize.quantize_file import QuantizeSettings
from fairway.tune.quantize.trial_log import KEPT_ALONE, QUANTIZED_ALONE, LayerTrial
from fairway.tune.sensitivity import Sensitivity, SensitivityRequest, measure_sensitivity
from fairway.workers.fanout import Parallelism

SETTINGS = QuantizeSettings("int8-static", samples=12, budget=Budget(0.001))
TRIALS = 3 * 2 * 3
"""Units, kinds, samples held back."""


def sense(tmp_path: Path, settings: QuantizeSettings = SETTINGS, **more: Any) -> Sensitivity:
    source = tmp_path / "net.onnx"
    if not source.exists():
        mlp(source, planted=2)
    return measure_sensitivity(source, of_file(source, batch=(1, 4)), tmp_path / "found", settings, **more)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows by one for each comparison from now on."""
    calls: list[None] = []

    def counting(*given: Any) -> Any:
        calls.append(None)
        return score_outputs(*given)

    monkeypatch.setattr(sensitivity, "score_outputs", counting)
    return calls


def test_the_planted_layer_is_found_and_listed(tmp_path: Path) -> None:
    result = sense(tmp_path)
    assert result.finished
    assert result.trials == TRIALS
    first, second, third = result.ranked
    assert first.group.name == "third"
    assert first.alone > 10 * second.alone
    assert first.kept < second.kept, "keeping it in float helps most"
    assert result.do_not_quantize == ("third",)
    assert result.drop_without < 0.001 < result.all_quantized
    listed = json.loads((tmp_path / "found" / "do_not_quantize.json").read_text())
    assert listed["nodes"] == ["third"]
    ranking = json.loads((tmp_path / "found" / "ranking.json").read_text())
    assert [row["group"] for row in ranking["ranking"]] == [first.group.name, second.group.name, third.group.name]
    assert ranking["ranking"][0]["alone_error"] > 0
    assert (tmp_path / "found" / "ranking.svg").read_text().startswith("<svg")
    assert "1. third" in str(result)
    assert third.samples == 3


def test_spread_out_it_gives_the_same_numbers(tmp_path: Path) -> None:
    here = sense(tmp_path)
    there = sense(tmp_path, request=SensitivityRequest(parallelism=Parallelism(2), overwrite=True))
    assert [(item.group.name, item.alone, item.kept) for item in here.ranked] == [
        (item.group.name, item.alone, item.kept) for item in there.ranked
    ]


def test_killed_in_the_middle_it_goes_on_with_what_was_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlp(tmp_path / "net.onnx", planted=2)
    child = os.fork()
    if child == 0:
        count = 0
        compare_all = sensitivity.score_outputs

        def deadly(*given: Any) -> Any:
            nonlocal count
            count += 1
            if count == 14:  # in the middle of a sample, of which both trials are taken
                os.kill(os.getpid(), signal.SIGKILL)
            return compare_all(*given)

        sensitivity.score_outputs = deadly  # type: ignore[assignment]
        try:
            sense(tmp_path)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    kept = (tmp_path / "found" / "trials.jsonl").read_text().splitlines()
    assert len(kept) == 1 + 13
    calls = counted(monkeypatch)
    result = sense(tmp_path)
    assert (result.finished, result.trials, len(calls)) == (True, TRIALS, TRIALS - 13)
    assert (tmp_path / "found" / "trials.jsonl").read_text().splitlines()[: len(kept)] == kept


def test_a_full_disk_is_reported_and_loses_no_finished_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "found" / "trials.jsonl"
    calls = 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def filling(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 8:  # the kernel takes ten bytes more, then no more
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, before[1]))
        return score_outputs(*given)

    with monkeypatch.context() as patched:
        patched.setattr(sensitivity, "score_outputs", filling)
        try:
            with pytest.raises(UserError) as raised:
                sense(tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.finding.code == "FW009"
    assert os.strerror(errno.EFBIG) in raised.value.finding.seen
    assert sorted(path.parent.iterdir()) == [path]
    calls = counted(monkeypatch)
    result = sense(tmp_path)
    assert (result.finished, result.trials, len(calls)) == (True, TRIALS, TRIALS - 7)


def test_half_a_line_is_dropped_and_written_again(tmp_path: Path) -> None:
    full = sense(tmp_path)
    path = tmp_path / "found" / "trials.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    again = sense(tmp_path)
    assert again.trials == TRIALS
    assert len([json.loads(line) for line in path.read_text().splitlines()]) == 1 + TRIALS
    assert [item.alone for item in again.ranked] == [item.alone for item in full.ranked]


def test_trials_of_something_else_are_not_gone_on_with(tmp_path: Path) -> None:
    sense(tmp_path)
    with pytest.raises(UserError) as raised:
        sense(tmp_path, replace(SETTINGS, per_channel=False))
    assert raised.value.finding.code == "FW712"
    assert raised.value.finding.seen.endswith(": per_channel changed since these trials were made")
    assert sense(tmp_path, replace(SETTINGS, per_channel=False), request=SensitivityRequest(overwrite=True)).finished


def test_without_time_there_is_a_ranking_and_a_later_run_continues(tmp_path: Path) -> None:
    short = sense(tmp_path, request=SensitivityRequest(seconds=0.0))
    assert not short.finished
    assert 0 < short.trials < TRIALS
    assert "the time was up" in str(short)
    assert short.ranked[0].alone_error is None, "one sample tells nothing of the spread"
    assert sense(tmp_path).finished


def test_the_loss_is_that_of_a_file_quantized_so_by_onnxruntime_alone(tmp_path: Path) -> None:
    """Without anything of Fairway's but the samples: quantize_static for each node by itself."""
    from onnxruntime.quantization import QuantType, quantize_static

    from fairway.tune.quantize.prepare import prepare_graph
    from fairway.tune.quantize.sample_split import open_samples

    result = {item.group.name: item.alone for item in sense(tmp_path).ranked}
    samples = open_samples(of_file(tmp_path / "net.onnx", batch=(1, 4)), None, SETTINGS.samples)
    prepared = prepare_graph(tmp_path / "net.onnx", tmp_path)
    right = OrtFile(prepared.path)

    class Reader:
        def __init__(self) -> None:
            self.left = samples.read_calibration()

        def get_next(self) -> Any:
            return next(self.left, None)

    for name in ("second", "third"):
        quantize_static(
            prepared.path,
            tmp_path / "stock.onnx",
            Reader(),
            nodes_to_quantize=[name],
            per_channel=True,
            op_types_to_quantize=["MatMul"],
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            extra_options={"OpTypesToExcludeOutputQuantization": ["MatMul"]},
        )
        stock = OrtFile(tmp_path / "stock.onnx")
        score = add_scores(score_outputs(["y"], right(s), stock(s)) for s in samples.held_back)
        assert result[name] == pytest.approx(score.compute_drop("sqnr"), rel=1e-6), name


def test_the_recipes_metric_ranks_too(tmp_path: Path) -> None:
    source = mlp(tmp_path / "net.onnx", planted=2)
    sample = {"x": np.random.default_rng(5).standard_normal((4, 3, 48)).astype("float32")}
    right = OrtFile(source)(sample)[0]

    def metric(model: Callable[[Any], dict[str, Any]]) -> float:
        return 1.0 - float(abs(model(sample)["y"] - right).mean())

    subject = replace(of_file(source, batch=(1, 4)), metric=metric)
    result = measure_sensitivity(source, subject, tmp_path / "found", SETTINGS)
    assert (result.metric, result.trials, result.ranked[0].group.name) == ("recipe", 6, "third")


def test_groups_are_made_by_the_first_names_of_a_path() -> None:
    units = [Unit(f"n{i}", (f"n{i}",), "MatMul", 1, module) for i, module in enumerate(("a.0.q", "a.0.k", "a.1.q", ""))]
    assert [(g.name, len(g.units)) for g in make_groups(units, 2)] == [("a.0", 2), ("a.1", 1), ("n3", 1)]
    assert [g.name for g in make_groups(units, None)] == ["n0", "n1", "n2", "n3"]


def test_the_plan_ranks_everything_before_it_looks_closer() -> None:
    groups = make_groups([Unit(f"n{i}", (f"n{i}",), "MatMul", 1) for i in range(40)], None)
    done: dict[tuple[str, str, int], LayerTrial] = {}
    steps = []
    for number, some, kinds in plan_trials(4, groups, lambda: done, "sqnr"):
        steps.append((number, len(some), kinds))
        for group in some:
            for kind in kinds:
                done[kind, group.name, number] = LayerTrial(kind, group.name, number, None, float(group.name[1:]))
    assert steps[:4] == [
        (0, 40, (QUANTIZED_ALONE,)),
        (1, 40, (QUANTIZED_ALONE,)),
        (0, 40, (KEPT_ALONE,)),
        (1, 40, (KEPT_ALONE,)),
    ]
    assert steps[4:] == [
        (2, 20, (QUANTIZED_ALONE, KEPT_ALONE)),
        (3, 20, (QUANTIZED_ALONE, KEPT_ALONE)),
        (2, 20, (QUANTIZED_ALONE, KEPT_ALONE)),
        (3, 20, (QUANTIZED_ALONE, KEPT_ALONE)),
    ]
    assert len(done) == 40 * 2 * 4
