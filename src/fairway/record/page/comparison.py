"""Several records side by side: two exporters, two versions, float beside int8, and what differs among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fairway.diagnostics.excuses import count_samples
from fairway.record.page.summary import RIGHT, WRONG, Story

MOST = 300
"""Points that came out otherwise in one record than in another are listed up to here."""


def compare(stories: Sequence[Story]) -> dict[str, Any]:
    return {
        "labels": [story["label"] for story in stories],
        "facts": _facts(stories),
        "operators": _counts(stories, lambda story: dict(map(tuple, (story["graph"] or {}).get("operators", ())))),
        "outputs": _counts(stories, _worst_by_output),
        "points": _points(stories),
    }


def _facts(stories: Sequence[Story]) -> list[dict[str, Any]]:
    """One row for each thing that is known of any of them."""
    rows: dict[str, list[str]] = {}
    for number, story in enumerate(stories):
        for key, value in brief(story).items():
            rows.setdefault(key, [""] * len(stories))[number] = value
    return [
        {"name": key, "values": values, "differs": len(set(values)) > 1} for key, values in rows.items() if any(values)
    ]


def brief(story: Story) -> dict[str, str]:
    """Everything of a record that fits into a cell."""
    evidence, graph = story["evidence"] or {}, story.get("graph")
    found = {
        "verdict": story["verdict"],
        "route": story["route"],
        "opset": _shown(story["opset"]),
        "domain": ", ".join(f"{d['name']} {d['low']}..{d['high']}" for d in story["dims"]),
        "level": evidence.get("level", ""),
        "samples right": _samples(evidence.get("tested", [])),
        "worst error, of what is allowed": _shown(_worst(evidence)),
        "remedies": ", ".join(one["name"] for one in story["remedies"]),
        "findings": ", ".join(dict.fromkeys(one["code"] for one in story["findings"])),
        "time on the ladder": _shown(float(sum(rung["seconds"] for rung in story["ladder"])) or None, " s"),
        "peak memory": _shown(max((rung["peak_mb"] for rung in story["ladder"]), default=None), " MB"),
        "quantised": "" if story["quantised"] is None else story["quantised"]["said"] or story["quantised"]["scheme"],
    }
    if graph is not None:
        _, _, _, nodes, parameters, held = graph["modules"][0]
        found |= {
            "nodes": f"{nodes:,}",
            "parameters": f"{parameters:,}",
            "bytes of weights": f"{held:,}",
            "bytes on disk": f"{graph['bytes']:,}",
        }
    found |= {f"version of {key}": value for key, value in story["versions"].items()}
    return found | {"model's sha256": story["subject"]["sha256"][:12], "file's sha256": story["sha256"][:12]}


def _shown(value: float | int | None, unit: str = "") -> str:
    return "" if value is None else f"{value:.3g}{unit}" if isinstance(value, float) else f"{value}{unit}"


def _samples(tested: Sequence[Sequence[Any]]) -> str:
    legal = [(one[1] == RIGHT, str(one[7])) for one in tested if one[1] in (RIGHT, WRONG)]
    return count_samples(legal, "") if legal else ""


def _worst(evidence: dict[str, Any]) -> float | None:
    ratios = [float(one["ratio"]) for one in evidence.get("outputs", ()) if one["ratio"] is not None]
    return max(ratios, default=None)


def _worst_by_output(story: Story) -> dict[str, Any]:
    return {one["name"]: one["ratio"] for one in (story["evidence"] or {}).get("outputs", ())}


def _counts(stories: Sequence[Story], of: Callable[[Story], dict[str, Any]]) -> list[dict[str, Any]]:
    every = [of(story) for story in stories]
    keys = dict.fromkeys(key for one in every for key in one)
    rows = [{"name": key, "values": [one.get(key) for one in every]} for key in keys]
    return [{**row, "differs": len(set(row["values"])) > 1} for row in rows]


def _points(stories: Sequence[Story]) -> dict[str, Any]:
    """Where one is right and another wrong. Only sizes that each of them was tested at can be compared."""
    states: list[dict[str, int]] = []
    for story in stories:
        names = [dim["name"] for dim in story["dims"]]
        found: dict[str, int] = {}
        for sizes, state, *_ in (story["evidence"] or {}).get("tested", ()):
            if state in (RIGHT, WRONG):
                key = ", ".join(f"{name}={size}" for name, size in zip(names, sizes, strict=True)) or "the fixed shape"
                found[key] = max(found.get(key, RIGHT), state)
        states.append(found)
    shared = [key for key in states[0] if all(key in one for one in states[1:])] if states else []
    rows = [{"name": key, "values": [one[key] for one in states]} for key in shared]
    other = [row for row in rows if len(set(row["values"])) > 1]
    return {"shared": len(shared), "differ": len(other), "rows": other[:MOST]}
