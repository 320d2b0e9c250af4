"""Events become progress, and progress becomes a line. The progress file is complete at every moment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairway.cli.show import fit_line
from fairway.record.progress import (
    PROGRESS_FILE,
    BestChanged,
    Event,
    ItemsCounted,
    PartStarted,
    Progress,
    ProgressFile,
    RungFinished,
    RungStarted,
    StageStarted,
    StillWorking,
    apply_event,
    format_duration,
)
from fairway.record.progress_display import open_progress


def after(*events: Event, seconds: float = 1.0) -> Progress:
    """The progress if one event comes each second."""
    progress = Progress(0.0)
    for n, event in enumerate(events):
        progress = apply_event(progress, event, (n + 1) * seconds)
    return progress


def finished(route: str, verdict: str, right: int | None = None, total: int | None = None) -> RungFinished:
    return RungFinished(route, verdict, 2.0, right, total, ("FW206",))


def test_a_rung_is_described_with_samples_time_left_and_the_best() -> None:
    events: list[Event] = [RungStarted("trace"), finished("trace", "wrong", 12, 60), RungStarted("script")]
    events += [ItemsCounted(n, 20, "samples", f"batch={n}") for n in range(6)]
    best = "best so far wrong, 12 of 60 right"
    assert after(*events).describe(9.0) == ["script", "5/20 samples", "15 s left", best, "batch=5"]


def test_the_best_rung_stays_the_best() -> None:
    progress = after(finished("a", "wrong", 9, 60), finished("b", "failed"))
    assert progress.best == "wrong, 9 of 60 right"
    assert apply_event(progress, finished("c", "unproven", 60, 60), 9.0).best == "unproven, 60 of 60 right"
    assert apply_event(progress, BestChanged("int8-static"), 9.0).best == "int8-static"


def test_time_left_counts_from_where_the_counting_began() -> None:
    resumed = after(*(ItemsCounted(n, 100, "windows", "a.npy") for n in (50, 60, 70)))
    assert resumed.seconds_left(3.0) == pytest.approx(3.0)
    assert resumed.seconds_left(5.0) == pytest.approx(1.0), "time goes by between two counts"
    assert resumed.seconds_left(99.0) == 0.0
    again = apply_event(resumed, ItemsCounted(0, 10, "windows", "b.npy"), 4.0)
    assert again.seconds_left(4.0) is None
    early = after(ItemsCounted(0, 9, "samples"), ItemsCounted(1, 9, "samples"), seconds=0.1)
    assert early.seconds_left(0.2) is None, "too early to tell"


def test_a_stage_forgets_the_count_and_a_heartbeat_nothing() -> None:
    counted = after(RungStarted("trace"), ItemsCounted(3, 9, "samples", "batch=1"))
    assert apply_event(counted, StillWorking(), 9.0) == counted
    stage = apply_event(counted, StageStarted("looking for the first wrong node"), 9.0)
    assert stage.describe(9.0) == ["looking for the first wrong node"]


def test_a_part_stands_before_its_rungs() -> None:
    assert after(PartStarted("decoder.onnx"), RungStarted("trace")).describe(3.0)[0] == "decoder.onnx trace"


WORDS = ["export-dynamic with rewrites", "31/60 samples", "8 s left", "best so far wrong, 12 of 60 right", "batch=2"]


@pytest.mark.parametrize("width", [12, 20, 40, 60, 80, 200])
def test_a_line_never_fills_the_terminal(width: int) -> None:
    assert len(fit_line(12, WORDS, width)) < width


def test_what_is_needed_most_stays_on_a_narrow_line() -> None:
    assert fit_line(12, ["trace", *WORDS[1:]], 40) == "  12 s  trace  31/60 samples  8 s left"
    assert fit_line(12, WORDS, 30) == "  12 s  export-dynamic with …"
    assert fit_line(12, ["bad\x1b[31m\rname"], 40) == "  12 s  bad�[31m�name"


def test_durations_are_rounded() -> None:
    assert [format_duration(n) for n in (0.4, 89, 91, 5399, 7200)] == ["0 s", "89 s", "2 min", "90 min", "2.0 h"]


def test_the_progress_file_is_complete_and_up_to_date(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path, "out.onnx", "net")
    file(RungStarted("trace"))
    document = json.loads((tmp_path / PROGRESS_FILE).read_text())
    assert (document["target"], document["model"], document["route"]) == ("out.onnx", "net", "trace")
    file(ItemsCounted(1, 9, "samples", "batch=1"))
    assert json.loads((tmp_path / PROGRESS_FILE).read_text())["count"] is None, "not at every sample"
    file(finished("trace", "wrong", 3, 9))
    document = json.loads((tmp_path / PROGRESS_FILE).read_text())
    assert (document["finished"][0]["verdict"], document["best"]) == ("wrong", "wrong, 3 of 9 right")
    assert [path.name for path in tmp_path.iterdir()] == [PROGRESS_FILE]


def test_a_progress_file_that_cannot_be_written_stops_no_export(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path / "not there", "out.onnx", "net")
    file(RungStarted("trace"))


def test_true_shows_progress_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with open_progress(True) as on_event:
        on_event(RungStarted("trace"))
        on_event(finished("trace", "verified", 9, 9))
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", "trace: verified, 9 of 9 right, 2.0 s")


def test_the_cursor_stays_visible_while_progress_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    with open_progress(True):
        _, err = capsys.readouterr()
    hidden, shown = err.rfind("\x1b[?25l"), err.rfind("\x1b[?25h")
    assert 0 <= hidden < shown


def test_a_function_gets_every_event_and_false_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    events: list[Event] = []
    with open_progress(events.append) as on_event:
        on_event(StageStarted("reading"))
    with open_progress(False) as on_event:
        on_event(StageStarted("reading"))
    assert events == [StageStarted("reading")]
    assert capsys.readouterr() == ("", "")
