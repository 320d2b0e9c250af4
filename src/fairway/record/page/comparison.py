"""Compare records: two exporters, two versions, a float file with its quantized one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fairway.diagnostics.excuses import count_samples
from fairway.record.page.sanitize import PageData
from fairway.record.page.summary import RIGHT, WRONG, Summary

MAX_POINTS = 300
"""Points with different outcomes that are listed. All of them are counted."""


def compare_summaries(stories: Sequence[Summary]) -> PageData:
    return {
        "labels": [story["label"] for story in stories],
        "facts": _compare_facts(stories),
        "operators": _compare_values(stories, _count_operators),
        "outputs": _compare_values(stories, _list_ratios),
        "points": _compare_points(stories),
    }


def _compare_facts(stories: Sequence[Summary]) -> list[PageData]:
    """Return a row for each fact that is known of any record."""
    rows: dict[str, list[str]] = {}
    for number, story in enumerate(stories):
        for key, value in list_facts(story).items():
            rows.setdefault(key, [""] * len(stories))[number] = value
    return [
        {"name": key, "values": values, "differs": len(set(values)) > 1} for key, values in rows.items() if any(values)
    ]


def list_facts(story: Summary) -> dict[str, str]:
    """Return the facts of a record that fit into a cell, by what they are called."""
    evidence, graph = story["evidence"] or {}, story.get("graph")
    quantized = story["quantized"]
    facts = {
        "verdict": story["verdict"],
        "route": story["route"],
        "opset": _format_number(story["opset"]),
        "domain": ", ".join(f"{dim['name']} {dim['low']}..{dim['high']}" for dim in story["dims"]),
        "level": evidence.get("level", ""),
        "samples right": _count_samples(evidence.get("tested", [])),
        "worst error, of what is allowed": _format_number(_find_largest_ratio(story)),
        "remedies": ", ".join(remedy["name"] for remedy in story["remedies"]),
        "findings": ", ".join(dict.fromkeys(finding["code"] for finding in story["findings"])),
        "time on the ladder": _format_number(float(sum(rung["seconds"] for rung in story["ladder"])) or None, " s"),
        "peak memory": _format_number(max((rung["peak_mb"] for rung in story["ladder"]), default=None), " MB"),
        "quantized": "" if quantized is None else quantized["said"] or quantized["scheme"],
    }
    if graph is not None:
        _, _, _, nodes, parameters, weight_bytes = graph["modules"][0]
        facts |= {
            "nodes": f"{nodes:,}",
            "parameters": f"{parameters:,}",
            "bytes of weights": f"{weight_bytes:,}",
            "bytes on disk": f"{graph['bytes']:,}",
        }
    facts |= {f"version of {key}": value for key, value in story["versions"].items()}
    return facts | {"model's sha256": story["subject"]["sha256"][:12], "file's sha256": story["sha256"][:12]}


def _format_number(value: float | int | None, unit: str = "") -> str:
    return "" if value is None else f"{value:.3g}{unit}" if isinstance(value, float) else f"{value}{unit}"


def _count_samples(tested: Sequence[list[Any]]) -> str:
    legal = [(row[1] == RIGHT, str(row[7])) for row in tested if row[1] in (RIGHT, WRONG)]
    return count_samples(legal, "") if legal else ""


def _count_operators(story: Summary) -> PageData:
    return dict(map(tuple, (story["graph"] or {}).get("operators", ())))


def _list_ratios(story: Summary) -> PageData:
    return {output["name"]: output["ratio"] for output in (story["evidence"] or {}).get("outputs", ())}


def _find_largest_ratio(story: Summary) -> float | None:
    return max((float(ratio) for ratio in _list_ratios(story).values() if ratio is not None), default=None)


def _compare_values(stories: Sequence[Summary], list_values: Callable[[Summary], PageData]) -> list[PageData]:
    columns = [list_values(story) for story in stories]
    keys = dict.fromkeys(key for column in columns for key in column)
    rows = [{"name": key, "values": [column.get(key) for column in columns]} for key in keys]
    return [{**row, "differs": len(set(row["values"])) > 1} for row in rows]


def _compare_points(stories: Sequence[Summary]) -> PageData:
    """Return the points that are right in one record and wrong in another.

    Only points that were tested in every record can be compared.
    """
    columns = [_list_states(story) for story in stories]
    shared = [key for key in columns[0] if all(key in column for column in columns[1:])] if columns else []
    rows = [{"name": key, "values": [column[key] for column in columns]} for key in shared]
    different = [row for row in rows if len(set(row["values"])) > 1]
    return {"shared": len(shared), "differ": len(different), "rows": different[:MAX_POINTS]}


def _list_states(story: Summary) -> dict[str, int]:
    """Return the state of each point that was tested: wrong if any of its samples is."""
    names = [dim["name"] for dim in story["dims"]]
    states: dict[str, int] = {}
    for sizes, state, *_ in (story["evidence"] or {}).get("tested", ()):
        if state in (RIGHT, WRONG):
            key = ", ".join(f"{name}={size}" for name, size in zip(names, sizes, strict=True)) or "the fixed shape"
            states[key] = max(states.get(key, RIGHT), state)
    return states
