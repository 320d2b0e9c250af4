"""Trials as lines of JSON, each written as soon as it is finished: whatever is killed, what was measured is kept.

The first line says what the trials are of. Trials of something else are never gone on with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fairway.diagnostics.errors import complain
from fairway.tune.quantize.error_metrics import Score

ALONE, KEPT = "alone", "kept"
"""Quantised alone, all others in float; kept in float alone, all others quantised."""
OWN = -1
"""The place of a sample where the recipe's metric has samples of its own."""


@dataclass(frozen=True)
class LayerTrial:
    """One group toggled, on one sample."""

    kind: str
    group: str
    sample: int
    score: Score | None
    drop: float | None = None
    """By the recipe's own metric, which gives no sums."""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.kind, self.group, self.sample

    def as_dict(self) -> dict[str, Any]:
        sums = None if self.score is None else {name: list(values) for name, values in self.score.outputs.items()}
        return {"kind": self.kind, "group": self.group, "sample": self.sample, "sums": sums, "drop": self.drop}


def calibrated_with(path: Path) -> int | None:
    """How many samples the trials in this file were calibrated with; None where that is not told."""
    try:
        with path.open("rb") as file:
            count = json.loads(file.readline())["calibrated_with"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return count if isinstance(count, int) and count > 0 else None


class TrialFile:
    """Opened once; what it held before is in `found`."""

    def __init__(self, path: Path, about: dict[str, Any], overwrite: bool) -> None:
        self.found: dict[tuple[str, str, int], LayerTrial] = {}
        whole = 0
        if path.exists() and not overwrite:
            whole = self._read(path, about)
        if whole:
            # Behind the last whole line: the one after it was being written when its writer was killed.
            self._file: IO[bytes] = path.open("r+b")
            self._file.truncate(whole)
            self._file.seek(whole)
        else:
            self._file = path.open("wb")
            self._line(about)

    def _read(self, path: Path, about: dict[str, Any]) -> int:
        data = path.read_bytes()
        lines = data.split(b"\n")[:-1]
        if not lines:
            return 0
        try:
            head = json.loads(lines[0])
        except ValueError:
            head = None
        wanted = json.loads(json.dumps(about))
        if head != wanted:
            changed = [key for key in wanted if not isinstance(head, dict) or head.get(key) != wanted[key]]
            raise complain("FW712", f"{path}: other {', '.join(changed)}")
        whole = len(lines[0]) + 1
        for line in lines[1:]:
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError):
                break
            whole += len(line) + 1
        return whole

    def _take(self, row: dict[str, Any]) -> None:
        sums = row["sums"]
        score = None if sums is None else Score({n: tuple(float(x) for x in v) for n, v in sums.items()})
        trial = LayerTrial(row["kind"], row["group"], int(row["sample"]), score, row["drop"])
        self.found[trial.key] = trial

    def add(self, trial: LayerTrial) -> None:
        self._line(trial.as_dict())
        self.found[trial.key] = trial

    def _line(self, row: dict[str, Any]) -> None:
        self._file.write(json.dumps(row).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[LayerTrial]:
        return iter(self.found.values())
