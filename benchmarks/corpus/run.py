"""The corpus: `python benchmarks/corpus/run.py [--only NAME…] [--columns …] [--shard i/n]`.

Each case and column runs in a process of its own, with a time limit. Rows go to rows.jsonl at once; what is there
already is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

FAIRWAY = "Fairway"


def work(name: str, column: str, folder: Path, timeout: float) -> dict[str, Any]:
    """One case by one column, scored."""
    from check import score
    from columns import STOCK, example_sizes
    from corpus import find

    case = find(name)
    path = folder / "out.onnx"
    started = time.monotonic()
    row: dict[str, Any] = {"case": name, "family": case.family, "column": column, "impossible": case.impossible}
    if column == FAIRWAY:
        from judged import export

        row |= export(case, path, timeout)
    else:
        try:
            STOCK[column](case, case.build(), path)
        except Exception as error:
            said = " ".join(str(error).split())
            row |= {"outcome": "fails", "note": f"{type(error).__name__}: {said[:300]}"}
    row["seconds"] = round(time.monotonic() - started, 2)
    if "outcome" not in row:
        found = score(case, case.build().eval(), path, example_sizes(case))
        row |= {"outcome": found.outcome, "note": found.note}
    return row


def apart(name: str, column: str, timeout: float) -> dict[str, Any]:
    from fairway.ladder.attempt import Limits, Workers

    with tempfile.TemporaryDirectory() as folder, Workers(Limits(timeout)) as workers:
        got = workers.run(lambda tell: work(name, column, Path(folder), timeout))
    if got.status == "done":
        row: dict[str, Any] = got.value
        return row
    said = got.failure.text[-600:] if got.failure else got.log[-600:]
    outcome = "timeout" if got.status == "timeout" else "fails"
    note = f"{got.status}: {said}"
    return {"case": name, "column": column, "outcome": outcome, "seconds": round(got.seconds, 2), "note": note}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=["*"], help="names of cases, * and ? allowed")
    parser.add_argument("--columns", nargs="*", help="all of them, unless told")
    parser.add_argument("--shard", default="1/1", help="i/n: every n-th case, from the i-th")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for each case and column")
    parser.add_argument("--rows", type=Path, default=HERE / "rows.jsonl")
    parser.add_argument("--again", action="store_true", help="run also what is there already")
    args = parser.parse_args()
    from columns import STOCK
    from corpus import names
    from warm import warm_up

    part, parts = map(int, args.shard.split("/"))
    cases = [n for n in names() if any(fnmatch(n, pattern) for pattern in args.only)][part - 1 :: parts]
    columns = args.columns or [*STOCK, FAIRWAY]
    known = set()
    if args.rows.exists() and not args.again:
        known = {(row["case"], row["column"]) for row in map(json.loads, args.rows.read_text().splitlines())}
    wanted = [(n, c) for n in cases for c in columns if (n, c) not in known]
    warm_up()
    for number, (name, column) in enumerate(wanted, 1):
        row = apart(name, column, args.timeout)
        with args.rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        note = row.get("note", "")[:100]
        print(f"{number}/{len(wanted)} {name}, {column}: {row['outcome']} ({row['seconds']} s) {note}", flush=True)


if __name__ == "__main__":
    main()
