"""Events become a standing, the standing a line; the diary is whole at every moment."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairway.cli.show import fit
from fairway.record.progress import FILE, Diary, Standing, hear, show_time


def after(*events: Any, seconds: float = 1.0) -> Standing:
    """The standing where one event comes each second."""
    standing = Standing(0.0)
    for n, event in enumerate(events):
        standing = hear(standing, event, (n + 1) * seconds)
    return standing


def step(name: str) -> Any:
    return SimpleNamespace(name=name)


def outcome(name: str, verdict: str, right: int | None = None, samples: int = 0) -> Any:
    tested = [SimpleNamespace(note="")] * samples + [SimpleNamespace(note="not legal in PyTorch")]
    evidence = None if right is None else SimpleNamespace(points_right=right, tested=tested)
    findings = (SimpleNamespace(code="FW206"), SimpleNamespace(code="FW206"))
    return SimpleNamespace(step=step(name), verdict=verdict, seconds=2.0, evidence=evidence, findings=findings)


def test_a_rung_is_told_with_samples_time_left_and_what_is_best() -> None:
    events = [("rung", step("trace")), ("outcome", outcome("trace", "wrong", 12, 60)), ("rung", step("script"))]
    events += [("sample", n, 20, f"batch={n}") for n in range(6)]
    standing = after(*events)
    best = "best so far wrong, 12 of 60 right"
    assert standing.words(9.0) == ["script", "5/20 samples", "15 s left", best, "batch=5"]
    assert standing.walked[0].codes == ("FW206",)


def test_the_best_rung_stays_the_best() -> None:
    standing = after(("outcome", outcome("a", "wrong", 9, 60)), ("outcome", outcome("b", "failed")))
    assert standing.best == "wrong, 9 of 60 right"
    assert hear(standing, ("outcome", outcome("c", "unproven", 60, 60)), 9.0).best == "unproven, 60 of 60 right"


def test_time_left_counts_from_where_the_counting_began() -> None:
    resumed = after(*(("count", n, 100, "windows", "a.npy") for n in (50, 60, 70)))
    assert resumed.left(3.0) == pytest.approx(3.0)
    assert resumed.left(5.0) == pytest.approx(1.0), "time goes by between two counts"
    assert resumed.left(99.0) == 0.0
    again = hear(resumed, ("count", 0, 10, "windows", "b.npy"), 4.0)
    assert again.left(4.0) is None
    assert after(("sample", 0, 9, ""), ("sample", 1, 9, ""), seconds=0.1).left(0.2) is None, "too early to tell"


def test_a_stage_forgets_what_was_counted_and_a_tick_nothing() -> None:
    counted = after(("rung", step("trace")), ("sample", 3, 9, "batch=1"))
    assert hear(counted, ("tick",), 9.0) == counted
    assert hear(counted, ("stage", "looking for the first wrong node"), 9.0).words(9.0) == [
        "looking for the first wrong node"
    ]
    assert hear(counted, ("of another world", 1), 9.0) == counted


def test_a_part_stands_before_what_is_done_in_it() -> None:
    assert after(("part", "decoder.onnx"), ("rung", step("trace"))).words(3.0)[0] == "decoder.onnx trace"


WORDS = ["export-dynamic with rewrites", "31/60 samples", "8 s left", "best so far wrong, 12 of 60 right", "batch=2"]


@pytest.mark.parametrize("width", [12, 20, 40, 60, 80, 200])
def test_a_line_never_fills_the_terminal(width: int) -> None:
    assert len(fit(12, WORDS, width)) < width


def test_what_is_needed_most_stays_on_a_narrow_line() -> None:
    assert fit(12, ["trace", *WORDS[1:]], 40) == "  12 s  trace  31/60 samples  8 s left"
    assert fit(12, WORDS, 30) == "  12 s  export-dynamic with …"
    assert fit(12, ["bad\x1b[31m\rname"], 40) == "  12 s  bad�[31m�name"


def test_time_is_told_as_people_do() -> None:
    assert [show_time(n) for n in (0.4, 89, 91, 5399, 7200)] == ["0 s", "89 s", "2 min", "90 min", "2.0 h"]


def test_the_diary_is_whole_and_says_what_is_going_on(tmp_path: Path) -> None:
    diary = Diary(tmp_path, "out.onnx", "net")
    diary(("rung", step("trace")))
    said = json.loads((tmp_path / FILE).read_text())
    assert (said["target"], said["model"], said["rung"]) == ("out.onnx", "net", "trace")
    diary(("sample", 1, 9, "batch=1"))
    assert json.loads((tmp_path / FILE).read_text())["done"] == 0, "not at every sample"
    diary(("outcome", outcome("trace", "wrong", 3, 9)))
    said = json.loads((tmp_path / FILE).read_text())
    assert (said["walked"][0]["verdict"], said["best"]) == ("wrong", "wrong, 3 of 9 right")
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_diary_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    diary = Diary(tmp_path / "not there", "out.onnx", "net")
    diary(("rung", step("trace")))
