"""The rows of a run as results.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

TITLES = {"traps": "Traps: own exports", "wrong": "Wrong files", "right": "Right files"}
BAD_OUTCOMES = {
    "traps": {"verified-WRONG": "Verified and wrong"},
    "wrong": {"ACCEPTED": "Wrong files accepted"},
    "right": {
        "REFUSED": "Right files called wrong",
        "failed": "Right files that were not judged",
        "unproven": "Right files left unproven",
    },
}
BROKEN_OUTCOMES = ("crashed", "timeout", "memory", "died", "error of the set")


def make_table(rows: Sequence[Row]) -> str:
    parts = ["# Adversary: models and files made to fool the judge", ""]
    for which in TITLES:
        for level in ("quick", "standard", "deep"):
            chosen = sorted(
                (r for r in rows if r["set"] == which and r["level"] == level), key=lambda r: str(r["name"])
            )
            if chosen:
                parts += describe_set(which, level, chosen)
    return "\n".join(parts).rstrip() + "\n"


def describe_set(which: str, level: str, rows: Sequence[Row]) -> list[str]:
    """Return the counts by category, then every bad outcome by name."""
    outcomes = [name for name, _ in Counter(row["outcome"] for row in rows).most_common()]
    lines = [f"## {TITLES[which]}, {level}", "", f"{len(rows)} cases: {count_outcomes(rows)}.", ""]
    lines += ["| category | cases | " + " | ".join(outcomes) + " |", "|---|---|" + "---|" * len(outcomes)]
    for category in sorted({row.get("category", "?") for row in rows}):
        part = [row for row in rows if row.get("category", "?") == category]
        counts = Counter(row["outcome"] for row in part)
        lines.append(f"| {category} | {len(part)} | " + " | ".join(str(counts[o] or "") for o in outcomes) + " |")
    for outcome, title in BAD_OUTCOMES[which].items():
        lines += ["", f"### {title}, {level}", "", *(list_rows(rows, outcome) or ["None."])]
    broken = [line for outcome in BROKEN_OUTCOMES for line in list_rows(rows, outcome)]
    if broken:
        lines += ["", f"### Did not finish, {level}", "", *broken]
    unnamed = [f"- {row['name']}" for row in rows if row.get("named") is False]
    if unnamed:
        lines += ["", f"### Constants that the result does not name, {level}", "", *unnamed]
    return [*lines, ""]


def count_outcomes(rows: Sequence[Row]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in Counter(row["outcome"] for row in rows).most_common())


def list_rows(rows: Sequence[Row], outcome: str) -> list[str]:
    return [describe_row(row) for row in rows if row["outcome"] == outcome]


def describe_row(row: Row) -> str:
    codes = ", ".join(row.get("codes") or ["no finding"])
    return f"- {row['name']} ({codes}): {shorten(row.get('shown') or row.get('note', ''))}"


def shorten(text: str) -> str:
    return " ".join(str(text).split())[:200]
