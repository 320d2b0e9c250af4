"""The rows of a run as results.json and results.md."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

MEANING = {
    "verified, right": "verified, and right at every size",
    "verified, WRONG": "verified, but wrong: a miss",
    "wrong, wrong": "called wrong or refused by the runtime, and it is",
    "wrong, RIGHT": "called wrong, but right: a false alarm",
    "unproven, RIGHT": "unproven, and right",
    "unproven, wrong": "unproven, and wrong",
    "failed": "no exporter gave a file",
    "generator at fault": "eager torch and the oracle disagree",
    "crashed": "the run of this seed did not end well",
}


def write(rows: dict[int, dict[str, Any]], folder: Path) -> None:
    counts = Counter(row["outcome"] for row in rows.values())
    operators = Counter(name for row in rows.values() for name in row.get("operators", ()))
    found = {
        "seeds": _spans(sorted(rows)),
        "count": len(rows),
        "outcomes": dict(counts),
        "samples": sum(row.get("samples", 0) for row in rows.values()),
        "operators": len(operators),
        "steps": sum(operators.values()),
        "routes": dict(Counter(row["route"] for row in rows.values() if row["outcome"] == "verified, right")),
        "bad": {o: [s for s, r in rows.items() if r["outcome"] == o] for o in counts if o in _bad()},
        "refusals": _refusals(rows),
    }
    (folder / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "results.md").write_text(_markdown(found))


def _bad() -> tuple[str, ...]:
    return ("verified, WRONG", "wrong, RIGHT", "generator at fault", "crashed")


def _spans(seeds: list[int]) -> str:
    if not seeds:
        return "none"
    whole = seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]}..{seeds[-1]}" + ("" if whole else f", {len(seeds)} of them")


def _refusals(rows: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """Count the messages of exporters and the runtime on any rung, by route and by their words without numbers."""
    seen: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for seed, row in rows.items():
        for route, _, findings in row.get("ladder", ()):
            for code, said in findings:
                if code in ("FW301", "FW302", "FW303", "FW304", "FW305", "FW307", "FW407", "FW408"):
                    seen[route.split()[0], code, re.sub(r"\d+", "N", said)[:90]].add(seed)
    ordered = sorted(seen.items(), key=lambda item: -len(item[1]))
    return [{"route": r, "code": c, "said": s, "seeds": sorted(found)} for (r, c, s), found in ordered]


def _markdown(found: dict[str, Any]) -> str:
    lines = [
        "# Random models",
        "",
        f"Seeds {found['seeds']}: {found['count']} models of {found['steps']} steps of {found['operators']} kinds; the "
        f"oracle judged {found['samples']} samples of each implementation.",
        "",
        "| outcome | meaning | models |",
        "|---|---|---|",
        *(f"| {o} | {MEANING.get(o, '')} | {n} |" for o, n in sorted(found["outcomes"].items(), key=lambda i: -i[1])),
        "",
        "## What exporters and the runtime refused, on any rung",
        "",
        "| models | route | code | words |",
        "|---|---|---|---|",
    ]
    for one in found["refusals"]:
        words = one["said"].replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {len(one['seeds'])} | {one['route']} | {one['code']} | {words} |")
    return "\n".join(lines) + "\n"
