"""results.json as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write(results: dict[str, Any], path: Path) -> None:
    rows = [
        "| target | executions | slowest | peak memory | lines reached | findings reached | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in sorted(results.items()):
        covered = ", ".join(f"{file} {got}/{all_}" for file, (got, all_) in row["covered"].items())
        codes = ", ".join(sorted(code for code in row["ended"] if code.startswith("FW")))
        rows.append(
            f"| {name} | {row['executions']:,} | {row['slowest_seconds']:.2f} s | {row['peak_mb']} MB | "
            f"{covered} | {codes} | {row['seconds']:.0f} |"
        )
    note = "Written by run.py. A crash sets the count of its target back to nothing, so these executions had none."
    path.write_text("\n".join(("# Fuzzing", "", note, "", *rows, "")))
