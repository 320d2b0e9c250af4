"""The corpus: `python benchmarks/corpus/run.py [--only NAME…] [--columns …] [--shard i/n] [--jobs N | --on ray]`.

Each case and column runs in a separate process, with a time limit. Rows go to rows.jsonl at once; what is there already
is not run again. `--idle N` runs N cases drawn at random for their time, which counts on a machine that does nothing
else. `--write` sums the rows up into results.json, results.md and chart.svg.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

FAIRWAY = "Fairway"
BARE = "dynamo, DYNAMIC"
"""The column whose time Fairway's is compared with."""
CASES = "corpus"
"""The module that has the cases: its `names` and `find`."""
LEGAL = "legal"
"""The column that asks PyTorch alone; a case that fails there is skipped, with the reason in its row."""


def work(cases: str, name: str, column: str, folder: Path, timeout: float) -> dict[str, Any]:
    """One case by one column, scored."""
    from check import legal, score
    from columns import CHOOSES, OLDER, STOCK, NotForIt, example_sizes

    find = importlib.import_module(cases).find
    row: dict[str, Any] = {"case": name, "column": column}
    if column == LEGAL:
        try:
            case = find(name)
            why = legal(case)
            row |= {"family": case.family, "impossible": case.impossible}
        except Exception as error:
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return row | {"outcome": "skipped" if why else "legal", "note": plain(why), "seconds": 0.0}
    case = find(name)
    row |= {"family": case.family, "impossible": case.impossible}
    path = folder / "out.onnx"
    model = None if column == FAIRWAY else case.build()
    started = time.monotonic()
    if model is None:
        from judged import export

        row |= export(case, path, timeout)
    else:
        try:
            (STOCK | OLDER)[column](case, model, path)
        except NotForIt as error:
            row |= {"outcome": "not for it", "note": str(error)}
        except Exception as error:
            said = " ".join(str(error).split())
            row |= {"outcome": "fails", "note": f"{type(error).__name__}: {said[:300]}"}
    row["seconds"] = round(time.monotonic() - started, 2)
    if "outcome" not in row:
        found = score(case, case.build().eval(), path, example_sizes(case), column in CHOOSES)
        row |= {"outcome": found.outcome, "note": found.note}
    row["note"] = plain(row.get("note", "").replace(f"{folder}/", ""))
    return row


def plain(note: str) -> str:
    """Without what is of this machine, or leads elsewhere."""
    return re.sub(r"(--extra-index-url )?https?://\S+", "…", note.replace(f"{HERE.parents[1]}/", ""))


def apart(cases: str, name: str, column: str, timeout: float) -> dict[str, Any]:
    from fairway.workers.attempt import Limits, Workers

    with tempfile.TemporaryDirectory() as folder, Workers(Limits(timeout)) as workers:
        got = workers.run(lambda tell: work(cases, name, column, Path(folder), timeout))
    if got.status == "done":
        row: dict[str, Any] = got.value
        return row
    said = got.failure.text[-600:] if got.failure else got.log[-600:]
    outcome = "skipped" if column == LEGAL else "timeout" if got.status == "timeout" else "fails"
    note = plain(f"{got.status}: {said}")
    return {"case": name, "column": column, "outcome": outcome, "seconds": round(got.seconds, 2), "note": note}


def case_rows(
    cases: str, name: str, columns: Iterable[str], known: dict[tuple[str, str], str], timeout: float
) -> Iterable[Any]:
    """The rows of one case that are not known yet; none besides the first where it is skipped."""
    for column in dict.fromkeys((LEGAL, *columns)):
        if (name, column) in known:
            outcome = known[name, column]
        else:
            row = apart(cases, name, column, timeout)
            outcome = row["outcome"]
            yield row
        if outcome == "skipped":
            return


