"""The rows summed up: by group and column, the goals, and what is left."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from chart import draw
from run import BARE, FAIRWAY, LEGAL

OUTCOMES = ("right", "baked", "wrong", "wrong elsewhere", "refuses", "fails", "timeout")
BEST = "best of the stock ones"
OTHERS = ("transformers.exporters", "optimum-onnx", "onnx-diagnostic")
"""Columns of other tools; the rest besides Fairway are torch's own."""

Row = dict[str, Any]


def group(case: str) -> str:
    return "architectures" if case.startswith("arch/") else "idioms"


def write(rows: Sequence[Row], idle: Sequence[Row], folder: Path) -> None:
    """`idle` are rows of a machine that did nothing else, for the times."""
    asked = {row["case"]: row for row in rows if row["column"] == LEGAL}
    legal = {name for name, row in asked.items() if row["outcome"] == "legal"}
    scored = [row for row in rows if row["case"] in legal and row["outcome"] in OUTCOMES]
    scored += best_of_stock(scored)
    summed = {name: sum_up([r for r in scored if group(r["case"]) == name]) for name in ("architectures", "idioms")}
    skipped = {name: row["note"] for name, row in sorted(asked.items()) if row["outcome"] == "skipped"}
    run = {row["case"] for row in scored if row["column"] == FAIRWAY}
    told = {name: [len([c for c in cases if group(c) == name]) for cases in (run, legal)] for name in summed}
    goals = find_goals(scored, group) | _pace(idle)
    found = {"run": told, "columns": summed, "goals": goals, "skipped": skipped, "cases": _by_case(scored)}
    (folder / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "results.md").write_text(_page(found))
    (folder / "chart.svg").write_text(draw(summed, OUTCOMES))
    print(_page(found).partition("\n## Left")[0])


def best_of_stock(rows: Sequence[Row]) -> list[Row]:
    """For each case the best outcome of torch's own columns, as one who tried them all by hand would have it."""
    stock: dict[str, list[Row]] = {}
    for row in rows:
        if row["column"] not in (FAIRWAY, *OTHERS):
            stock.setdefault(row["case"], []).append(row)
    found = []
    for tried in stock.values():
        best = min(tried, key=lambda row: OUTCOMES.index(row["outcome"]))
        found.append({**best, "column": BEST, "seconds": sum(row["seconds"] for row in tried)})
    return found


def sum_up(rows: Sequence[Row]) -> dict[str, Row]:
    found = {}
    for column in dict.fromkeys(row["column"] for row in rows):
        mine = [row for row in rows if row["column"] == column]
        seconds = sorted(row["seconds"] for row in mine)
        found[column] = {
            "cases": len(mine),
            "outcomes": dict(Counter(row["outcome"] for row in mine)),
            "seconds_median": statistics.median(seconds),
            "seconds_p95": seconds[int(0.95 * (len(seconds) - 1))],
        }
    return found


def find_goals(rows: Sequence[Row], group: Callable[[str], str]) -> Row:
    """Fairway's part, by the checker that knows nothing of it."""
    ours = {row["case"]: row for row in rows if row["column"] == FAIRWAY}
    found: Row = {}
    for name in sorted(set(map(group, ours))):
        mine = [row for row in ours.values() if group(row["case"]) == name and not row.get("impossible")]
        good = [row for row in mine if row.get("verdict") == "verified" and row["outcome"] == "right"]
        found[name] = {"right and verified": len(good), "of": len(mine)}
    found["verified but wrong"] = sorted(
        case for case, row in ours.items() if row.get("verdict") == "verified" and row["outcome"] != "right"
    )
    found["not verified but right"] = sorted(
        case for case, row in ours.items() if row.get("verdict") in ("wrong", "unproven") and row["outcome"] == "right"
    )
    found["worse than another"] = sorted(
        f"{row['case']} ({row['column']})"
        for row in rows
        if row["outcome"] == "right" and row["case"] in ours and ours[row["case"]]["outcome"] != "right"
    )
    return found


def _pace(rows: Sequence[Row]) -> Row:
    """Time to a verdict over the time of stock dynamo's export alone, right or not, case by case."""
    bare = {row["case"]: row["seconds"] for row in rows if row["column"] == BARE}
    ours = {row["case"]: row["seconds"] for row in rows if row["column"] == FAIRWAY}
    ratios = sorted(seconds / max(bare[case], 0.05) for case, seconds in ours.items() if case in bare)
    if not ratios:
        return {}
    half, most = statistics.median(ratios), ratios[int(0.95 * (len(ratios) - 1))]
    return {"time over dynamo's": {"cases": len(ratios), "median": round(half, 2), "p95": round(most, 2)}}


def _by_case(rows: Sequence[Row]) -> dict[str, Row]:
    cases: dict[str, Row] = {}
    for row in rows:
        if row["column"] != BEST:
            cases.setdefault(row["case"], {})[row["column"]] = row["outcome"]
    return dict(sorted(cases.items()))


def _page(found: Row) -> str:
    lines = ["# The corpus", "", "Made by `python benchmarks/corpus/run.py --write` from rows.jsonl.", ""]
    for name, columns in found["columns"].items():
        run, legal = found["run"][name]
        lines += [f"## {name.capitalize()}", "", f"{run} of {legal} cases were run through Fairway.", ""]
        lines += [f"| | cases | {' | '.join(OUTCOMES)} | seconds, median | p95 |"]
        lines += ["|---" * (len(OUTCOMES) + 4) + "|"]
        for column, sums in columns.items():
            counts = " | ".join(str(sums["outcomes"].get(outcome, 0)) for outcome in OUTCOMES)
            times = f"{sums['seconds_median']:.1f} | {sums['seconds_p95']:.1f}"
            lines.append(f"| {column} | {sums['cases']} | {counts} | {times} |")
        lines.append("")
    lines += ["## Goals", ""]
    lines += [f"- {goal}: {json.dumps(what, ensure_ascii=False)}" for goal, what in found["goals"].items()]
    lines += ["", "## Left", "", "Cases that Fairway does not get right:", ""]
    left = {case: by for case, by in found["cases"].items() if by.get(FAIRWAY) not in ("right", None)}
    lines += [f"- {case}: {by[FAIRWAY]}" for case, by in left.items()]
    lines += ["", "## Skipped", "", "Types that PyTorch itself does not run at this size and with these inputs:", ""]
    lines += [f"- {case}: {why}" for case, why in found["skipped"].items()]
    return "\n".join(lines) + "\n"
