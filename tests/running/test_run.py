"""Windows put together are the whole: every length, tail, stitch, format; carried state; and going on after a kill."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairway.deploy.run import run
from fairway.deploy.run import walk as module
from fairway.deploy.run.windows import Windows, WindowSettings
from fairway.diagnostics.errors import UserError
from fairway.record.progress import Event, ItemsCounted
from fairway.workers.fanout import Parallelism

from .models import moving_sum, recurrent, row_wise, wavering

Array = np.ndarray[Any, Any]


def signal_of(samples: int, width: int = 2, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((samples, width), dtype=np.float32)


def code(model: Path, data: Path, out: Path, how: WindowSettings, **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        run(model, data, out, how, **more)
    return caught.value.finding.code


@pytest.mark.parametrize("samples", [3, 4, 9, 10, 11, 37])
@pytest.mark.parametrize("tail", ["short", "shift", "pad"])
@pytest.mark.parametrize(("window", "step"), [(3, 1), (5, None), (5, 2), (10, 8)])
def test_stitched_windows_are_the_whole_also_where_samples_are_lost_in_each(
    tmp_path: Path, samples: int, tail: Any, window: int, step: int | None
) -> None:
    x = signal_of(samples)
    np.save(tmp_path / "x.npy", x)
    how = WindowSettings(window, step, tail, "blend", batch=2)
    done = run(moving_sum(tmp_path), tmp_path / "x.npy", tmp_path / "out", how)
    y = np.load(tmp_path / "out/y.npy")
    assert y.shape == (samples - 2, 2)
    assert np.allclose(y, x[:-2] + x[1:-1] + x[2:], rtol=0, atol=1e-6)
    assert done.recordings[0].outputs == {"y": (samples - 2, 2)}


def test_dropping_the_tail_leaves_what_full_windows_reach(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", signal_of(11))
    run(moving_sum(tmp_path), tmp_path / "x.npy", tmp_path / "out", WindowSettings(5, 3, "drop"))
    assert np.load(tmp_path / "out/y.npy").shape == (9, 2)


@pytest.mark.parametrize("tail", ["short", "shift", "pad"])
def test_the_last_window_is_shorter_or_moved_back_or_filled_with_zeros(tmp_path: Path, tail: Any) -> None:
    x = signal_of(11, 1)
    np.save(tmp_path / "x.npy", x)
    run(wavering(tmp_path), tmp_path / "x.npy", tmp_path / "out", WindowSettings(4, 4, tail))
    wanted = {"short": x[8:].mean(), "shift": x[7:].mean(), "pad": x[8:].sum() / 4}[tail]
    means = np.load(tmp_path / "out/mean.npy")
    assert means.shape == (3, 1)
    assert abs(means[2, 0] - wanted) < 1e-6


def by_hand(x: Array, window: int, step: int, stitch: str) -> Array:
    sums, weights = np.zeros(len(x)), np.zeros(len(x))
    for start in range(0, len(x) - window + 1, step):
        said = x[start : start + window] - x[start : start + window].mean()
        fading = np.minimum(np.arange(1, window + 1), np.arange(window, 0, -1))
        weight = fading if stitch == "blend" else np.ones(window)
        if stitch == "last":
            sums[start : start + window], weights[start : start + window] = said, 1
        else:
            sums[start : start + window] += said * weight
            weights[start : start + window] += weight
    return sums / weights


@pytest.mark.parametrize("stitch", ["blend", "mean", "last"])
def test_where_windows_disagree_they_are_blended_averaged_or_the_later_one_counts(tmp_path: Path, stitch: Any) -> None:
    x = signal_of(20, 1)
    np.save(tmp_path / "x.npy", x)
    run(wavering(tmp_path), tmp_path / "x.npy", tmp_path / "out", WindowSettings(8, 3, "short", stitch, batch=3))
    y = np.load(tmp_path / "out/y.npy")
    assert np.allclose(y[:, 0], by_hand(x[:, 0].astype("f8"), 8, 3, stitch), rtol=0, atol=1e-6)
    means = np.load(tmp_path / "out/mean.npy")
    assert means.shape == (5, 1), "an output without the dim has one row for each window"
    assert np.allclose(means[2, 0], x[6:14].mean(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("window", [1, 7, 64])
def test_windows_with_carried_state_are_the_whole_sequence_at_float_precision(tmp_path: Path, window: int) -> None:
    model = recurrent(tmp_path)
    np.save(tmp_path / "x.npy", signal_of(300))
    how = WindowSettings(window, carry={"h0": "h1"})
    run(model, tmp_path / "x.npy", tmp_path / "parts", how)
    run(model, tmp_path / "x.npy", tmp_path / "whole", WindowSettings(carry={"h0": "h1"}))
    parts, whole = np.load(tmp_path / "parts/y.npy"), np.load(tmp_path / "whole/y.npy")
    assert parts.shape == whole.shape == (300, 8)
    assert np.abs(parts - whole).max() < 1e-6
    assert not (tmp_path / "parts/h1.npy").exists()


def test_state_that_is_not_carried_makes_a_difference(tmp_path: Path) -> None:
    model = recurrent(tmp_path)
    x = signal_of(30)
    np.savez(tmp_path / "x.npz", x=x, h0=np.zeros((1, 1, 8), np.float32))
    carried, whole = WindowSettings(1, carry={"h0": "h1"}), WindowSettings(carry={"h0": "h1"})
    run(model, tmp_path / "x.npz", tmp_path / "a", carried)
    run(model, tmp_path / "x.npz", tmp_path / "b", whole)
    np.savez(tmp_path / "x.npz", x=x, h0=np.ones((1, 1, 8), np.float32))
    run(model, tmp_path / "x.npz", tmp_path / "c", carried)
    first, other = np.load(tmp_path / "a/y.npy"), np.load(tmp_path / "c/y.npy")
    assert np.abs(first - np.load(tmp_path / "b/y.npy")).max() < 1e-6
    assert np.abs(first - other)[0].max() > 0.01, "the recording's own first state is used"


@pytest.mark.parametrize(
    "how",
    [
        WindowSettings(4, 2, carry={"h0": "h1"}),
        WindowSettings(4, carry={"h0": "h1"}, batch=2),
        WindowSettings(4, tail="shift", carry={"h0": "h1"}),
    ],
)
def test_state_is_not_carried_where_windows_do_not_follow_one_another(tmp_path: Path, how: WindowSettings) -> None:
    np.save(tmp_path / "x.npy", signal_of(30))
    assert code(recurrent(tmp_path), tmp_path / "x.npy", tmp_path / "out", how) == "FW810"


def test_steps_that_leave_gaps_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", signal_of(30))
    with pytest.raises(UserError, match="steps of 4 with windows of 5, of which 2 have no output, leave gaps"):
        run(moving_sum(tmp_path), tmp_path / "x.npy", tmp_path / "out", WindowSettings(5, 4))


def test_a_file_where_only_the_batch_varies_is_run_by_rows(tmp_path: Path) -> None:
    ids = np.arange(30).reshape(10, 3)
    np.save(tmp_path / "ids.npy", ids)
    done = run(row_wise(tmp_path), tmp_path / "ids.npy", tmp_path / "out", WindowSettings(batch=4))
    assert np.array_equal(np.load(tmp_path / "out/y.npy"), ids.sum(1))
    assert done.recordings[0].windows == 3


def save_as(path: Path, x: Array) -> None:
    match path.suffix:
        case ".npy":
            np.save(path, x[None])  # with a batch dim of one
        case ".npz":
            (np.savez_compressed if "packed" in path.name else np.savez)(path, x=x, other=x[::-1])
        case ".csv":
            with path.open("w", newline="") as file:
                rows = [[number, *map(float, row)] for number, row in enumerate(x)]
                csv.writer(file).writerows([["t", "x_a", "x_b"], *rows])
        case ".parquet":
            import pyarrow
            import pyarrow.parquet

            table = pyarrow.table({"t": np.arange(len(x)), "x.0": x[:, 0], "x.1": x[:, 1]})
            pyarrow.parquet.write_table(table, path)
        case ".safetensors":
            from safetensors.numpy import save_file

            save_file({"x": x}, path)
        case ".zarr":
            import zarr

            group: Any = zarr.open_group(str(path), mode="w")
            group.create_array("x", data=x, chunks=(7, 2))


NAMES = ["a.npy", "b.npz", "packed.npz", "c.csv", "d.parquet", "e.safetensors", "f.zarr"]


def test_every_format_and_a_folder_of_them_give_the_same(tmp_path: Path) -> None:
    x = signal_of(50)
    (tmp_path / "data").mkdir()
    for name in NAMES:
        save_as(tmp_path / "data" / name, x)
    done = run(moving_sum(tmp_path), tmp_path / "data", tmp_path / "out", WindowSettings(16, batch=2))
    assert sorted(one.recording for one in done.recordings) == sorted(NAMES)
    first = np.load(tmp_path / "out/a/y.npy")
    for name in NAMES:
        assert np.array_equal(np.load(tmp_path / "out" / Path(name).stem / "y.npy"), first), name


RUN_UNTIL_KILLED = """
import os, signal
from pathlib import Path

