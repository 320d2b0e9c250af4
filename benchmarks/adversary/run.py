"""Attacks the judge: `python benchmarks/adversary/run.py traps|wrong|right --level standard|deep [--only NAME]`.

Each case runs in its own process with a time limit. Rows go to rows.jsonl at once, keyed by set, name and level;
cases that have a row are not run again without `--fresh`. `--check` tests the set itself and does not call Fairway.
`--write` makes results.md from the rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

ROWS = HERE / "rows.jsonl"
SETS = ("traps", "wrong", "right")
CHECK_SECONDS = 120.0

Row = dict[str, Any]


def read_rows(path: Path) -> dict[tuple[str, str, str], Row]:
    """Return the newest row of each case and level."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {(row["set"], row["name"], row["level"]): row for row in map(json.loads, lines)}


def work_apart(which: str, name: str, level: str, seconds: float) -> Row:
    """Run one case in its own process and return its row, whatever happens to the process."""
    from work import check_case, run_case

    from fairway.workers.attempt import Limits, Workers

    started = time.monotonic()
    row: Row = {"set": which, "name": name, "level": level}
    with tempfile.TemporaryDirectory() as folder, Workers(Limits(seconds)) as workers:
        if level == "check":
            got = workers.run(lambda tell: check_case(which, name, Path(folder)))
        else:
            got = workers.run(lambda tell: run_case(which, name, level, Path(folder)))
    row["seconds"] = round(time.monotonic() - started, 2)
    if got.status == "done":
        return row | dict(got.value)
    reason = got.failure.text[-800:] if got.failure else got.log[-800:]
    return row | {"outcome": "crashed" if got.status == "raised" else got.status, "note": reason}


def work_all(which: str, names: list[str], level: str, jobs: int, seconds: float) -> Iterator[Row]:
    from warm import warm_up

    warm_up()
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        futures = [pool.submit(work_apart, which, name, level, seconds) for name in names]
        for future in as_completed(futures):
            yield future.result()


def choose_names(which: str, level: str, only: list[str] | None, fresh: bool, rows: Path) -> list[str]:
    """Return the cases to run: those whose name contains a text of `only`, without those that have a row."""
    from work import list_cases

    known = {} if fresh or level == "check" else read_rows(rows)
    names = [name for name in list_cases(which) if not only or any(text in name for text in only)]
    return [name for name in names if (which, name, level) not in known]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("set", nargs="?", choices=SETS)
    parser.add_argument("--level", default="standard", choices=("quick", "standard", "deep"))
    parser.add_argument("--only", nargs="*", help="cases whose name contains one of these texts")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for each case")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--fresh", action="store_true", help="run cases again that have a row")
    parser.add_argument("--check", action="store_true", help="test the set itself, without Fairway")
    parser.add_argument("--write", action="store_true", help="make results.md from the rows")
    args = parser.parse_args()
    if args.write:
        from table import make_table

        (HERE / "results.md").write_text(make_table(list(read_rows(args.rows).values())))
        return 0
    if args.set is None:
        parser.error("name a set: " + ", ".join(SETS))
    level = "check" if args.check else args.level
    names = choose_names(args.set, level, args.only, args.fresh, args.rows)
    errors = 0
    seconds = CHECK_SECONDS if args.check else args.timeout
    for number, row in enumerate(work_all(args.set, names, level, args.jobs, seconds), 1):
        if not args.check:
            with args.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
        errors += args.check and row["outcome"] != "fine"
        print(
            f"{number}/{len(names)} {row['name']}: {row['outcome']} ({row['seconds']} s) {row.get('note', '')}",
            flush=True,
        )
    if args.check:
        print(f"{len(names)} cases, {errors} errors of the set")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
