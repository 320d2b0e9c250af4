"""The files of a checkpoint: one file, or the shards that an index lists, as transformers writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.memory_check import is_regular_file

INDEX_SUFFIX = ".index.json"
MAX_INDEX_BYTES = 50 * 2**20
"""The largest size of an index. That of a model with a trillion parameters has a few MB."""

_LIKELY_NAMES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


@dataclass(frozen=True)
class Shards:
    """The files, and the file of each tensor according to the index."""

    files: tuple[Path, ...]
    file_of: Mapping[str, str] = field(default_factory=dict)
    index: str = ""

    def find_problems(self, state: Iterable[str]) -> list[str]:
        """Return the disagreements between the index and the shards."""
        if not self.index:
            return []
        present = set(state)
        listed = self.file_of.items()
        missing = [f"missing {name}, in {file} by {self.index}" for name, file in listed if name not in present]
        unlisted = [name for name in sorted(present) if name not in self.file_of]
        return missing + [f"unexpected {name}, not in {self.index}" for name in unlisted]


def find_shards(path: Path) -> Shards:
    """Return the files behind the path of a file, an index or a folder."""
    if path.is_dir():
        inside = [path / name for name in _LIKELY_NAMES if (path / name).is_file()]
        inside = inside or [*sorted(path.glob("*.safetensors"))]
        if len(inside) != 1:
            content = (
                f"{len(inside)} files that could be the checkpoint" if inside else "no model.safetensors and no index"
            )
            raise complain(Code.CHECKPOINT_MISSING, f"{path} is a folder with {content}")
        path = inside[0]
    if not is_regular_file(path):
        raise complain(Code.CHECKPOINT_MISSING, str(path))
    return _read_index(path) if path.name.endswith(INDEX_SUFFIX) else Shards((path,))


def _read_index(path: Path) -> Shards:
    if path.stat().st_size > MAX_INDEX_BYTES:
        raise complain(
            Code.CHECKPOINT_UNREADABLE,
            f"{path.name} has {path.stat().st_size} bytes; an index has at most {MAX_INDEX_BYTES}",
        )
    try:
        file_of = json.loads(path.read_bytes())["weight_map"]
        is_map = isinstance(file_of, dict) and file_of and all(isinstance(v, str) for v in file_of.values())
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise complain(
            Code.CHECKPOINT_UNREADABLE,
            f"{path.name}: expected an index of shards with a weight_map, got {type(error).__name__}",
        ) from error
    if not is_map:
        raise complain(
            Code.CHECKPOINT_UNREADABLE, f"{path.name}: expected a weight_map that names the file of each tensor"
        )
    files = []
    for name in dict.fromkeys(file_of.values()):
        if Path(name).name != name:
            raise complain(
                Code.CHECKPOINT_UNREADABLE, f"{path.name} names {name!r:.200}; shards must be in the same folder"
            )
        if not is_regular_file(path.with_name(name)):
            raise complain(Code.CHECKPOINT_MISSING, f"{path.with_name(name)}, which {path.name} names, does not exist")
        files.append(path.with_name(name))
    return Shards(tuple(files), file_of, path.name)
