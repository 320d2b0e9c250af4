"""Models at real sizes: what a verdict costs, and which planted errors it finds.

`python benchmarks/real_sizes/run.py time [--only bert] [--rounds 1]` runs the stock exporter and `fairway export` at
quick and at standard, each in a fresh process, one after the other, in another order in each round.
`python benchmarks/real_sizes/run.py plant [--only bert] [--count 40]` plants errors into the stock export and judges
each file, and the right one, as `fairway.verify` does. Rows go to rows.jsonl at once and are not run again.
`--write` makes results.md of them. `--tiny` shrinks every config; its rows go to the folder of the files.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]
sys.path.append(str(HERE.parent / "large"))

from measure import measured  # noqa: E402  # from the large models
from table import make_table  # noqa: E402  # from this folder

MODELS = ("bert", "vit", "resnet", "whisper", "unet")
WAYS = ("stock", "quick", "standard")
RUN_SECONDS_LIMIT = 3600.0

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """Every row once: the last of those that were run again."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    key = ("what", "model", "way", "round", "number")
    return list({tuple(row.get(name) for name in key): row for row in rows}.values())


def make_command(name: str, way: str, out: Path) -> list[str]:
    """Return the command that a user types for this way of exporting."""
    if way == "stock":
        return [sys.executable, str(HERE / "stock.py"), name, str(out)]
    recipe = f"{HERE / 'models.py'}:{name}"
    return [sys.executable, "-m", "fairway", "export", recipe, "-o", str(out), "--level", way]


def time_once(name: str, way: str) -> Row:
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "out"
        folder.mkdir()
        row = measured(make_command(name, way, folder / f"{name}.onnx"), folder, RUN_SECONDS_LIMIT)
        call_seconds, last_line = row.pop("call_cpu_seconds"), row.pop("tail")
        records = [json.loads(path.read_text()) for path in folder.glob("*.fairway.json")]
    if row["exit"] not in (0, 1):  # 1 is a verdict other than verified
        row["note"] = last_line
    if way == "stock":
        row["call_seconds"] = call_seconds
    else:
        row |= summarize_record(records[0]) if records else {"verdict": "no record"}
    return row


def summarize_record(record: Row) -> Row:
    """The verdict, how many samples were run and excused, and the worst error in units of what is allowed."""
    evidence = record.get("evidence") or {}
    tested = evidence.get("tested", [])
    excused = [one for one in tested if one.get("excused") or "(excused:" in str(one.get("note", ""))]
    ratios = [one["ratio"] for one in tested if one.get("ratio") is not None]
    return {
        "verdict": record["verdict"],
        "samples": len(tested),
        "excused": len(excused),
        "worst_of_allowed": max(ratios, default=None),
        "spent": evidence.get("spent", {}),
    }


def time_models(names: list[str], ways: list[str], rounds: int, known: list[Row], tiny: bool) -> Iterator[Row]:
    """Run what is missing. A round of a model is run as a whole, since its ratios hold for one state of the machine."""
    done = {(row["model"], row["way"], row["round"]) for row in known if row["what"] == "time"}
    for number in range(1, rounds + 1):
        order = [way for i in range(len(WAYS)) if (way := WAYS[(number - 1 + i) % len(WAYS)]) in ways]
        for name in names:
            if all((name, way, number) in done for way in order):
                continue
            for way in order:
                row = {"what": "time", "model": name, "way": way, "round": number, "tiny": tiny}
                yield row | time_once(name, way)


def plant_models(names: list[str], count: int, check_every: int, rows: Path) -> None:
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(HERE / "plant.py"), name, folder, str(rows), str(count)]
            subprocess.run([*command, str(check_every)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("time", "plant"), nargs="?")
    parser.add_argument("--only", nargs="*", choices=MODELS, default=[*MODELS])
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=[*WAYS])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--count", type=int, default=40, help="planted errors per model")
    parser.add_argument("--check-every", type=int, default=10, help="ask fairway.verify about one file of so many too")
    parser.add_argument("--tiny", metavar="FOLDER", type=Path, help="shrink every config; rows go to FOLDER/rows.jsonl")
    parser.add_argument("--write", action="store_true", help="make results.md of the rows")
    args = parser.parse_args()
    home = args.tiny or HERE
    rows = home / "rows.jsonl"
    if args.tiny:
        os.environ["REAL_SIZES_TINY"] = "1"
    if args.what == "time":
        for row in time_models(args.only, args.ways, args.rounds, read_rows(rows), bool(args.tiny)):
            with rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, flush=True)
    if args.what == "plant":
        plant_models(args.only, args.count, args.check_every, rows)
    if args.write:
        (home / "results.md").write_text(make_table(read_rows(rows)))


if __name__ == "__main__":
    main()
