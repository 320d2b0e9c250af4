"""Draws inputs from spec lines for the plain check of right files; shares no code with Fairway's sampling."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import torch
from case import Bounds, Call, Declared, Line, read_line

MAGNITUDES = (1.0, 1.0, 1e-3, 30.0)
"""One draw at each, for floats without a declared range."""
INTERIOR_POINTS = 2


def draw_calls(declared: Declared, seed: int = 5) -> Iterator[Call]:
    """Yield inputs at both corners of the domain and at points between them, at several magnitudes."""
    lines = [read_line(text) for text in declared.lines]
    generator = np.random.default_rng(seed)
    for point in draw_points(declared.bounds, generator):
        for magnitude in MAGNITUDES:
            yield {line.name: draw_tensor(line, point, magnitude, generator) for line in lines}


def draw_points(bounds: Bounds, generator: np.random.Generator) -> list[dict[str, int]]:
    corners = [{dim: low for dim, (low, _) in bounds.items()}, {dim: high for dim, (_, high) in bounds.items()}]
    between = [
        {dim: int(generator.integers(low, high + 1)) for dim, (low, high) in bounds.items()}
        for _ in range(INTERIOR_POINTS)
    ]
    return corners + between


def draw_tensor(line: Line, point: dict[str, int], magnitude: float, generator: np.random.Generator) -> torch.Tensor:
    shape = [int(size) if size.isdigit() else point[size] for size in line.sizes]
    below = re.fullmatch(r"<\s*(\d+)", line.values)
    ends = re.fullmatch(r"in\s+(\S+?)\s*\.\.\s*(\S+)", line.values)
    if line.dtype == "bool":
        drawn = generator.random(shape) < 0.6
        if "keep" in line.values and shape:
            drawn[..., 0] = True
        return torch.from_numpy(np.array(drawn))
    if "int" in line.dtype:
        low, high = (float(ends[1]), float(ends[2])) if ends else (0.0, float(below[1]) - 1 if below else 9.0)
        return torch.from_numpy(np.array(generator.integers(int(low), int(high) + 1, shape))).to(
            getattr(torch, line.dtype)
        )
    if line.dtype == "complex64":
        pair = generator.normal(size=(*shape, 2)) * magnitude
        return torch.view_as_complex(torch.from_numpy(pair).float())
    if ends:
        drawn = generator.uniform(float(ends[1]), float(ends[2]), shape)
    else:
        drawn = generator.normal(size=shape) * magnitude
    return torch.from_numpy(np.array(drawn)).to(getattr(torch, line.dtype))
