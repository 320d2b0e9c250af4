"""The tables of results.md from the rows."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

Row = dict[str, Any]

DOMAINS = {
    "bert": "BERT-base (438 MB), batch 1..8, seq 1..512",
    "vit": "ViT-base (346 MB), batch 1..8",
    "resnet": "ResNet-50 (102 MB), batch 1..8",
    "whisper": "Whisper-base encoder (82 MB), batch 1..4",
    "unet": "UNet (380 MB), batch 1..4, height and width 64..256 in steps of 16",
}
LEVELS = ("quick", "standard")
TIME_COLUMNS = (
    "model, domain",
    *("stock, s", "stock, CPU s", "stock, MB"),
    *("quick, s", "quick × stock", "quick, MB"),
    *("standard, s", "standard × stock", "standard, MB"),
    *("verdict", "samples", "excused", "worst of allowed", "load"),
)


def make_table(rows: list[Row]) -> str:
    lines = [
        "# Models at real sizes",
        "",
        "By `python benchmarks/real_sizes/run.py time` and `plant`, then `--write`.",
        "",
    ]
    lines += _tabulate_time(rows) + _tabulate_verdicts(rows) + _tabulate_kinds(rows) + _list_survivors(rows)
    return "\n".join(lines).rstrip() + "\n"


def _tabulate_time(rows: list[Row]) -> list[str]:
    lines = [
        "## Time and memory",
        "",
        "Wall seconds of a fresh process, with its imports and the building of the model. The ratio is to stock in the",
        "same round, and the median over rounds. Memory is the peak of all processes together, in MB. Load is the",
        "highest load average at the start of a run: above 1, other work took a part of the two cores.",
        "",
        "| " + " | ".join(TIME_COLUMNS) + " |",
        "|---" * len(TIME_COLUMNS) + "|",
    ]
    timed = [row for row in rows if row["what"] == "time"]
    for name in DOMAINS:
        ways = {way: [row for row in timed if (row["model"], row["way"]) == (name, way)] for way in ("stock", *LEVELS)}
        if not any(ways.values()):
            continue
        stock = ways["stock"]
        cells = [
            DOMAINS[name],
            _median(stock, "wall_seconds"),
            _median(stock, "cpu_seconds"),
            _median(stock, "peak_mb"),
        ]
        for level in LEVELS:
            cells += [_median(ways[level], "wall_seconds"), _ratio(ways[level], stock), _median(ways[level], "peak_mb")]
        for key in ("verdict", "samples", "excused", "worst_of_allowed"):
            cells.append(_last(ways["standard"], key))
        loads = [row["load"] for rows in ways.values() for row in rows if "load" in row]
        cells.append(f"{max(loads):.1f}" if loads else "–")
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _median(rows: list[Row], key: str) -> str:
    return f"{statistics.median(row[key] for row in rows):g}" if rows else "–"


def _ratio(rows: list[Row], stock: list[Row]) -> str:
    by_round = {row["round"]: row["wall_seconds"] for row in stock}
    ratios = [row["wall_seconds"] / by_round[row["round"]] for row in rows if row["round"] in by_round]
    return f"{statistics.median(ratios):.1f}" if ratios else "–"


def _last(rows: list[Row], key: str) -> str:
    value = rows[-1].get(key) if rows else None
    return "–" if value is None else f"{value:,.3g}" if isinstance(value, float) else str(value)


def _tabulate_verdicts(rows: list[Row]) -> list[str]:
    planted = [row for row in rows if row["what"] == "plant"]
    lines = [
        "## Planted errors at standard",
        "",
        "Each is at least 10 times as far from PyTorch as the right file. Refused means the verdict `wrong`, or that",
        "the file was not accepted for judging; `unproven` is counted apart. Of the refused files, those in the column",
        "weights were refused by the numbers of their weights, before a sample was run. The column checked says about",
        "how many files `fairway.verify` was asked as well, and how often it gave the same verdict. The right file is",
        "`verified` by `fairway.verify`, or there is `no proof` against it at any sample.",
        "",
        "| model | planted | refused | weights | unproven | verified | right file | checked | seconds per file |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in DOMAINS:
        own = [row for row in planted if row["model"] == name]
        wrong = [row for row in own if row["number"] > 0]
        if not own:
            continue
        verdicts = Counter(_fold(row) for row in wrong)
        right = next((row["verdict"] for row in own if row["number"] == 0), "–")
        counts = [verdicts["refused"], sum(row.get("by") == "weights" for row in wrong)]
        counts += [verdicts["unproven"], verdicts["verified"]]
        checked = [row["plain"] == row["verdict"] for row in wrong if "plain" in row]
        cells = [name, str(len(wrong)), *map(str, counts), right, f"{sum(checked)} of {len(checked)}"]
        lines.append("| " + " | ".join([*cells, _median(wrong, "seconds")]) + " |")
    return [*lines, ""]


def _fold(row: Row) -> str:
    return "refused" if row["verdict"] in ("wrong", "refused", "failed") else str(row["verdict"])


def _tabulate_kinds(rows: list[Row]) -> list[str]:
    wrong = [row for row in rows if row["what"] == "plant" and row["number"] > 0]
    lines = ["## By kind", "", "| kind | planted | refused | smallest error, times rounding |", "|---|---|---|---|"]
    for kind in dict.fromkeys(row["kind"] for row in sorted(wrong, key=lambda row: str(row["kind"]))):
        own = [row for row in wrong if row["kind"] == kind]
        refused = sum(_fold(row) == "refused" for row in own)
        lines.append(f"| {kind} | {len(own)} | {refused} | {min(row['times'] for row in own):.3g} |")
    return [*lines, ""]


def _list_survivors(rows: list[Row]) -> list[str]:
    left = [row for row in rows if row["what"] == "plant" and row["number"] > 0 and _fold(row) != "refused"]
    if not left:
        return []
    lines = [
        "## Not refused",
        "",
        "| model | number | kind | place | times rounding | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for row in left:
        cells = (row["model"], row["number"], row["kind"], row["place"], f"{row['times']:.3g}", row["verdict"])
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return [*lines, ""]
