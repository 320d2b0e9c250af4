"""Where arms are timed: the smallest sizes, the example's, the largest, or those that the user names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from fairway.diagnostics.errors import complain
from fairway.judge.runtimes.eager import to_array
from fairway.model.dims import Domain, Point, show
from fairway.model.subject import Subject


def choose_points(subject: Subject, asked: Sequence[str]) -> tuple[Point, ...]:
    """The points asked for as `batch=8,time=100`; unless told, three of the domain."""
    if asked:
        return tuple(_parse(text, subject.domain, subject.example) for text in asked)
    low = {dim.name: dim.sizes[0] for dim in subject.domain}
    high = {dim.name: dim.sizes[-1] for dim in subject.domain}
    points = [low, dict(subject.example), high]
    return tuple(point for i, point in enumerate(points) if point not in points[:i])


def _parse(text: str, domain: Domain, example: Point) -> Point:
    """One point; sizes that are not named are the example's."""
    point = dict(example)
    for part in text.split(","):
        name, _, number = part.partition("=")
        name = name.strip()
        if name not in domain.names:
            known = ", ".join(domain.names) or "none"
            raise complain("FW005", f"--at {text!r:.200} names {name!r:.80}; the dims are: {known}")
        if not number.strip().isdecimal() or len(number) > 18:
            raise complain("FW006", f"--at {text!r:.200}: a size is a whole number", todo=("Write time=100.",))
        point[name] = int(number)
    if not domain.holds(point):
        raise complain("FW023", f"{show(point)}; the domain is {domain}")
    return point


def write_points(subject: Subject, points: Sequence[Point], folder: Path, seed: int) -> None:
    """The inputs at each point, for other processes to read. bfloat16, which numpy lacks, goes as 16 bits."""
    for number, point in enumerate(points):
        tensors = subject.make(point, seed, "normal")
        arrays = {str(i): _bits(tensor) for i, tensor in enumerate(tensors)}
        np.savez(folder / f"{number}.npz", **arrays)  # type: ignore[arg-type]  # numpy's own types forbid names


def _bits(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.uint16).numpy()
    return np.asarray(to_array(tensor), order="C")
