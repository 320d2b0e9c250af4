"""Legal inputs for a case, drawn without any of Fairway's code: the corpus must be able to contradict it."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

import torch
from case import Case

Sizes = Mapping[str, int]

_LINE = re.compile(r"(?P<name>[\w.]+): (?P<dtype>\w+)\[(?P<shape>[^\]]*)\](?P<values>.*)")


def points(case: Case, seed: int, most: int = 14) -> list[dict[str, int]]:
    """Corners of the domain first, then sizes drawn evenly and near the lower end."""
    rng = random.Random(f"{case.name} {seed}")
    bounds = case.bounds
    found = [{n: low for n, (low, _) in bounds.items()}, {n: high for n, (_, high) in bounds.items()}]
    for name, (low, high) in bounds.items():
        found += [{**found[1], name: low}, {**found[0], name: high}]
    while len(found) < most:
        found.append({n: _draw_size(rng, low, high, case.multiples.get(n, 1)) for n, (low, high) in bounds.items()})
    unique = {tuple(sorted(p.items())): p for p in found}
    return list(unique.values())[:most]


def _draw_size(rng: random.Random, low: int, high: int, multiple: int) -> int:
    top = min(high, low + 4 * multiple) if rng.random() < 0.3 else high
    return rng.randrange(low, top + 1, multiple)


def draw(case: Case, sizes: Sizes, seed: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors by the names in the lines, and the arguments of `forward` that they make up."""
    generator = torch.Generator().manual_seed(seed * 7919 + sum(sizes.values()))
    flat = {name: _tensor(*parts, sizes, generator) for name, *parts in map(_parse, case.lines)}
    roots: dict[str, Any] = {}
    for name, tensor in flat.items():
        root, *path = name.split(".")
        if not path:
            roots[root] = tensor
        elif path[0].isdigit():
            roots[root] = (*roots.get(root, ()), tensor)
        else:
            roots.setdefault(root, {})[path[0]] = tensor
    return flat, roots


def _parse(line: str) -> tuple[str, str, list[str], str]:
    found = _LINE.fullmatch(line)
    assert found is not None, line
    shape = [part.strip() for part in found["shape"].split(",") if part.strip()]
    return found["name"], found["dtype"], shape, found["values"].strip()


def _tensor(dtype: str, shape: list[str], values: str, sizes: Sizes, generator: torch.Generator) -> torch.Tensor:
    size = [int(part) if part.isdigit() else sizes[part] for part in shape]
    kind = getattr(torch, dtype)
    if values.startswith("= lengths("):
        most = sizes[values[len("= lengths(") : -1]]
        return torch.randint(1, most + 1, size, generator=generator, dtype=kind)
    if values.startswith("="):
        return _mask(values[1:].strip(), size, generator).to(kind)
    if kind == torch.bool:
        return torch.rand(size, generator=generator) < 0.6
    if values.startswith("<"):
        return torch.randint(0, int(values[1:]), size, generator=generator, dtype=kind)
    span = re.fullmatch(r"in (-?[\d.]+?)\.\.(-?[\d.]+)", values)
    if kind.is_floating_point:
        if span:
            low, high = float(span[1]), float(span[2])
            return (low + (high - low) * torch.rand(size, generator=generator)).to(kind)
        return torch.randn(size, generator=generator).to(kind)
    low, high = (int(span[1]), int(span[2])) if span else (0, 9)
    return torch.randint(low, high + 1, size, generator=generator, dtype=kind)


def _mask(kind: str, size: list[int], generator: torch.Generator) -> torch.Tensor:
    length = size[-1]
    real = torch.randint(1, length + 1, size[:-1], generator=generator)
    place = torch.arange(length)
    left = "left" in kind or ("right" not in kind and bool(torch.rand((), generator=generator) < 0.5))
    keep = place >= length - real[..., None] if left else place < real[..., None]
    return keep if kind.startswith("keep") else ~keep
