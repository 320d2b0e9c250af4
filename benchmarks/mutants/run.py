"""Wrong files against five judges: `python benchmarks/mutants/run.py [--each N] [NAME…]`.

Makes right files, mutates them, proves that each mutant differs, asks the judges, and writes results.json and
results.md. Rows are appended to build/rows/NAME.jsonl as they come; a second run goes on where the first ended.
`--fresh` starts over, `--survivors` asks again about what standard let pass, `--unremembered N` compares N verdicts
with and without memory.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from pathlib import Path
from typing import Any

import torch
from contest import fairway_says, remembering, try_mutant, warm
from models import MODELS, right_file
from mutate import Mutant, propose, write
from prove import build_pool, know

from report import JUDGES, killed, write_report

HERE = Path(__file__).parent
BUILD = HERE / "build"
CHECKED = 60
"""Mutants that standard kills and deep is asked about all the same, to see that deep contains standard."""


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def judge_model(name: str, each: int, fresh: bool) -> list[dict[str, Any]]:
    """Rows of one model until `each` mutants are proven or the proposals end."""
    subject, source = MODELS[name].subject(name), right_file(name, BUILD)
    pool = build_pool(source, subject.spec, subject.domain, dict(subject.example))
    known = know(source, subject.spec, subject.domain, dict(subject.example), pool.feeds[0])
    kept = BUILD / "rows" / f"{name}.jsonl"
    kept.parent.mkdir(exist_ok=True)
    if fresh:
        kept.unlink(missing_ok=True)
    rows = read(kept)
    done = {(row["kind"], row["place"]) for row in rows}
    proven = sum("witness" in row for row in rows)
    target = BUILD / f"{name}.mutant.onnx"
    with remembering() as looks, kept.open("a") as out:
        if proven < each:
            warm(subject, source, looks)
        for mutant in propose(name, source, known):
            if proven >= each:
                break
            if (mutant.kind, mutant.place) in done:
                continue
            row = try_mutant(mutant, subject, source, known, pool, target, ("quick", "standard"))
            proven += "witness" in row
            rows.append(row)
            out.write(json.dumps(row) + "\n")
            out.flush()
        ask_deep(name, rows, subject, source, known, target)
    kept.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def ask_deep(name: str, rows: list[dict[str, Any]], subject: Any, source: Path, known: Any, target: Path) -> None:
    """Deep judges what standard lets pass, and a few that it kills."""
    asked = [row for row in rows if row.get("standard") == "verified"]
    killed = [row for row in rows if "standard" in row and row["standard"] != "verified"]
    asked += random.Random(name).sample(killed, min(-(-CHECKED // len(MODELS)), len(killed)))
    for row in asked:
        if "deep" not in row:
            write(Mutant(name, row["kind"], row["place"]), source, known, target)
            row["deep"] = fairway_says(subject, target, "deep")


def ask_survivors(name: str) -> None:
    """Asks again, as after a change to the judge, about what standard let pass."""
    kept = BUILD / "rows" / f"{name}.jsonl"
    rows = read(kept)
    again = [row for row in rows if row.get("standard") == "verified"]
    if not again:
        return
    subject, source = MODELS[name].subject(name), right_file(name, BUILD)
    pool = build_pool(source, subject.spec, subject.domain, dict(subject.example))
    known = know(source, subject.spec, subject.domain, dict(subject.example), pool.feeds[0])
    target = BUILD / f"{name}.mutant.onnx"
    for row in again:
        write(Mutant(name, row["kind"], row["place"]), source, known, target)
        row.pop("deep", None)
        for level in ("quick", "standard"):
            row[level] = fairway_says(subject, target, level)
    ask_deep(name, rows, subject, source, known, target)
    kept.write_text("".join(json.dumps(row) + "\n" for row in rows))


def unremembered(count: int) -> None:
    """The verdicts of `count` mutants by Fairway as it is, beside those of the contest."""
    rows = [row for name in MODELS for row in read(BUILD / "rows" / f"{name}.jsonl") if "standard" in row]
    picked = random.Random(3).sample(rows, count)
    same = 0
    for row in picked:
        name = row["model"]
        subject, source = MODELS[name].subject(name), right_file(name, BUILD)
        pool = build_pool(source, subject.spec, subject.domain, dict(subject.example))
        known = know(source, subject.spec, subject.domain, dict(subject.example), pool.feeds[0])
        target = BUILD / "plain.mutant.onnx"
        write(Mutant(name, row["kind"], row["place"]), source, known, target)
        said = {level: fairway_says(subject, target, level) for level in ("quick", "standard", "deep") if level in row}
        same += all(row[level] == word for level, word in said.items())
        print(f"{name} {row['kind']} {row['place']}: {said}", flush=True)
    print(f"{same} of {count} verdicts the same without memory")
    (HERE / "unremembered.json").write_text(json.dumps({"asked": count, "same": same}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=85)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--survivors", action="store_true")
    parser.add_argument("--unremembered", type=int, default=0)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.unremembered:
        unremembered(asked.unremembered)
        return
    gc.freeze()  # what was imported is never collected, so that forks share it
    everything = []
    for name in asked.names or MODELS:
        started = time.monotonic()
        if asked.survivors:
            ask_survivors(name)
        rows = judge_model(name, asked.each, asked.fresh)
        everything += rows
        proven = [row for row in rows if "witness" in row]
        counts = "  ".join(f"{judge} {sum(killed(row, judge) for row in proven)}" for judge in JUDGES)
        seconds = time.monotonic() - started
        print(f"{name:<12} {len(proven)} of {len(rows)} proven; killed: {counts}; {seconds:.0f} s", flush=True)
    if not asked.names:
        write_report(everything, HERE)


if __name__ == "__main__":
    main()