def on_ray(
    cases: str, names: list[str], columns: list[str], known: dict[tuple[str, str], str], timeout: float
) -> Iterable[Any]:
    """The cases as tasks of a Ray cluster, whose machines have this checkout and its packages."""
    import ray

    @ray.remote(num_cpus=1)
    def task(name: str) -> list[dict[str, Any]]:
        sys.path[:0] = [str(HERE), str(HERE.parent)]
        from run import case_rows
        from warm import warm_up

        warm_up()
        return list(case_rows(cases, name, columns, known, timeout))

    ray.init(ignore_reinit_error=True)
    waiting = [task.remote(name) for name in names]
    while waiting:
        done, waiting = ray.wait(waiting)
        yield from ray.get(done[0])


def here(
    cases: str, names: list[str], columns: list[str], known: dict[tuple[str, str], str], timeout: float
) -> Iterable[Any]:
    from warm import warm_up

    warm_up()
    for name in names:
        yield from case_rows(cases, name, columns, known, timeout)


def read(path: Path) -> list[dict[str, Any]]:
    """The rows, the later of two for the same case and column."""
    lines = path.read_text().splitlines() if path.exists() else []
    return list({(row["case"], row["column"]): row for row in map(json.loads, lines)}.values())


def every(path: Path) -> list[dict[str, Any]]:
    """The rows and those of the older tools beside them. What an older transformers finds legal is its own affair."""
    return read(path) + [row for row in read(path.with_name("rows-older.jsonl")) if row["column"] != LEGAL]


IDLE = "rows-idle.jsonl"


def drawn(count: int) -> list[str]:
    """So many of the legal cases, the same each time."""
    legal = sorted(row["case"] for row in read(HERE / "rows.jsonl") if row["outcome"] == LEGAL)
    return random.Random(11).sample(legal, count)


def main(cases: str = CASES, home: Path = HERE) -> None:
    """Run the cases of a module; their rows are in the folder `home`."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=["*"], help="names of cases, * and ? allowed")
    parser.add_argument("--columns", nargs="*", help="by default all of them")
    parser.add_argument("--shard", default="1/1", help="i/n: every n-th case, from the i-th")
    parser.add_argument("--jobs", type=int, default=1, help="shards to run side by side on this machine")
    parser.add_argument("--on", choices=["here", "ray"], default="here")
    parser.add_argument("--timeout", type=float, default=2400.0, help="seconds for each case and column")
    parser.add_argument("--rows", type=Path, help="where rows are kept")
    parser.add_argument("--older", action="store_true", help="the columns that need an older transformers")
    parser.add_argument("--again", action="store_true", help="run also what is there already")
    parser.add_argument("--idle", type=int, default=0, help="how many cases, drawn at random, to run for their time")
    parser.add_argument("--write", action="store_true", help="only sum the rows up")
    args = parser.parse_args()
    if args.idle:
        args.only, args.columns, args.rows = drawn(args.idle), [BARE, FAIRWAY], HERE / IDLE
    args.rows = args.rows or home / ("rows-older.jsonl" if args.older else "rows.jsonl")
    if args.write:
        from table import write

        write(every(args.rows), read(HERE / IDLE), HERE)
        return
    part, parts = map(int, args.shard.split("/"))
    if args.jobs > 1:
        # Shards of the same command; the last --shard given counts.
        shards = [f"{part + parts * i}/{parts * args.jobs}" for i in range(args.jobs)]
        running = [subprocess.Popen([sys.executable, *sys.argv, "--jobs", "1", "--shard", s]) for s in shards]
        sys.exit(max(process.wait() for process in running))
    from columns import OLDER, STOCK

    names = importlib.import_module(cases).names
    chosen = [n for n in names() if any(fnmatch(n, pattern) for pattern in args.only)][part - 1 :: parts]
    known = {} if args.again else {(row["case"], row["column"]): row["outcome"] for row in read(args.rows)}
    rows = on_ray if args.on == "ray" else here
    columns = args.columns or ([*OLDER] if args.older else [*STOCK, FAIRWAY])
    for row in rows(cases, chosen, columns, known, args.timeout):
        with args.rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        note = row.get("note", "")[:100]
        print(f"{row['case']}, {row['column']}: {row['outcome']} ({row['seconds']} s) {note}", flush=True)


if __name__ == "__main__":
    main()
