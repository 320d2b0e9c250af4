"""The points at which arms are timed: the smallest sizes, the example's, the largest, or those that the user names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.judge.runtimes.eager import to_array
from fairway.model.dims import Domain, Point, describe_point
from fairway.model.subject import Subject


def choose_points(subject: Subject, requested: Sequence[str]) -> tuple[Point, ...]:
    """Return the requested points, such as `batch=8,time=100`; by default three points of the domain."""
    if requested:
        return tuple(_parse_point(text, subject.domain, subject.example) for text in requested)
    low = {dim.name: dim.sizes[0] for dim in subject.domain}
    high = {dim.name: dim.sizes[-1] for dim in subject.domain}
    points = [low, dict(subject.example), high]
    return tuple(point for i, point in enumerate(points) if point not in points[:i])


def _parse_point(text: str, domain: Domain, example: Point) -> Point:
    """Parse one point; sizes that are not named are the example's."""
    point = dict(example)
    for part in text.split(","):
        name, _, number = part.partition("=")
        name = name.strip()
        if name not in domain.names:
            known = ", ".join(domain.names) or "none"
            raise complain(
                Code.UNKNOWN_DIM, f"--at {text!r:.200} names {name!r:.80}; expected one of the dims: {known}"
            )
        if not number.strip().isdecimal() or len(number) > 18:
            raise complain(
                Code.UNKNOWN_OPTION, f"--at {text!r:.200}: expected a whole number as size", todo=("Write time=100.",)
            )
        point[name] = int(number)
    if not domain.holds(point):
        raise complain(Code.OUTSIDE_THE_DOMAIN, f"{describe_point(point)}; the domain is {domain}")
    return point


def write_points(subject: Subject, points: Sequence[Point], folder: Path, seed: int) -> None:
    """Write the inputs at each point for other processes. bfloat16, which numpy lacks, is stored as 16 bits."""
    for number, point in enumerate(points):
        tensors = subject.make(point, seed, "normal")
        arrays = {str(i): _make_array(tensor) for i, tensor in enumerate(tensors)}
        np.savez(folder / f"{number}.npz", **arrays)  # type: ignore[arg-type]  # numpy's own types forbid names


def _make_array(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.uint16).numpy()
    return np.asarray(to_array(tensor), order="C")
