"""The subjects of the contest: twenty small models, their specs, and the route that makes the right file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nets
import torch

import fairway
from fairway.judge.lattice import Level
from fairway.model.subject import Subject, build_subject

Bounds = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Entry:
    """A model and its spec. `route` is the exporter's rung; both exporters occur."""

    build: Callable[[], Any]
    inputs: list[str]
    bounds: Bounds
    route: str

    def subject(self, name: str) -> Subject:
        torch.manual_seed(7)
        return build_subject(self.build().eval(), list(self.inputs), bounds=self.bounds, name=name)


SEQUENCE: Bounds = {"batch": (1, 6), "time": (1, 80)}
STEPS: Bounds = {"batch": (1, 5), "time": (1, 32)}

MODELS: dict[str, Entry] = {
    "mlp": Entry(nets.mlp, ["input: float32[batch, 12]"], {"batch": (1, 40)}, "export-dynamic"),
    "images": Entry(
        nets.Images,
        ["image: float32[batch, 2, high, wide]"],
        {"batch": (1, 3), "high": (8, 33), "wide": (8, 40)},
        "trace",
    ),
    "recurrent": Entry(nets.Recurrent, ["x: float32[batch, time, 4]", "state: float32[1, batch, 8]"], STEPS, "trace"),
    "remembering": Entry(nets.Remembering, ["x: float32[batch, time, 3] in -2..2"], STEPS, "export-dynamic"),
    "filter": Entry(nets.Filter, ["x: float32[batch, time, 3]"], STEPS, "trace"),
    "attending": Entry(
        nets.Attending,
        ["x: float32[batch, time, 8]", "padding: bool[batch, time] = padding"],
        SEQUENCE,
        "export-dynamic",
    ),
    "reader": Entry(
        nets.Reader,
        ["ids: int64[batch, seq] < 99", "mask: int64[batch, seq] = keep-right-padded"],
        {"batch": (1, 4), "seq": (2, 64)},
        "export-dynamic",
    ),
    "decoder": Entry(
        nets.Decoder,
        ["ids: int64[batch, seq] < 120", "keep: int64[batch, seq] = keep-left-padded"],
        {"batch": (1, 4), "seq": (1, 96)},
        "trace",
    ),
    "ranker": Entry(
        nets.Ranker, ["item: int64[batch, basket] < 50"], {"batch": (1, 8), "basket": (1, 30)}, "export-dynamic"
    ),
    "heads": Entry(nets.Heads, ["x: float32[batch, time, 6]"], SEQUENCE, "trace"),
    "half": Entry(nets.Half, ["x: float16[batch, time, 8] in -3..3"], SEQUENCE, "export-dynamic"),
    "brain": Entry(nets.Brain, ["x: float32[batch, 6]"], {"batch": (1, 70)}, "export-dynamic"),
    "choosing": Entry(nets.Choosing, ["x: float32[batch, 5]"], {"batch": (1, 50)}, "trace"),
    "indexing": Entry(
        nets.Indexing, ["x: float32[rows, 6]", "pick: int64[rows] < 30"], {"rows": (1, 60)}, "export-dynamic"
    ),
    "sums": Entry(nets.Sums, ["x: float32[batch, time, 3]"], SEQUENCE, "trace"),
    "rules": Entry(
        nets.Rules, ["x: float32[rows, 5] in -1..1", "flag: bool[rows, 5]"], {"rows": (1, 48)}, "export-dynamic"
    ),
    "whole": Entry(nets.Whole, ["a: uint8[n, 3] in 0..255", "b: int16[n, 3] in 0..300"], {"n": (1, 50)}, "trace"),
    "wave": Entry(nets.Wave, ["wave: float32[batch, 2, time]"], {"batch": (1, 4), "time": (6, 300)}, "export-dynamic"),
    "residual": Entry(nets.Residual, ["x: float32[batch, 8]"], {"batch": (1, 40)}, "trace"),
    "stepping": Entry(
        nets.Stepping,
        ["x: float32[batch, 1, 8]", "key: float32[batch, past, 8]", "value: float32[batch, past, 8]"],
        {"batch": (1, 4), "past": (0, 64)},
        "export-dynamic",
    ),
    "pooling": Entry(
        nets.Pooling, ["x: float32[batch, time, 4]", "lengths: int64[batch] = lengths(time)"], SEQUENCE, "trace"
    ),
}


def right_file(name: str, folder: Path, level: Level = "deep") -> Path:
    """The file that Fairway itself exported and verified; made once and kept."""
    path = folder / f"{name}.onnx"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    entry = MODELS[name]
    torch.manual_seed(7)
    model = entry.build().eval()
    result = fairway.export(model, list(entry.inputs), path, bounds=entry.bounds, routes=[entry.route], level=level)
    if result.verdict != "verified":
        raise RuntimeError(f"{name}: {result.verdict}: {[str(f.code) + ' ' + f.seen for f in result.findings]}")
    return path
