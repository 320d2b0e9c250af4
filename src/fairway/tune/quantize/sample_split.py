"""Samples to calibrate with and samples to judge by, and never one for both.

They come from files (each one sample, or one whose rows are split), from the recipe's `calibration`, or, where there is
nothing better, from the values that the spec allows. Calibration samples are read one after another and let go; those
held back are few and stay in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairway.diagnostics.errors import UserError, complain
from fairway.judge.runtimes.eager import to_array
from fairway.model.data import check_sample, read_data
from fairway.model.subject import Subject

Sample = dict[str, np.ndarray[Any, Any]]
EVERY = 4
"""One sample in so many is held back."""
SUFFIXES = (".npz", ".safetensors", ".pt", ".pth")


@dataclass(frozen=True)
class Samples:
    """Where samples come from, split in two."""

    source: str
    calibrating: Callable[[], Iterator[Sample]]
    held_back: tuple[Sample, ...]
    typical: Sample
    """One of a usual size, to take the time with."""
    drawn: bool = False
    """Made up from the spec, not taken from life."""


def open_samples(subject: Subject, data: Path | None, count: int) -> Samples:
    """Files if there are any, else the recipe's `calibration`, else `count` draws from the spec."""
    if data is not None:
        return _from_files(subject, data, count)
    if subject.calibration is not None:
        function = subject.calibration
        return _split(lambda: _checked(subject, function), "the recipe's calibration()", count)
    return _from_spec(subject, count)


def _from_files(subject: Subject, path: Path, count: int) -> Samples:
    files = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES) if path.is_dir() else [path]
    if not files:
        raise complain("FW702", f"{path} holds no {', '.join(SUFFIXES)}")
    if len(files) == 1:
        rows = _rows(subject, read_data(subject, files[0])[0])
        return _split(lambda: iter(rows), f"the rows of {files[0].name}", count)

    def read() -> Iterator[Sample]:
        for file in files:
            yield _as_sample(subject, read_data(subject, file)[0], file.name)

    return _split(read, f"{len(files)} files in {path.name}", count)


def _rows(subject: Subject, tensors: list[torch.Tensor]) -> list[Sample]:
    """Each row of a batch as a sample; the batch is the dim that every input's first axis has, and may be 1."""
    first = {spec.shape[0].text if spec.shape else "" for spec in subject.spec}
    name = next(iter(first)) if len(first) == 1 else ""
    if name in subject.domain.names and 1 in subject.domain[name].sizes:
        return [_as_sample(subject, [t[i : i + 1] for t in tensors], f"row {i}") for i in range(tensors[0].shape[0])]
    return [_as_sample(subject, tensors, "the file")]


def _checked(subject: Subject, function: Callable[[], Iterable[Any]]) -> Iterator[Sample]:
    try:
        for number, one in enumerate(function()):
            tensors = {n: torch.as_tensor(v) for n, v in one.items()} if isinstance(one, Mapping) else {}
            yield _as_sample(subject, check_sample(subject, tensors, f"sample {number}"), f"sample {number}")
    except UserError:
        raise
    except Exception as error:
        raise complain("FW702", f"calibration() raised {type(error).__name__}: {error}") from error


def _as_sample(subject: Subject, tensors: list[torch.Tensor], whose: str) -> Sample:
    sample = {n: np.asarray(to_array(t), order="C") for n, t in zip(subject.input_names, tensors, strict=True)}
    for name, value in sample.items():
        if value.size == 0:
            raise complain("FW702", f"{whose}: {name} has the shape {list(value.shape)}, which holds nothing")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise complain("FW703", f"{whose}: {name} holds {np.count_nonzero(~np.isfinite(value))} NaN or infinities")
    return sample


def _split(read: Callable[[], Iterator[Sample]], source: str, count: int) -> Samples:
    """Every fourth is held back; of two or three the last."""
    first = list(islice(read(), EVERY))
    if len(first) < 2:
        seen = f"{source}: {len(first)} sample{'' if len(first) == 1 else 's'}"
        raise complain("FW702", f"{seen}; one is needed to calibrate and another to judge by")
    every = min(EVERY, len(first))
    held = list(islice((s for i, s in enumerate(read()) if i % every == every - 1), max(1, count // EVERY)))
    samples = Samples(
        source, lambda: (s for i, s in enumerate(read()) if i % every != every - 1), tuple(held), _median(held)
    )
    _refuse_zeros(samples)
    return samples


def _refuse_zeros(samples: Samples) -> None:
    """A float input that is zero throughout would give every tensor behind it a range of its own making."""
    left = {name for name, value in samples.typical.items() if value.dtype.kind == "f"}
    for sample in samples.calibrating():
        left -= {name for name in left if np.any(sample[name])}
        if not left:
            return
    raise complain("FW703", f"{samples.source}: {', '.join(sorted(left))} is zero in every sample")


def _median(samples: list[Sample]) -> Sample:
    by_size = sorted(samples, key=lambda s: sum(v.size for v in s.values()))
    return by_size[len(by_size) // 2]


def _from_spec(subject: Subject, count: int) -> Samples:
    """Values drawn by seed at sizes drawn evenly on a log scale; seeds of the two kinds never meet."""

    def draw(seed: int) -> Sample:
        tensors = subject.make(_point(subject, seed), seed, "normal")
        return _as_sample(subject, tensors, f"seed {seed}")

    def calibrating() -> Iterator[Sample]:
        return (draw(1000 + i) for i in range(count))

    held = tuple(draw(900_000 + i) for i in range(max(2, count // EVERY)))
    middle = {d.name: d.sizes[_between(d.sizes, 0.5)] for d in subject.domain}
    typical = _as_sample(subject, subject.make(middle, 899_999, "normal"), "the middle of the domain")
    return Samples(f"{count} draws from the spec", calibrating, held, typical, drawn=True)


def _point(subject: Subject, seed: int) -> dict[str, int]:
    generator = np.random.default_rng(seed)
    return {d.name: d.sizes[_between(d.sizes, float(generator.random()))] for d in subject.domain}


def _between(sizes: range, share: float) -> int:
    """The place of the size that lies at `share` of the way from the smallest to the largest, by factors."""
    low, high = max(sizes[0], 1), max(sizes[-1], 1)
    wanted = float(low * (high / low) ** share)
    return min(len(sizes) - 1, max(0, round((wanted - sizes[0]) / sizes.step)))
