"""Rows of a benchmark over many models: each in a separate process with a limit, and each written at once."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """`work` makes the row of one case, and is handed a folder for its files."""

    home: Path
    work: Callable[[str, Path], Row]
    timeout: float

    def read(self) -> list[Row]:
        file = self.home / "rows.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return sorted({row["case"]: row for row in map(json.loads, lines)}.values(), key=lambda row: str(row["case"]))

    def make(self, cases: list[str], jobs: int) -> Iterator[Row]:
        from warm import warm_up

        warm_up()
        with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
            for done in as_completed([pool.submit(self.apart, case) for case in cases]):
                with (self.home / "rows.jsonl").open("a") as file:
                    file.write(json.dumps(done.result()) + "\n")
                yield done.result()

    def apart(self, case: str) -> Row:
        from fairway.workers.attempt import Limits, Workers

        with tempfile.TemporaryDirectory() as folder, Workers(Limits(self.timeout)) as workers:
            got = workers.run(lambda tell: self.work(case, Path(folder)))
        if got.status == "done":
            return dict(got.value)
        said = f"{got.failure.kind}: {got.failure.message}" if got.failure else got.status
        note = " ".join(said.replace(f"{self.home.parents[1]}/", "").split())[:200]
        return {"case": case, "outcome": "skipped" if got.status == "raised" else got.status, "note": note}


def main(rows: Rows, names: Callable[[], list[str]], table: Callable[[list[Row]], str]) -> None:
    parser = argparse.ArgumentParser(description=f"{rows.home.name}, row by row")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.write:
        (rows.home / "results.md").write_text(table(rows.read()))
        return
    known = {row["case"] for row in rows.read()}
    for row in rows.make(args.only or [name for name in names() if name not in known], args.jobs):
        print(row, flush=True)
