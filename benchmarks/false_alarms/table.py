"""The rows of a run as results.json and results.md."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any


def write(rows: dict[str, dict[str, Any]], folder: Path) -> None:
    correct = [row for row in rows.values() if "verdicts" in row]
    levels = Counter((level, verdict) for row in correct for level, verdict in row["verdicts"].items())
    found = {
        "cases": len(rows),
        "correct": len(correct),
        "verdicts": {f"{level} {verdict}": count for (level, verdict), count in sorted(levels.items())},
        "by": {
            "exporter": dict(Counter(row["case"].split("/")[1] for row in correct)),
            "dtype": dict(Counter(row["case"].split("/")[2] for row in correct)),
        },
        "excused": sum(bool(row.get("excused")) for row in correct),
        "undecided": sum(bool(row.get("undecided")) for row in correct),
        "alarms": [row for row in correct if row["outcome"] != "verified"],
        "not_correct": [
            {k: row.get(k) for k in ("case", "outcome", "said")} for row in rows.values() if "verdicts" not in row
        ],
        "verified": sorted(row["case"] for row in correct if row["outcome"] == "verified"),
    }
    (folder / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "results.md").write_text(_markdown(found))


def _markdown(found: dict[str, Any]) -> str:
    lines = [
        "# False alarms",
        "",
        f"{found['cases']} cases, of which {found['correct']} are correct exports by the plain check; the others "
        "are listed below with the reason.",
        "",
        "| level and verdict | files |",
        "|---|---|",
        *(f"| {what} | {count} |" for what, count in found["verdicts"].items()),
        "",
        f"By exporter: {_counts(found['by']['exporter'])}. By dtype: {_counts(found['by']['dtype'])}. In "
        f"{found['excused']} files some sample was excused, in {found['undecided']} some whole number was undecided.",
        "",
        "## Alarms",
        "",
        *([f"- {row['case']}: {row['findings'][0]}" for row in found["alarms"]] or ["None."]),
        "",
        "## Not correct exports, so not counted",
        "",
        "| case | why |",
        "|---|---|",
    ]
    for row in found["not_correct"]:
        said = " ".join(str(row["said"]).split()).replace("|", "\\|")[:160]
        lines.append(f"| {row['case']} | {row['outcome']}: {said} |")
    return "\n".join(lines) + "\n"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
