"""Which files a checkpoint consists of: one file, or the shards that an index lists, as transformers writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairway.diagnostics.errors import complain
from fairway.model.memory_check import is_regular

INDEX = ".index.json"
LARGEST_INDEX = 50 * 2**20
"""Bytes. That of a model of a trillion parameters has a few."""

_LIKELIEST = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


@dataclass(frozen=True)
class Shards:
    """The files, and which tensor the index says is in which."""

    files: tuple[Path, ...]
    where: Mapping[str, str] = field(default_factory=dict)
    index: str = ""

    def problems(self, state: Iterable[str]) -> list[str]:
        """Where the index and the shards disagree."""
        if not self.index:
            return []
        held = set(state)
        lost = [f"missing {name}, in {file} by {self.index}" for name, file in self.where.items() if name not in held]
        return lost + [f"unexpected {name}, not in {self.index}" for name in sorted(held) if name not in self.where]


def find_shards(path: Path) -> Shards:
    """The files behind the path of a file, an index or a folder."""
    if path.is_dir():
        inside = [path / name for name in _LIKELIEST if (path / name).is_file()]
        inside = inside or [*sorted(path.glob("*.safetensors"))]
        if len(inside) != 1:
            what = f"{len(inside)} files that could be it" if inside else "no model.safetensors and no index"
            raise complain("FW104", f"{path} is a folder with {what}")
        path = inside[0]
    if not is_regular(path):
        raise complain("FW104", str(path))
    return _indexed(path) if path.name.endswith(INDEX) else Shards((path,))


def _indexed(path: Path) -> Shards:
    if path.stat().st_size > LARGEST_INDEX:
        raise complain("FW105", f"{path.name} has {path.stat().st_size} bytes; an index has at most {LARGEST_INDEX}")
    try:
        read: Any = json.loads(path.read_bytes())
        where = read["weight_map"]
        fits = isinstance(where, dict) and where and all(isinstance(v, str) for v in where.values())
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise complain("FW105", f"{path.name} is no index of shards: {type(error).__name__}") from error
    if not fits:
        raise complain("FW105", f"{path.name} is no index of shards: weight_map names no files")
    files = []
    for name in dict.fromkeys(where.values()):
        if Path(name).name != name:
            raise complain("FW105", f"{path.name} names {name!r:.200}, which is not a file beside it")
        if not is_regular(path.with_name(name)):
            raise complain("FW104", f"{path.with_name(name)}, which {path.name} names")
        files.append(path.with_name(name))
    return Shards(tuple(files), where, path.name)
