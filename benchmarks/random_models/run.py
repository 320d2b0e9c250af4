"""Random models through export and verification: `python benchmarks/random_models/run.py --count 1000 --seed 0`.

A warm process forks one child for each seed. Rows go to `--rows` as JSON lines at once, and seeds that are there
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

BAD = ("verified, WRONG", "wrong, RIGHT", "generator at fault", "crashed")


def done(rows: Path) -> dict[int, dict[str, Any]]:
    if not rows.exists():
        return {}
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    return {row["seed"]: row for row in found}


def one_apart(seed: int, level: str, timeout: float) -> dict[str, Any]:
    from one import judge

    from fairway.workers.attempt import Limits, Workers

    with tempfile.TemporaryDirectory() as folder, Workers(Limits(timeout)) as workers:
        got = workers.run(lambda tell: judge(seed, level, Path(folder), timeout / 4))
    if got.status == "done":
        row: dict[str, Any] = got.value
        return row
    said = got.failure.text[-2000:] if got.failure else got.log[-2000:]
    return {"seed": seed, "outcome": "crashed", "status": got.status, "said": said}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--seeds", type=int, nargs="*", help="these instead, run again where they are there")
    parser.add_argument("--level", default="standard")
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds for each model")
    parser.add_argument("--rows", type=Path, default=HERE / "rows.jsonl")
    parser.add_argument("--write", action="store_true", help="results.json and results.md from the rows")
    args = parser.parse_args()
    rows = done(args.rows)
    if args.write:
        from table import write

        write(rows, HERE)
        return
    wanted = args.seeds or [s for s in range(args.seed, args.seed + args.count) if s not in rows]
    from warm import warm_up

    warm_up()
    bad = 0
    for number, seed in enumerate(wanted, 1):
        row = one_apart(seed, args.level, args.timeout)
        with args.rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        bad += row["outcome"] in BAD
        codes = " ".join(sorted({code for code, _ in row.get("findings", ())}))
        print(f"{number}/{len(wanted)} seed {seed}: {row['outcome']} {codes} ({row.get('seconds', '?')} s)", flush=True)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
