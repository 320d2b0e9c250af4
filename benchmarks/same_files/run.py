"""Compare the verdicts and files of commits: `python benchmarks/same_files/run.py COMMIT COMMIT… [--cases N]`.

Cases are drawn from the corpus by a fixed seed; those whose export takes longer than MAX_EXPORT_SECONDS are left out of
the draw. Each commit's sources are unpacked from git, and a separate process exports all cases with them. Rows go to
rows.jsonl at once; a case that is there for a commit is not run again. `--write` makes table.md of the rows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CORPUS = ROOT / "benchmarks/corpus"
ROWS = HERE / "rows.jsonl"

DRAW_SEED = 27
MAX_EXPORT_SECONDS = 20
TIME_LIMIT_SECONDS = 900
"""The limit of one attempt."""

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def draw_cases(count: int) -> list[str]:
    """Return that many legal cases, the same each time."""
    rows = {(row["case"], row["column"]): row for row in read_rows(CORPUS / "rows.jsonl")}
    legal = sorted(case for (case, column), row in rows.items() if column == "legal" and row["outcome"] == "legal")
    quick = [case for case in legal if rows.get((case, "Fairway"), {"seconds": 0})["seconds"] <= MAX_EXPORT_SECONDS]
    return random.Random(DRAW_SEED).sample(quick, count)


def unpack_sources(commit: str, folder: Path) -> Path:
    """Write the sources of a commit into the folder, and return the path to import them from."""
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return folder / "src"


def hash_without_record(path: Path) -> str:
    """Return the sha256 of a file, for an ONNX file without its metadata, which holds the short record."""
    if path.suffix != ".onnx":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    import onnx

    model = onnx.load(path, load_external_data=False)
    del model.metadata_props[:]
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()


def export_cases(names: list[str], commit: str, folder: Path) -> None:
    """Export cases with whichever Fairway this process imports, and append a row for each to rows.jsonl."""
    sys.path[:0] = [str(CORPUS), str(CORPUS.parent)]
    from corpus import find
    from judged import export

    for name in names:
        target = folder / commit / name.replace("/", "_")
        target.mkdir(parents=True, exist_ok=True)
        outcome = export(find(name), target / "out.onnx", 4 * TIME_LIMIT_SECONDS)
        files = sorted(path for path in target.glob("out*") if not path.name.endswith(".json"))
        hashes = {path.name: hash_without_record(path) for path in files}
        chosen = {key: outcome.get(key) for key in ("verdict", "route", "remedies", "codes")}
        with ROWS.open("a") as file:
            file.write(json.dumps({"case": name, "commit": commit, **chosen, "sha256": hashes}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commits", nargs="*", help="commits, the one to compare with first")
    parser.add_argument("--cases", type=int, default=40, help="how many cases to draw")
    parser.add_argument("--only", nargs="*", help="names of cases to run instead")
    parser.add_argument("--keep", type=Path, help="a folder for the files, to look at differences")
    parser.add_argument("--write", action="store_true", help="only make table.md of the rows")
    options = parser.parse_args()
    if not options.write:
        run_all(options.only or draw_cases(options.cases), options.commits, options.keep)
    write_table(read_rows(ROWS))


def run_all(names: list[str], commits: list[str], keep: Path | None) -> None:
    """Export the cases that have no row yet, in one process for each commit."""
    known = {(row["case"], row["commit"]) for row in read_rows(ROWS)}
    with tempfile.TemporaryDirectory() as temporary:
        for commit in commits:
            missing = [name for name in names if (name, commit) not in known]
            (folder := Path(temporary) / commit).mkdir()
            sources = unpack_sources(commit, folder)
            arguments = f"{missing!r}, {commit!r}, pathlib.Path({str(keep or Path(temporary) / 'files')!r})"
            code = f"import pathlib, run; run.export_cases({arguments})"
            environment = {**os.environ, "PYTHONPATH": f"{sources}:{HERE}", "PYTHONHASHSEED": "0"}
            subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def write_table(rows: list[Row]) -> None:
    """Write one line for each case: its outcome at the first commit, and whether it is the same at the others."""
    commits = list(dict.fromkeys(row["commit"] for row in rows))
    by_case: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_case.setdefault(row["case"], {})[row["commit"]] = row
    first, *others = commits
    lines = [f"| case | {first} | {' | '.join(others)} |", "|---" * (len(others) + 2) + "|"]
    for case, outcomes in by_case.items():
        cells = [compare(outcomes[first], outcomes[commit]) if commit in outcomes else "" for commit in others]
        lines.append(f"| {case} | {describe(outcomes[first])} | {' | '.join(cells)} |")
    (HERE / "table.md").write_text("\n".join(lines) + "\n")


def describe(row: Row) -> str:
    return f"{row['verdict']}, {row.get('route')}"


def compare(before: Row, after: Row) -> str:
    """Say in words whether two rows have the same verdict and the same bytes."""
    if before["verdict"] != after["verdict"] or before.get("route") != after.get("route"):
        return describe(after)
    if before.get("sha256") != after.get("sha256"):
        return "same verdict, other bytes"
    return "same verdict and bytes" if before.get("sha256") else "same verdict, no file"


if __name__ == "__main__":
    main()
