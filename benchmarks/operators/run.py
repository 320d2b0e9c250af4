"""Torch's own operators, modules and examples, one after another: `python benchmarks/operators/run.py [SUITE…]`.

All cases are run from one warm process, each column in a fork of it with a limit. Rows go to rows.jsonl at once, and
what is there already is not run again. `--write` makes results.json and results.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

LEGAL = "legal"
ROWS = HERE / "rows.jsonl"

Row = dict[str, Any]


def make_row(name: str, column: str, folder: Path) -> Row:
    from case import NoCase
    from check import refuse, score
    from columns import COLUMNS
    from suites import build

    row: Row = {"case": name, "column": column}
    started = time.monotonic()
    try:
        case = build(name)
        if column == LEGAL:
            refuse(case)
            return row | {"outcome": "legal"}
    except NoCase as error:
        return row | {"outcome": "skipped", "note": str(error)}
    except Exception as error:
        return row | {"outcome": "skipped", "note": describe(error)}
    path = folder / "out.onnx"
    try:
        row |= COLUMNS[column](case, path)
    except Exception as error:
        row |= {"outcome": "fails", "note": describe(error)}
    row["seconds"] = round(time.monotonic() - started, 2)
    if "outcome" not in row:
        outcome, note = score(build(name), path)
        row |= {"outcome": outcome, "note": clean(note)}
    return row


def describe(error: BaseException) -> str:
    """Return the innermost cause, which says more than the exporters' own text."""
    while error.__cause__ is not None:
        error = error.__cause__
    return clean(f"{type(error).__name__}: {error}")


def clean(note: str) -> str:
    """Return the note in one line without paths of this machine and addresses."""
    note = re.sub(r"https?://\S+|/\S*/(?=[\w.]+)", "", " ".join(note.split()))
    return re.sub(r"\x1b\[[0-9;]*m|[✅❌]", "", note)[:300]


def run_apart(name: str, column: str, timeout: float) -> Row:
    from fairway.workers.attempt import Limits, Workers

    with tempfile.TemporaryDirectory() as folder, Workers(Limits(timeout)) as workers:
        outcome = workers.run(lambda tell: make_row(name, column, Path(folder)))
    if outcome.status == "done":
        row: Row = outcome.value
        return row
    note = clean(outcome.failure.text[-300:] if outcome.failure else outcome.log[-300:])
    result = "skipped" if column == LEGAL else "timeout" if outcome.status == "timeout" else "fails"
    return {"case": name, "column": column, "outcome": result, "note": f"{outcome.status}: {note}"}


def make_rows(names: list[str], columns: list[str], known: dict[tuple[str, str], str], timeout: float) -> Iterator[Row]:
    for name in names:
        for column in dict.fromkeys((LEGAL, *columns)):
            outcome = known.get((name, column))
            if outcome is None:
                row = run_apart(name, column, timeout)
                outcome = row["outcome"]
                yield row
            if outcome == "skipped":
                break


def read_rows(path: Path = ROWS) -> list[Row]:
    """Return the rows, the later of two for the same case and column."""
    lines = path.read_text().splitlines() if path.exists() else []
    return list({(row["case"], row.get("column")): row for row in map(json.loads, lines)}.values())


def main() -> None:
    from columns import COLUMNS
    from suites import SUITES, list_names

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suites", nargs="*", default=[*SUITES])
    parser.add_argument("--only", nargs="*", default=["*"], help="names of cases, * and ? allowed")
    parser.add_argument("--columns", nargs="*", default=[*COLUMNS])
    parser.add_argument("--shard", default="1/1", help="i/n: every n-th case, from the i-th")
    parser.add_argument("--timeout", type=float, default=400.0, help="seconds for each case and column")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--again", action="store_true", help="run also what is there already")
    parser.add_argument("--write", action="store_true", help="only make the table from the rows")
    args = parser.parse_args()
    if args.write:
        from table import write_tables

        write_tables(read_rows(args.rows), read_rows(HERE / "first_files.jsonl"), HERE)
        return
    from warm import warm_up

    warm_up()
    part, parts = map(int, args.shard.split("/"))
    names = [name for suite in args.suites for name in list_names(suite)]
    names = [name for name in names if any(fnmatch(name, pattern) for pattern in args.only)]
    # In a drawn order, so that the rows that are there are a fair sample of all.
    names = sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())[part - 1 :: parts]
    known = {(row["case"], row["column"]): row["outcome"] for row in read_rows(args.rows)}
    if args.again:
        known = {key: outcome for key, outcome in known.items() if key[1] not in args.columns}
    for row in make_rows(names, args.columns, known, args.timeout):
        with args.rows.open("a") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(f"{row['case']}, {row['column']}: {row['outcome']} {row.get('note', '')[:110]}", flush=True)


if __name__ == "__main__":
    main()
