"""Trials as lines of JSON, each written as soon as it is finished, so that a killed run loses none.

The first line describes what the trials belong to. A file that belongs to something else is never continued.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.tune.quantize.error_metrics import Score

QUANTIZED_ALONE, KEPT_ALONE = "alone", "kept"
"""Kinds of trials: one group quantized and all others in float, or one group in float and all others quantized."""
RECIPE_METRIC_SAMPLE = -1
"""The sample number of a trial by the recipe's metric, which brings its own samples."""


@dataclass(frozen=True)
class LayerTrial:
    """One group toggled on one sample."""

    kind: str
    group: str
    sample: int
    score: Score | None
    drop: float | None = None
    """The drop by the recipe's metric, which has no sums."""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.kind, self.group, self.sample

    def as_dict(self) -> dict[str, object]:
        sums = None if self.score is None else {name: list(values) for name, values in self.score.outputs.items()}
        return {"kind": self.kind, "group": self.group, "sample": self.sample, "sums": sums, "drop": self.drop}


def read_calibration_count(path: Path) -> int | None:
    """Return the number of samples that a file's trials were calibrated with, or None if it is unknown."""
    try:
        with path.open("rb") as file:
            count = json.loads(file.readline())["calibrated_with"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return count if isinstance(count, int) and count > 0 else None


class TrialFile:
    """A file of trials, opened for appending. The trials that it held before are in `trials`."""

    def __init__(self, path: Path, about: dict[str, object], overwrite: bool) -> None:
        self.trials: dict[tuple[str, str, int], LayerTrial] = {}
        complete_bytes = 0
        if path.exists() and not overwrite:
            complete_bytes = self._read(path, about)
        if complete_bytes:
            # Continue after the last complete line: the process was killed while it wrote the next one.
            self._file: IO[bytes] = path.open("r+b")
            self._file.truncate(complete_bytes)
            self._file.seek(complete_bytes)
        else:
            self._file = path.open("wb")
            self._write_line(about)

    def _read(self, path: Path, about: dict[str, object]) -> int:
        """Read the trials and return the size of the complete lines in bytes; fail if they belong to something else."""
        data = path.read_bytes()
        lines = data.split(b"\n")[:-1]
        if not lines:
            return 0
        try:
            head = json.loads(lines[0])
        except ValueError:
            head = None
        expected = json.loads(json.dumps(about))
        if head != expected:
            changed = [key for key in expected if not isinstance(head, dict) or head.get(key) != expected[key]]
            raise complain(
                Code.TRIALS_OF_ANOTHER_RUN, f"{path}: {', '.join(changed)} changed since these trials were made"
            )
        complete_bytes = len(lines[0]) + 1
        for line in lines[1:]:
            try:
                self._add_row(json.loads(line))
            except (ValueError, KeyError, TypeError):
                break
            complete_bytes += len(line) + 1
        return complete_bytes

    def _add_row(self, row: dict[str, Any]) -> None:
        sums = row["sums"]
        score = None if sums is None else Score({n: tuple(float(x) for x in v) for n, v in sums.items()})
        trial = LayerTrial(row["kind"], row["group"], int(row["sample"]), score, row["drop"])
        self.trials[trial.key] = trial

    def add(self, trial: LayerTrial) -> None:
        self._write_line(trial.as_dict())
        self.trials[trial.key] = trial

    def _write_line(self, row: dict[str, object]) -> None:
        self._file.write(json.dumps(row).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[LayerTrial]:
        return iter(self.trials.values())
