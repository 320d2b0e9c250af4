"""Measure how small failing models get: `python benchmarks/reduce/run.py [--only NAME…]`.

Cases of the corpus that torch's dynamo exporter with `Dim.DYNAMIC` gets wrong, drawn at random once (cases.txt):
sixteen idioms and ten architectures. Besides, chosen by hand, models that decide by values: a recipe of the examples
and idioms of the corpus, three of them by the tracer (`trace:`). Each starts from the example at which it failed there,
and goes through `reduce` with five minutes, in a separate process. Rows go to rows.jsonl at once, and what is there is
not run again; the sums go to results.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "corpus"), str(HERE.parent)]

BUDGET, LIMIT = 285.0, 60.0
"""Not quite five minutes: what is started just before the end, such as the script on its own, may end after it."""


def drawn() -> list[str]:
    """So they stay the same when the corpus is run again and what fails in it changes."""
    return (HERE / "cases.txt").read_text().split()


def subject_of(case_name: str) -> Any:
    from columns import example_sizes
    from corpus import find

    from fairway.model.recipe import Overrides, load_subject
    from fairway.model.subject import build_subject

    if ".py:" in case_name:
        return load_subject(str(HERE.parents[1] / case_name), Overrides())
    case = find(case_name)
    return build_subject(
        case.build(),
        list(case.lines),
        bounds=case.bounds,
        multiples=case.multiples,
        name=case_name,
        example=example_sizes(case),
    )


def work(name: str) -> dict[str, Any]:
    from fairway.debug.reduce.reduce import ReduceSettings, reduce_subject

    subject = subject_of(name.removeprefix("trace:"))
    exporter = "trace" if name.startswith("trace:") else "dynamo"
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        got = reduce_subject(subject, Path(folder), ReduceSettings(exporter, None, BUDGET, LIMIT), lambda event: None)
    row: dict[str, Any] = {"case": name, "seconds": round(time.monotonic() - started, 1)}
    if got is None:
        return row | {"failure": "", "same": False, "note": "the calls alone do not fail"}
    return row | {
        "failure": str(got.seen.signature),
        "same": got.reproduced,
        "calls": got.calls,
        "left": len(got.program.calls),
        "lines": got.lines,
        "operators": got.program.operators,
        "trials": got.trials,
        "finished": got.finished,
        "load": round(os.getloadavg()[0], 1),
    }


def apart(name: str) -> dict[str, Any]:
    from fairway.workers.attempt import Limits, Workers

    with Workers(Limits(900.0)) as workers:
        got = workers.run(lambda tell: work(name))
    if got.status == "done":
        row: dict[str, Any] = got.value
        return row
    said = got.failure.message if got.failure else got.status
    return {"case": name, "seconds": round(got.seconds, 1), "failure": "", "same": False, "note": said[:300]}


def table(rows: list[dict[str, Any]]) -> str:
    small = [row for row in rows if row["same"]]
    quick = sum(row["seconds"] <= 300 for row in rows)
    lines = [
        f"{len(rows)} failing models. The script that came out fails in the same way on its own in {len(small)}. "
        f"Median of {statistics.median(row['lines'] for row in small):g} lines in `forward` and "
        f"{statistics.median(row['operators'] for row in small):g} operators. {quick} within five minutes.",
        "",
        "| model | failure | calls before | left | lines in `forward` | operators | same failure | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        said = (row["failure"] or row.get("note", "")).replace("|", "/")[:110]
        sizes = " | ".join(str(row.get(key, "–")) for key in ("calls", "left", "lines", "operators"))
        same = "yes" if row["same"] else "no"
        lines.append(f"| {row['case']} | {said} | {sizes} | {same} | {row['seconds']:.0f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    from warm import warm_up

    warm_up()
    kept = HERE / "rows.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    for name in args.keep_calls or drawn():
        if not args.keep_calls and any(row["case"] == name for row in rows):
            continue
        row = apart(name)
        print(row, flush=True)
        if not args.keep_calls:
            rows.append(row)
            kept.write_text("".join(json.dumps(row) + "\n" for row in rows))
            run = f"By `python benchmarks/reduce/run.py`, {len(rows)} of {len(drawn())}."
            head = f"# How small failing models get\n\n{run}\n\n"
            (HERE / "results.md").write_text(head + table(rows))


if __name__ == "__main__":
    main()
