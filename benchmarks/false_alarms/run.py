"""Correct exports that must not be called wrong: `python benchmarks/false_alarms/run.py [--only TEXT]`.

A warm process forks one child for each case. Rows go to `--rows` as JSON lines at once, and cases that are there
already are not run again. With `--write` the sums go to results.json and results.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

DEEP_SHARE, DEEP_SIZE = 6, 100
"""One case in so many is judged at the level deep too, where no dim goes beyond this size."""


def done(rows: Path) -> dict[str, dict[str, Any]]:
    if not rows.exists():
        return {}
    return {row["case"]: row for row in map(json.loads, rows.read_text().splitlines())}


def one_apart(name: str, levels: tuple[str, ...], timeout: float) -> dict[str, Any]:
    from one import cases, judge

    from fairway.workers.attempt import Limits, Workers

    with tempfile.TemporaryDirectory() as folder, Workers(Limits(timeout)) as workers:
        got = workers.run(lambda tell: judge(cases()[name], levels, Path(folder)))
    if got.status == "done":
        row: dict[str, Any] = got.value
        return row
    said = got.failure.text[-1500:] if got.failure else f"{got.status} {got.log[-1500:]}"
    return {"case": name, "outcome": "crashed", "said": said}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", help="cases whose name holds one of these texts, run again")
    parser.add_argument("--levels", nargs="*", help="instead of quick and standard, and deep for a share")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for each case")
    parser.add_argument("--rows", type=Path, default=HERE / "rows.jsonl")
    parser.add_argument("--write", action="store_true", help="results.json and results.md from the rows")
    args = parser.parse_args()
    rows = done(args.rows)
    if args.write:
        from table import write

        write(rows, HERE)
        return
    from one import cases
    from warm import warm_up

    warm_up()
    texts = args.only or ()
    wanted = [name for name in cases() if (any(t in name for t in texts) if texts else name not in rows)]
    for number, name in enumerate(wanted, 1):
        small = max((high for _, high in cases()[name].family.bounds.values()), default=0) <= DEEP_SIZE
        share = small and list(cases()).index(name) % DEEP_SHARE == 0
        levels = tuple(args.levels or ("quick", "standard", *(("deep",) if share else ())))
        row = one_apart(name, levels, args.timeout)
        with args.rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        said = str(row.get("findings") or row.get("said", ""))[:300]
        print(f"{number}/{len(wanted)} {name}: {row['outcome']} ({row.get('seconds', '?')} s) {said}", flush=True)


if __name__ == "__main__":
    main()
