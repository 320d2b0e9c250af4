"""Calibration samples and held-back samples; bad ones are findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.quantize.nets import PLACES, WIDTH, mlp, of_file

from fairway.diagnostics.errors import UserError
from fairway.model.subject import Subject
from fairway.tune.quantize.sample_split import SampleSplit, open_samples


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    return of_file(mlp(tmp_path / "net.onnx"))


def folder_of(tmp_path: Path, arrays: list[Any]) -> Path:
    folder = tmp_path / "samples"
    folder.mkdir()
    for number, array in enumerate(arrays):
        np.savez(folder / f"{number:03}.npz", x=array)
    return folder


def drawn(count: int) -> list[Any]:
    draw = np.random.default_rng(0)
    return [draw.standard_normal((2, PLACES, WIDTH)).astype(np.float32) for _ in range(count)]


def seen(call: Callable[[], SampleSplit]) -> tuple[str, str]:
    with pytest.raises(UserError) as raised:
        call()
    return raised.value.finding.code, raised.value.finding.seen


def keys(samples: Any) -> set[bytes]:
    return {sample["x"].tobytes() for sample in samples}


@pytest.mark.parametrize("source", ["files", "rows", "calibration", "spec"])
def test_no_sample_is_used_for_both(source: str, subject: Subject, tmp_path: Path) -> None:
    arrays = drawn(12)
    if source == "files":
        result = open_samples(subject, folder_of(tmp_path, arrays), 16)
    elif source == "rows":
        subject = of_file(tmp_path / "net.onnx", batch=(1, 12))
        np.savez(tmp_path / "all.npz", x=np.concatenate([a[:1] for a in arrays]))
        result = open_samples(subject, tmp_path / "all.npz", 16)
    elif source == "calibration":
        result = open_samples(replace(subject, calibration=lambda: ({"x": a} for a in arrays)), None, 16)
    else:
        result = open_samples(subject, None, 12)
    calibrating, held = keys(result.read_calibration()), keys(result.held_back)
    assert len(calibrating) == (12 if source == "spec" else 9)
    assert len(held) == 3
    assert not calibrating & held
    assert keys(result.read_calibration()) == calibrating, "they can be gone through again"
    assert result.drawn_from_spec == (source == "spec")


def test_samples_of_the_wrong_shape_are_refused_by_file_name(subject: Subject, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [*drawn(4), np.zeros((2, PLACES, WIDTH + 1), np.float32)])
    code, what = seen(lambda: consumed(open_samples(subject, folder, 8)))
    assert (code, what) == ("FW113", "004.npz: x is float32[2, 3, 49], the spec says x: float32[batch, 3, 48]")


def consumed(samples: SampleSplit) -> SampleSplit:
    list(samples.read_calibration())
    return samples


def test_an_empty_folder_is_refused(subject: Subject, tmp_path: Path) -> None:
    code, what = seen(lambda: open_samples(subject, folder_of(tmp_path, []), 8))
    assert code == "FW702"
    assert "contains no file of type .npz" in what


def test_a_single_sample_cannot_calibrate_and_judge(subject: Subject, tmp_path: Path) -> None:
    code, what = seen(lambda: open_samples(subject, folder_of(tmp_path, [drawn(1)[0][:1]]) / "000.npz", 8))
    assert code == "FW702", what
    alone = replace(subject, calibration=lambda: iter([{"x": drawn(1)[0]}]))
    code, what = seen(lambda: open_samples(alone, None, 8))
    assert (code, what) == (
        "FW702",
        "the recipe's calibration(): 1 sample; at least 2 are needed: one to calibrate and another to judge by",
    )


def test_a_generator_that_gives_nothing_is_refused(subject: Subject) -> None:
    code, what = seen(lambda: open_samples(replace(subject, calibration=lambda: iter(())), None, 8))
    assert code == "FW702"
    assert "0 samples" in what


def test_samples_without_an_element_are_refused(tmp_path: Path) -> None:
    subject = of_file(mlp(tmp_path / "net.onnx"), batch=(0, 4))
    code, what = seen(lambda: open_samples(subject, folder_of(tmp_path, [a[:0] for a in drawn(4)]), 8))
    assert (code, what) == ("FW702", "000.npz: x has the shape [0, 3, 48], which is empty")


def test_zeros_throughout_are_refused_and_some_zeros_are_not(subject: Subject, tmp_path: Path) -> None:
    zeros = np.zeros((2, PLACES, WIDTH), np.float32)
    code, what = seen(lambda: open_samples(subject, folder_of(tmp_path, [zeros] * 5), 8))
    assert code == "FW703"
    assert "x is zero in every sample" in what
    mixed = replace(subject, calibration=lambda: iter([{"x": a} for a in (zeros, zeros, drawn(1)[0], zeros, zeros)]))
    assert len(list(open_samples(mixed, None, 8).read_calibration())) == 4


def test_nan_is_refused(subject: Subject, tmp_path: Path) -> None:
    arrays = drawn(5)
    arrays[2][1, 0, 3] = np.nan
    code, what = seen(lambda: open_samples(subject, folder_of(tmp_path, arrays), 8))
    assert (code, what) == ("FW703", "002.npz: expected finite numbers in x, got 1 NaN or infinities")


def test_an_error_of_the_generators_own_is_told(subject: Subject) -> None:
    def failing() -> Iterator[dict[str, Any]]:
        yield {"x": drawn(1)[0]}
        raise RuntimeError("the disk is gone")

    code, what = seen(lambda: open_samples(replace(subject, calibration=failing), None, 8))
    assert (code, what) == ("FW702", "calibration() raised RuntimeError: the disk is gone")
