"""From a float file to one that is delivered, or to the reasons why none is."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.quantize.nets import mlp, of_file

from fairway.cli.quantize import read_kept_nodes
from fairway.diagnostics.errors import UserError
from fairway.record.files import METADATA_KEY, hash_file
from fairway.record.reader import read_record
from fairway.tune.bench.ratio import Ratio
from fairway.tune.quantize import accuracy as judging
from fairway.tune.quantize import quantize_file as quantizing
from fairway.tune.quantize.quality_budget import Budget
from fairway.tune.quantize.quantize_file import QuantizeResult, QuantizeSettings, quantize_file

QUICK = QuantizeSettings("int8-static", samples=8, seconds=0.05, budget=Budget(max_size=0.9))


def walk(tmp_path: Path, settings: QuantizeSettings = QUICK, planted: int | None = None, **more: Any) -> QuantizeResult:
    source = tmp_path / "net.onnx"
    if not source.exists():
        mlp(source, planted)
    return quantize_file(source, of_file(source), tmp_path / "out.onnx", settings, **more)


def left_behind(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"net.onnx"}


def test_what_is_shipped_says_what_it_is(tmp_path: Path) -> None:
    result = walk(tmp_path)
    assert result.verdict == "quantized"
    assert left_behind(tmp_path) == {"out.onnx", "out.fairway.json"}
    stored = read_record(tmp_path / "out.fairway.json")
    made = stored.quantized
    assert stored.verdict == "quantized", "and never verified: that is a word for float parity"
    assert made.source.as_dict() == {"name": "net.onnx", "sha256": hash_file(tmp_path / "net.onnx")}
    assert made.scheme == "int8-static"
    assert {"flags", "saturates", "name", "machine"} == set(made.cpu.as_dict())
    assert made.calibration.drawn_from_spec is True
    assert made.calibration.held_back == 2
    shipped = made.shipped
    assert 0 < shipped.drop < 1e-3
    assert shipped.size_share < 0.9
    assert set(shipped.speed.as_dict()) == {"ratio", "low", "high", "said"}
    assert shipped.units_quantized == 3
    inside = json.loads({p.key: p.value for p in onnx.load(tmp_path / "out.onnx").metadata_props}[METADATA_KEY])
    assert inside["verdict"] == "quantized"
    assert inside["quantized"]["said"] == made.said
    assert "not held to PyTorch's numbers" in str(stored.short)
    assert str(result).startswith("quantized  ")


def test_every_scheme_is_tried_by_auto_and_its_hash_is_its_own(tmp_path: Path) -> None:
    result = walk(tmp_path, replace(QUICK, scheme="auto"))
    assert [item.variant.scheme for item in result.tried] == [
        "int8-dynamic",
        "int8-static",
        "int4-weights",
        "fp16",
        "bf16",
    ]
    assert len({item.sha256 for item in result.tried}) == 5
    assert result.best is not None


def test_the_same_bytes_by_two_names_are_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = quantizing.make_variant
    monkeypatch.setattr(quantizing, "make_variant", lambda scheme, *rest: replace(make("fp16", *rest), scheme=scheme))
    result = walk(tmp_path, replace(QUICK, scheme="auto"))
    assert [f.code for f in result.findings] == ["FW710"] * 4
    assert len(result.tried) == 1


def test_kept_nodes_stay_in_float_in_schemes_below_16_bits(tmp_path: Path) -> None:
    result = walk(tmp_path, replace(QUICK, scheme="auto", keep=("second",)))
    kept = {item.variant.scheme: [unit.name for unit in item.variant.kept] for item in result.tried}
    assert kept["int8-static"] == kept["int8-dynamic"] == kept["int4-weights"] == ["second"]


def test_a_mix_keeps_what_is_to_be_kept_as_well(tmp_path: Path) -> None:
    settings = replace(QUICK, samples=16, budget=Budget(0.001, max_size=0.9), keep=("first",))
    result = walk(tmp_path, settings, planted=2)
    assert {unit.name for unit in result.tried[1].variant.kept} >= {"first", "third"}


def test_a_node_to_keep_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="keep 'fourth'; no node of that name can be quantized"):
        walk(tmp_path, replace(QUICK, keep=("fourth",)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "expected a do_not_quantize.json"),
        ("[]", "expected a do_not_quantize.json"),
        ("{}", "KeyError: 'sha256'"),
        ('{"sha256": "00", "nodes": []}', "was made for another file than"),
    ],
)
def test_a_list_of_another_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    mlp(tmp_path / "net.onnx")
    (tmp_path / "list.json").write_text(text)
    with pytest.raises(UserError, match=said):
        read_kept_nodes(tmp_path / "list.json", tmp_path / "net.onnx")


def test_a_mix_is_found_where_everything_in_bytes_is_too_much(tmp_path: Path) -> None:
    result = walk(tmp_path, replace(QUICK, samples=16, budget=Budget(0.001, max_size=0.9)), planted=2)
    assert [item.variant.scheme for item in result.tried] == ["int8-static", "int8-mixed"]
    assert result.tried[0].drop > 0.001 >= result.tried[1].drop
    assert result.best is result.tried[1]
    assert [unit.name for unit in result.tried[1].variant.kept] == ["third"]


def test_a_budget_that_nothing_meets_ships_nothing(tmp_path: Path) -> None:
    result = walk(tmp_path, replace(QUICK, budget=Budget(max_size=0.01)))
    assert (result.verdict, result.path) == ("not shipped", None)
    assert left_behind(tmp_path) == set()
    assert result.findings[0].code == "FW708"
    assert "% > 1%" in result.findings[0].seen


def test_slower_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging.AccuracyJudge, "_time", lambda self, session: Ratio(0.5, 0.4, 0.6))
    result = walk(tmp_path, replace(QUICK, budget=Budget()))
    assert result.verdict == "not shipped"
    assert [f.code for f in result.findings] == ["FW708", "FW709"]
    assert "slower than the float file: 0.50x" in result.findings[0].seen
    assert "of its time goes into converting numbers; the slowest operators are" in result.findings[1].seen


def test_the_recipes_own_metric_counts(tmp_path: Path) -> None:
    source = mlp(tmp_path / "net.onnx")
    subject = of_file(source)
    sample = {"x": np.ones((2, 3, 48), "float32")}
    requests: list[float] = []

    def metric(model: Callable[[Any], dict[str, Any]]) -> float:
        requests.append(float(model(sample)["y"].std()))
        return requests[-1]

    result = quantize_file(source, replace(subject, metric=metric), tmp_path / "out.onnx", QUICK)
    assert result.record.quantized.metric == "recipe"
    assert result.best is not None
    assert result.best.drop == pytest.approx(max(0.0, (requests[0] - requests[-1]) / requests[0]), abs=1e-12)


def seen(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(UserError) as raised:
        call()
    return raised.value.finding.code, raised.value.finding.seen


def test_a_full_disk_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    mlp(tmp_path / "net.onnx")
    monkeypatch.setattr("fairway.tune.quantize.schemes.onnx.save", full)
    assert seen(lambda: walk(tmp_path)) == ("FW009", f"{tmp_path / 'out.onnx'}: No space left on device")
    assert left_behind(tmp_path) == set()


def test_killed_in_the_middle_it_leaves_nothing(tmp_path: Path) -> None:
    mlp(tmp_path / "net.onnx")
    child = os.fork()
    if child == 0:
        quantizing.make_variant = lambda *given: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        try:
            walk(tmp_path)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    for _ in range(100):
        if not left_behind(tmp_path):
            break
        time.sleep(0.05)
    assert left_behind(tmp_path) == set()
    assert walk(tmp_path).verdict == "quantized"


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (replace(QUICK, scheme="int3"), "scheme 'int3'; expected one of int8-dynamic, int8-static"),
        (replace(QUICK, method="mean"), "method 'mean'; expected one of minmax, entropy, percentile"),
        (replace(QUICK, metric="f1"), "metric 'f1'; expected one of sqnr"),
        (replace(QUICK, metric="recipe"), "metric 'recipe', but the recipe has no metric"),
        (replace(QUICK, samples=1), "samples 1; expected at least 2"),
    ],
)
def test_what_is_not_known_is_refused_at_once(settings: QuantizeSettings, what: str, tmp_path: Path) -> None:
    code, message = seen(lambda: walk(tmp_path, settings))
    assert code == "FW006"
    assert message.startswith(what)


def test_a_file_is_not_replaced_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "out.onnx").write_text("mine")
    assert seen(lambda: walk(tmp_path))[0] == "FW008"
    assert walk(tmp_path, overwrite=True).verdict == "quantized"
