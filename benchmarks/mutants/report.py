"""From rows to tables: kill rates by class and by model, and every survivor."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
JUDGES = ("allclose", "torch", "quick", "standard", "deep")


def killed(row: Row, judge: str) -> bool:
    """Deep was asked about every survivor of standard; what it was not asked about, standard's samples killed."""
    word = row.get(judge) or (row["standard"] if judge == "deep" else "verified")
    return bool(word != "verified")


def rates(rows: list[Row], key: str) -> dict[str, dict[str, Any]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return {
        name: {"mutants": len(group), **{j: sum(killed(r, j) for r in group) for j in JUDGES}}
        for name, group in groups.items()
    }


def write_report(rows: list[Row], folder: Path) -> None:
    proven = [row for row in rows if "witness" in row]
    dropped = [row for row in rows if "dropped" in row]
    asked = [row for row in proven if "deep" in row]
    total = {"mutants": len(proven), **{j: sum(killed(r, j) for r in proven) for j in JUDGES}}
    explained = json.loads((folder / "survivors.json").read_text()) if (folder / "survivors.json").exists() else {}
    survivors = [
        {k: row[k] for k in ("model", "kind", "place", "witness")}
        | {"survives": [j for j in ("standard", "deep") if not killed(row, j)]}
        | {"why": explained.get(f"{row['model']}/{row['kind']}/{row['place']}", "")}
        for row in proven
        if not killed(row, "standard")
    ]
    result = {
        "total": total,
        "rate": {j: round(total[j] / max(len(proven), 1), 5) for j in JUDGES},
        "proposed": len(rows),
        "dropped": {
            "differs by rounding only or not at all": sum(r["dropped"] == "rounding" for r in dropped),
            "does not load": sum(r["dropped"].startswith("refused") for r in dropped),
            "could not be made or killed the runtime": sum(
                not r["dropped"].startswith(("rounding", "refused")) for r in dropped
            ),
        },
        "deep_asked_about_killed": sum(killed(r, "standard") for r in asked),
        "deep_lets_pass_what_standard_kills": sum(killed(r, "standard") and not killed(r, "deep") for r in asked),
        "by_class": rates(proven, "kind"),
        "by_model": rates(proven, "model"),
        "survivors": survivors,
    }
    (folder / "results.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    (folder / "results.md").write_text("\n".join(_lines(result)) + "\n")


def _lines(result: dict[str, Any]) -> Iterable[str]:
    yield "# Mutants: wrong files that each judge refuses"
    yield ""
    yield "Made by `python benchmarks/mutants/run.py`; do not edit."
    yield ""
    for title, key in (("class", "by_class"), ("model", "by_model")):
        yield from _table(title, {**result[key], "all": result["total"]})
        yield ""
    yield "Of the proposals, dropped: " + "; ".join(f"{n} {what}" for what, n in result["dropped"].items()) + "."
    yield ""
    yield "## Survivors of standard"
    yield ""
    yield "| model | class | place | differs first at | survives | why |"
    yield "|---|---|---|---|---|---|"
    for one in result["survivors"]:
        where = ", ".join(f"{k}={v}" for k, v in one["witness"]["point"].items())
        how = f"{where} ({one['witness']['style']}): {one['witness']['what']}"
        cells = (one["model"], one["kind"], one["place"], how)
        yield "| " + " | ".join((*cells, ", ".join(one["survives"]), one["why"] or "not looked at")) + " |"


def _table(title: str, groups: dict[str, dict[str, Any]]) -> Iterable[str]:
    yield f"| {title} | mutants | allclose at the example | torch verify=True | quick | standard | deep |"
    yield "|---|---|---|---|---|---|---|"
    for name, group in groups.items():
        cells = [f"{100 * group[j] / group['mutants']:.1f}%" for j in JUDGES]
        yield f"| {name} | {group['mutants']} | " + " | ".join(cells) + " |"
