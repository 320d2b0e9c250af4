"""Plants errors into one model's stock export, and judges each file as `fairway.verify` does at standard.

`python plant.py MODEL FOLDER ROWS COUNT CHECK_EVERY`; `run.py plant` calls it. Rows that are there are not run again.
A planted file that is not proven wrong goes through `fairway.verify` itself. So do the right file and one of every
CHECK_EVERY planted files; with 0 these do not, and the right file is only searched for a proof that it is wrong.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]

from judging import SharedJudge  # noqa: E402  # from this folder
from kinds import KINDS  # noqa: E402
from models import RECIPES, TINY  # noqa: E402
from proof import LEAST_TIMES, Proof  # noqa: E402
from scene import Scene  # noqa: E402
from stock import export_stock  # noqa: E402

import fairway  # noqa: E402
from fairway.model.subject import build_subject  # noqa: E402

DRAW_LIMIT = 12
"""Draws of one kind for one number, after which the next kind takes its turn."""

VERIFY_SECONDS_LIMIT = 3600.0
"""The machine may be busy, and reaching a time limit proves nothing about a file."""

MOST_TIMES = 1e9
"""Stands for infinity, which JSON does not have."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Planted:
    """A file with one error, and how large the error was shown to be in units of the right file's rounding."""

    path: Path
    kind: str
    place: str
    times: float


class Planter:
    """Draws planted files by number; the same number gives the same file."""

    def __init__(self, name: str, model: torch.nn.Module, right: Path) -> None:
        self._name, self._model, self._right = name, model, right
        self._proof = Proof(name, model, right)
        self.path = right.with_name("planted.onnx")
        """Beside the data file of the right export, which it shares."""

    def draw(self, number: int, known: set[tuple[str, str]]) -> Planted:
        """Draw until the file differs from PyTorch by more than rounding; kinds take turns by number."""
        kinds, recipe = list(KINDS), RECIPES[self._name]
        for turn in range(len(kinds)):
            kind = kinds[(number + turn) % len(kinds)]
            for attempt in range(DRAW_LIMIT):
                rng = random.Random(f"{self._name} {number} {kind} {attempt}")
                scene = Scene(ir.load(self._right), self._model, recipe.bounds, recipe.multiples, rng)
                place = KINDS[kind](scene)
                if place is None:
                    break
                if (kind, place) in known:
                    continue
                times = self._prove(scene)
                if times >= LEAST_TIMES:
                    return Planted(self.path, kind, place, times)
        raise LookupError(f"{self._name}: no kind of error has a place left for number {number}")

    def _prove(self, scene: Scene) -> float:
        """Write the edited graph and measure it in units of the right file's distance from PyTorch."""
        ir.save(scene.model, self.path)
        return min(self._proof.count_times(self.path, scene.required_ids), MOST_TIMES)


class Verifier:
    """Judges the planted files of one model. What they share is prepared for the first of them."""

    def __init__(self, name: str, model: torch.nn.Module, right: Path) -> None:
        self._name, self._model, self._right = name, model, right

    @cached_property
    def _shared(self) -> SharedJudge:
        recipe = RECIPES[self._name]
        subject = build_subject(self._model, recipe.inputs, bounds=recipe.bounds, multiples=recipe.multiples)
        return SharedJudge(subject, self._right, self._right.parent)

    def judge(self, planted: Planted, is_checked: bool) -> Row:
        """Return the verdict, and the word of `fairway.verify` if there is no proof or if it `is_checked`."""
        path = planted.path
        if path == self._right and is_checked:
            return {"by": "fairway.verify"} | self._verify(path)
        self._shared  # noqa: B018  # prepared before the clock starts
        started = time.perf_counter()
        proof = self._shared.find_proof(path)
        seconds = round(time.perf_counter() - started, 1)
        if proof is None:
            if path == self._right:
                return {"verdict": "no proof", "by": "samples", "seconds": seconds}
            return {"by": "fairway.verify"} | self._verify(path)
        row = {"verdict": proof.verdict, "by": proof.by, "samples": proof.samples, "ratio": proof.ratio}
        row["seconds"] = seconds
        if is_checked:
            plain = self._verify(path)
            row |= {"plain": plain["verdict"], "plain_seconds": plain["seconds"]}
        return row

    def _verify(self, path: Path) -> Row:
        """Return the verdict of `fairway.verify` at standard, the first finding's code, and the seconds."""
        recipe = RECIPES[self._name]
        started = time.perf_counter()
        try:
            result = fairway.verify(
                path,
                self._model,
                recipe.inputs,
                bounds=recipe.bounds,
                multiples=recipe.multiples,
                timeout=VERIFY_SECONDS_LIMIT,
            )
            verdict, codes = str(result.verdict), [finding.code for finding in result.findings]
        except fairway.UserError as error:
            verdict, codes = "refused", [error.finding.code]
        seconds = round(time.perf_counter() - started, 1)
        return {"verdict": verdict, "code": str(codes[0]) if codes else "", "seconds": seconds}


def main(name: str, folder: Path, rows: Path, count: int, check_every: int) -> None:
    lines = [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []
    done = {row["number"]: row for row in lines if row["what"] == "plant" and row["model"] == name}
    missing = [number for number in (*range(1, count + 1), 0) if number not in done]
    if not missing:
        return
    model = RECIPES[name].model()
    right = folder / f"{name}.onnx"
    export_stock(name, model, right)
    verifier = Verifier(name, model, right)
    planter = Planter(name, model, right)
    known = {(row["kind"], row["place"]) for row in done.values()}
    for number in missing:
        planted = Planted(right, "right file", "", 1.0) if number == 0 else planter.draw(number, known)
        known.add((planted.kind, planted.place))
        row = {"what": "plant", "model": name, "number": number, "kind": planted.kind, "place": planted.place}
        row |= {"times": float(f"{planted.times:.3g}"), "tiny": TINY}
        is_checked = check_every > 0 and (number == 0 or number % check_every == check_every // 2)
        row |= verifier.judge(planted, is_checked)
        if number:
            planted.path.unlink()
        with rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
