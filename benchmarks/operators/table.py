"""Sums of the rows: by suite and column, and what is left."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from columns import COLUMNS, FAIRWAY, STOCK

Row = dict[str, Any]
LEGAL = "legal"


def write_tables(rows: Sequence[Row], first: Sequence[Row], folder: Path) -> None:
    """Write results.json and results.md. `first` are the rows of first_files.py."""
    results = {"first files": _sum_first(first), "columns": _sum_columns(rows)} | _find_worst(rows)
    (folder / "results.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    (folder / "results.md").write_text(_make_page(results, first))


def _get_suite(row: Row) -> str:
    return str(row["case"]).partition("/")[0]


def _sum_first(rows: Sequence[Row]) -> dict[str, Row]:
    return {
        suite: dict(Counter(row["outcome"] for row in rows if _get_suite(row) == suite))
        for suite in dict.fromkeys(map(_get_suite, rows))
    }


def _sum_columns(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    by_case: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_case.setdefault(row["case"], {})[row["column"]] = row
    # Only cases that all columns were asked about are compared.
    complete = [columns for columns in by_case.values() if set(COLUMNS) <= set(columns)]
    sums: dict[str, dict[str, Row]] = {}
    for columns in complete:
        suite = sums.setdefault(_get_suite(columns[FAIRWAY]), {})
        for name in COLUMNS:
            count = suite.setdefault(name, {"cases": 0, "right": 0})
            count["cases"] += 1
            count["right"] += columns[name]["outcome"] == "right"
        both = suite[FAIRWAY].setdefault("right and verified", 0)
        suite[FAIRWAY]["right and verified"] = both + (
            columns[FAIRWAY]["outcome"] == "right" and columns[FAIRWAY].get("verdict") == "verified"
        )
        best = suite.setdefault("the better of the two", {"cases": 0, "right": 0})
        best["cases"] += 1
        best["right"] += any(columns[name]["outcome"] == "right" for name in STOCK)
    return sums


def _find_worst(rows: Sequence[Row]) -> Row:
    ours = {row["case"]: row for row in rows if row["column"] == FAIRWAY}
    stock = {row["case"] for row in rows if row["column"] in STOCK and row["outcome"] == "right"}
    return {
        "verified but wrong": sorted(
            case for case, row in ours.items() if row.get("verdict") == "verified" and row["outcome"] != "right"
        ),
        "right by a stock exporter, not by Fairway": sorted(
            case for case, row in ours.items() if case in stock and row["outcome"] != "right"
        ),
        "right but not verified": sorted(
            case for case, row in ours.items() if row["outcome"] == "right" and row.get("verdict") != "verified"
        ),
    }


def _make_page(results: Row, first: Sequence[Row]) -> str:
    lines = ["# Operators, modules and examples of torch", ""]
    lines += [
        "## Fairway's first file",
        "",
        "Made by `first_files.py`: each case once, not judged, checked at four seeds.",
        "",
    ]
    lines += ["| suite | cases | right | not right | skipped |", "|---|---|---|---|---|"]
    for suite, counts in results["first files"].items():
        skipped, right = counts.get("skipped", 0), counts.get("right", 0)
        cases = sum(counts.values()) - skipped
        lines.append(f"| {suite} | {cases} | {right} ({right / max(cases, 1):.1%}) | {cases - right} | {skipped} |")
    lines += [
        "",
        "## By column",
        "",
        "Made by `run.py`: the cases that all columns were run on, a fair sample if not all.",
        "",
    ]
    lines += ["| suite | column | cases | right | right and verified |", "|---|---|---|---|---|"]
    for suite, columns in results["columns"].items():
        for name, count in columns.items():
            verified = count.get("right and verified", "")
            lines.append(f"| {suite} | {name} | {count['cases']} | {count['right']} | {verified} |")
    for title in ("verified but wrong", "right by a stock exporter, not by Fairway", "right but not verified"):
        lines += ["", f"{title[0].upper()}{title[1:]}: {', '.join(results[title]) or 'none'}."]
    lines += ["", "## Left", "", "Cases whose first file is not right:", ""]
    lines += [f"- {row['case']}: {row['outcome']}, {row['note'][:160]}" for row in first if _is_left(row)]
    lines += ["", "## Skipped", "", "Reasons why no file can be compared with PyTorch:", ""]
    reasons = Counter(row["note"][:90] for row in first if row["outcome"] == "skipped")
    lines += [f"- {reason} ({count})" for reason, count in reasons.most_common()]
    return "\n".join(lines) + "\n"


def _is_left(row: Row) -> bool:
    return row["outcome"] not in ("right", "skipped")
