"""The rows of the wild corpus summed up: by column, the goals, and what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from run import FAIRWAY, LEGAL
from table import OUTCOMES, Row, best_of_stock, find_goals, sum_up
from wild import names

SUBJECT = "wild"


def write(rows: Sequence[Row], folder: Path) -> None:
    """Write results.md. Only cases that Fairway was run on count, for every column."""
    known = set(names())
    rows = [row for row in rows if row["case"] in known]
    legal = {row["case"] for row in rows if row["column"] == LEGAL and row["outcome"] == "legal"}
    run = {row["case"] for row in rows if row["column"] == FAIRWAY} & legal
    scored = [row for row in rows if row["case"] in run and row["outcome"] in OUTCOMES]
    scored += best_of_stock(scored)
    lines = ["# The wild corpus", "", "Made by `python benchmarks/wild/run.py --write` from rows.jsonl.", ""]
    counts = f"{len(known)} models of {_count_packages(known)} packages are written down."
    counts += f" PyTorch was seen to take {len(legal)} of them over their domain."
    lines += [f"{counts} {len(run)} models of {_count_packages(run)} packages were run through Fairway.", ""]
    lines += [f"| | models | {' | '.join(OUTCOMES)} | seconds, median | p95 |", "|---" * (len(OUTCOMES) + 4) + "|"]
    for column, sums in sum_up(scored).items():
        counts = " | ".join(str(sums["outcomes"].get(outcome, 0)) for outcome in OUTCOMES)
        lines.append(
            f"| {column} | {sums['cases']} | {counts} | {sums['seconds_median']:.1f} | {sums['seconds_p95']:.1f} |"
        )
    lines += ["", "## Goals", "", *(f"- {goal}: {what}" for goal, what in find_goals(scored, _name_group).items())]
    lines += ["", "## Left", "", "What Fairway does not get right and verified:", ""]
    lines += [_describe(row) for row in rows if row["column"] == FAIRWAY and row["case"] in run and not _is_good(row)]
    lines += ["", "## Skipped", "", "Models that PyTorch itself does not run with these inputs and packages:", ""]
    lines += [
        f"- {row['case']}: {row['note']}" for row in rows if row["column"] == LEGAL and row["outcome"] == "skipped"
    ]
    families = Counter(row["family"] for row in rows if row["column"] == FAIRWAY and row["case"] in run)
    lines += ["", "## Subjects", "", *(f"- {name}: {count}" for name, count in sorted(families.items()))]
    (folder / "results.md").write_text("\n".join(lines) + "\n")


def _name_group(case: str) -> str:
    return SUBJECT


def _count_packages(cases: set[str]) -> int:
    return len({case.partition("/")[0] for case in cases})


def _is_good(row: Row) -> bool:
    return row["outcome"] == "right" and row.get("verdict") == "verified"


def _describe(row: Row) -> str:
    codes = ", ".join(row.get("codes", []))
    return f"- {row['case']}: {row['outcome']}, {row.get('verdict')} ({codes}) {row.get('note', '')}".rstrip()