import {module} as module
from fairway.deploy.run import run
from fairway.deploy.run.windows import WindowSettings

events = []

def die(event):
    events.append(event)
    if len(events) == 5:
        os.kill(os.getpid(), signal.SIGKILL)

module.NOTE_SECONDS = 0.0
folder = Path({folder!r})
run(Path({model!r}), folder / "x.npy", folder / "out", {settings!r}, on_event=die)
"""


@pytest.mark.parametrize("carried", [False, True])
def test_a_run_that_was_killed_goes_on_and_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carried: bool
) -> None:
    model = recurrent(tmp_path) if carried else wavering(tmp_path)
    np.save(tmp_path / "x.npy", signal_of(200, 2 if carried else 1))
    how = WindowSettings(5, carry={"h0": "h1"}) if carried else WindowSettings(20, 7, batch=3)
    run(model, tmp_path / "x.npy", tmp_path / "at once", how)
    monkeypatch.setattr(module, "NOTE_SECONDS", 0.0)
    # A fresh process: a fork of this one, which has threads, may wait for a lock that none of them gives back.
    program = RUN_UNTIL_KILLED.format(module=module.__name__, model=str(model), folder=str(tmp_path), settings=how)
    assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    told: list[Event] = []
    run(model, tmp_path / "x.npy", tmp_path / "out", how, on_event=told.append)
    first = told[0]
    assert isinstance(first, ItemsCounted)
    assert first.unit == "windows"
    assert first.done > (5 if carried else 3), "it does not start again"
    assert "samples/s" in first.label
    for path in sorted((tmp_path / "at once").iterdir()):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes(), path.name


def test_recordings_that_were_finished_are_not_run_again(tmp_path: Path) -> None:
    model = moving_sum(tmp_path)
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data/a.npy", signal_of(30))
    (tmp_path / "data/b.npy").write_bytes(b"not yet")
    assert code(model, tmp_path / "data", tmp_path / "out", WindowSettings(5)) == "FW113"
    told: list[str] = []
    assert code(model, tmp_path / "data", tmp_path / "out", WindowSettings(6)) == "FW809"
    np.save(tmp_path / "out.part/a/y.npy", np.zeros(1))  # to see that it is left alone
    assert code(model, tmp_path / "data", tmp_path / "out", WindowSettings(5), on_event=told.append) == "FW113"
    assert told == []
    assert np.load(tmp_path / "out.part/a/y.npy").shape == (1,)


@pytest.mark.parametrize("spread", [Parallelism(2), pytest.param(Parallelism(2, "ray"), marks=pytest.mark.slow)])
def test_recordings_that_are_spread_out_give_the_same_bytes(tmp_path: Path, spread: Parallelism) -> None:
    model = recurrent(tmp_path)
    (tmp_path / "data").mkdir()
    for number in range(3):
        np.save(tmp_path / f"data/{number}.npy", signal_of(30 + number, seed=number))
    how = WindowSettings(5, carry={"h0": "h1"})
    here = run(model, tmp_path / "data", tmp_path / "here", how)
    told: list[str] = []
    there = run(
        model,
        tmp_path / "data",
        tmp_path / "there",
        how,
        spreading=spread,
        on_event=lambda event: told.append(event.label),
    )
    assert [one.recording for one in there.recordings] == [one.recording for one in here.recordings]
    assert [one.rpartition(": ")[2] for one in told] == [f"{n} of 3 recordings" for n in (1, 2, 3)]
    written = sorted(path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*.npy"))
    assert len(written) == 3
    for path in written:
        assert (tmp_path / "there" / path).read_bytes() == (tmp_path / "here" / path).read_bytes(), path


def test_a_worker_s_refusal_is_told_as_one_of_this_process(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(2):
        (tmp_path / f"data/{number}.npy").write_bytes(b"no array")
    assert (
        code(moving_sum(tmp_path), tmp_path / "data", tmp_path / "out", WindowSettings(5), spreading=Parallelism(2))
        == "FW113"
    )


def test_what_another_run_left_is_not_gone_on_with(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", signal_of(30))
    (tmp_path / "out.part").mkdir()
    (tmp_path / "out.part/run.json").write_text("{}")
    (tmp_path / "out.part/y.npy").touch()
    assert code(moving_sum(tmp_path), tmp_path / "x.npy", tmp_path / "out", WindowSettings(5)) == "FW809"


def test_memory_does_not_grow_with_the_recording(tmp_path: Path) -> None:
    import tracemalloc

    model = moving_sum(tmp_path)
    peaks = []
    for samples in (20_000, 200_000):
        np.save(tmp_path / "x.npy", signal_of(samples))
        tracemalloc.start()
        run(model, tmp_path / "x.npy", tmp_path / f"out{samples}", WindowSettings(1000, batch=4))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize(
    ("name", "array"), [("x.npy", np.zeros((9, 5), "f")), ("x.npy", np.zeros((0, 2), "f")), ("x.txt", np.zeros((9, 2)))]
)
def test_data_that_does_not_fit_is_refused(tmp_path: Path, name: str, array: Array) -> None:
    with (tmp_path / name).open("wb") as file:
        np.save(file, array)
    assert code(moving_sum(tmp_path), tmp_path / name, tmp_path / "out", WindowSettings(5)) == "FW113"


def test_whole_numbers_are_not_made_of_fractions(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.full((4, 3), 0.5))
    assert code(row_wise(tmp_path), tmp_path / "ids.npy", tmp_path / "out", WindowSettings(batch=2)) == "FW113"


def test_the_first_window_over_a_position_is_found_for_every_position() -> None:
    for window, step, lost in ((5, 2, 0), (5, 3, 2), (4, 4, 0), (7, 1, 3)):
        windows = Windows(40, window, step, "short", lost)
        for position in range(windows.answers):
            spans = [windows.span(number) for number in range(windows.count)]
            over = [n for n, (start, count) in enumerate(spans) if start <= position < start + count - lost]
            assert windows.find_first_window(position) == over[0]
