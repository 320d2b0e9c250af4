"""Samples to calibrate with and samples to judge by; no sample serves for both.

They come from files (each one sample, or one file whose rows are split), from the recipe's `calibration`, or else from
the spec. Calibration samples are read one after another and not kept. The few held-back samples stay in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.judge.runtimes.eager import to_array
from fairway.model.data import check_sample, read_data
from fairway.model.subject import Subject

InputArrays = dict[str, npt.NDArray[np.generic]]
HELD_BACK_EVERY = 4
"""One of so many samples is held back."""
SAMPLE_SUFFIXES = (".npz", ".safetensors", ".pt", ".pth")


@dataclass(frozen=True)
class SampleSplit:
    """A source of samples, split in two."""

    source: str
    read_calibration: Callable[[], Iterator[InputArrays]]
    held_back: tuple[InputArrays, ...]
    typical: InputArrays
    """A sample of typical size, for timing."""
    drawn_from_spec: bool = False
    """The values were generated from the spec, not taken from real data."""


def open_samples(subject: Subject, data: Path | None, count: int) -> SampleSplit:
    """Read files if there are any, else the recipe's `calibration`, else draw `count` samples from the spec."""
    if data is not None:
        return _split_files(subject, data, count)
    if subject.calibration is not None:
        function = subject.calibration
        return _split_samples(lambda: _iterate_calibration(subject, function), "the recipe's calibration()", count)
    return _draw_from_spec(subject, count)


def _split_files(subject: Subject, path: Path, count: int) -> SampleSplit:
    files = sorted(p for p in path.iterdir() if p.suffix in SAMPLE_SUFFIXES) if path.is_dir() else [path]
    if not files:
        raise complain(Code.SAMPLES_MISSING, f"{path} contains no file of type {', '.join(SAMPLE_SUFFIXES)}")
    if len(files) == 1:
        rows = _split_rows(subject, read_data(subject, files[0])[0])
        return _split_samples(lambda: iter(rows), f"the rows of {files[0].name}", count)

    def read() -> Iterator[InputArrays]:
        for file in files:
            yield _make_sample(subject, read_data(subject, file)[0], file.name)

    return _split_samples(read, f"{len(files)} files in {path.name}", count)


def _split_rows(subject: Subject, tensors: list[torch.Tensor]) -> list[InputArrays]:
    """Return each row of a batch as a sample, if every input's first axis is the same dim and that dim may be 1."""
    first = {spec.shape[0].text if spec.shape else "" for spec in subject.spec}
    name = next(iter(first)) if len(first) == 1 else ""
    if name in subject.domain.names and 1 in subject.domain[name].sizes:
        return [_make_sample(subject, [t[i : i + 1] for t in tensors], f"row {i}") for i in range(tensors[0].shape[0])]
    return [_make_sample(subject, tensors, "the file")]


def _iterate_calibration(subject: Subject, function: Callable[[], Iterable[object]]) -> Iterator[InputArrays]:
    try:
        for number, values in enumerate(function()):
            tensors = {n: torch.as_tensor(v) for n, v in values.items()} if isinstance(values, Mapping) else {}
            yield _make_sample(subject, check_sample(subject, tensors, f"sample {number}"), f"sample {number}")
    except UserError:
        raise
    except Exception as error:
        raise complain(Code.SAMPLES_MISSING, f"calibration() raised {type(error).__name__}: {error}") from error


def _make_sample(subject: Subject, tensors: list[torch.Tensor], source: str) -> InputArrays:
    sample = {n: np.asarray(to_array(t), order="C") for n, t in zip(subject.input_names, tensors, strict=True)}
    for name, value in sample.items():
        if value.size == 0:
            raise complain(Code.SAMPLES_MISSING, f"{source}: {name} has the shape {list(value.shape)}, which is empty")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            count = np.count_nonzero(~np.isfinite(value))
            raise complain(
                Code.SAMPLES_USELESS, f"{source}: expected finite numbers in {name}, got {count} NaN or infinities"
            )
    return sample


def _split_samples(read: Callable[[], Iterator[InputArrays]], source: str, count: int) -> SampleSplit:
    """Hold back every fourth sample; of two or three, the last."""
    first = list(islice(read(), HELD_BACK_EVERY))
    if len(first) < 2:
        count_text = f"{source}: {len(first)} sample{'' if len(first) == 1 else 's'}"
        raise complain(
            Code.SAMPLES_MISSING, f"{count_text}; at least 2 are needed: one to calibrate and another to judge by"
        )
    every = min(HELD_BACK_EVERY, len(first))
    held_back = list(
        islice((s for i, s in enumerate(read()) if i % every == every - 1), max(1, count // HELD_BACK_EVERY))
    )
    samples = SampleSplit(
        source,
        lambda: (s for i, s in enumerate(read()) if i % every != every - 1),
        tuple(held_back),
        _find_median_sample(held_back),
    )
    _refuse_zeros(samples)
    return samples


def _refuse_zeros(samples: SampleSplit) -> None:
    """Fail if a float input is zero in every sample: the ranges of tensors computed from it would be meaningless."""
    zero_inputs = {name for name, value in samples.typical.items() if value.dtype.kind == "f"}
    for sample in samples.read_calibration():
        zero_inputs -= {name for name in zero_inputs if np.any(sample[name])}
        if not zero_inputs:
            return
    raise complain(Code.SAMPLES_USELESS, f"{samples.source}: {', '.join(sorted(zero_inputs))} is zero in every sample")


def _find_median_sample(samples: list[InputArrays]) -> InputArrays:
    by_size = sorted(samples, key=lambda s: sum(v.size for v in s.values()))
    return by_size[len(by_size) // 2]


def _draw_from_spec(subject: Subject, count: int) -> SampleSplit:
    """Draw values by seed at sizes spread evenly on a log scale; calibration and held-back seeds never overlap."""

    def draw(seed: int) -> InputArrays:
        tensors = subject.make(_draw_point(subject, seed), seed, "normal")
        return _make_sample(subject, tensors, f"seed {seed}")

    def read_calibration() -> Iterator[InputArrays]:
        return (draw(1000 + i) for i in range(count))

    held_back = tuple(draw(900_000 + i) for i in range(max(2, count // HELD_BACK_EVERY)))
    middle_point = {d.name: d.sizes[_index_at_share(d.sizes, 0.5)] for d in subject.domain}
    typical = _make_sample(subject, subject.make(middle_point, 899_999, "normal"), "the middle of the domain")
    return SampleSplit(f"{count} draws from the spec", read_calibration, held_back, typical, drawn_from_spec=True)


def _draw_point(subject: Subject, seed: int) -> dict[str, int]:
    generator = np.random.default_rng(seed)
    return {d.name: d.sizes[_index_at_share(d.sizes, float(generator.random()))] for d in subject.domain}


def _index_at_share(sizes: range, share: float) -> int:
    """Return the index of the size at `share` of the way from the smallest to the largest on a log scale."""
    low, high = max(sizes[0], 1), max(sizes[-1], 1)
    size = float(low * (high / low) ** share)
    return min(len(sizes) - 1, max(0, round((size - sizes[0]) / sizes.step)))
