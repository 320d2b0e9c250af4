"""Where the time goes inside a file: ONNX Runtime's profile, summed up by operator and by module.

The runtime fuses nodes before it runs them, and a fused node has another name. What it computes has the name it had:
so each node that ran is traced to the nodes of the file by its outputs, and through their metadata to a module.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

MOST = 10

NOWHERE = "(no module named)"
ITSELF = "(the model's own forward)"


@dataclass(frozen=True)
class Cost:
    """What one kind of operator takes in one module: seconds of a call, its share, and how often it runs."""

    operator: str
    module: str
    seconds: float
    share: float
    runs: float


@dataclass(frozen=True)
class Profile:
    """A file's time by operator and module, at one point."""

    file: str
    point: Mapping[str, int]
    seconds: float
    """All operators of one call together."""
    costs: tuple[Cost, ...]
    """Most expensive first, all of them."""
    plain_seconds: float = 0.0
    """A call without the profiler, which takes time itself, mostly where operators are many and small."""
    note: str = ""
    """Why there are none."""

    @property
    def top(self) -> tuple[Cost, ...]:
        return self.costs[:MOST]

    def by_operator(self) -> dict[str, float]:
        return _sum((cost.operator, cost.seconds) for cost in self.costs)

    def by_module(self) -> dict[str, float]:
        return _sum((cost.module, cost.seconds) for cost in self.costs)


def _sum(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    totals: Counter[str] = Counter()
    for key, seconds in pairs:
        totals[key] += seconds  # type: ignore[assignment]  # Counter counts in ints by its types only
    return dict(totals.most_common())


def read_profile(
    events: Path, ran: Path, original: Path, point: Mapping[str, int], calls: int, plain: float
) -> Profile:
    """Sums up what the profiler wrote of the last `calls` calls; those before were warm-up.

    What a kind of operator takes is the median over the calls. `plain` is how long a call lasts without the profiler.
    """
    module_of = modules_of_nodes(ran, original)
    seen: dict[tuple[str, str], list[int]] = {}
    runs: Counter[tuple[str, str]] = Counter()
    parts = _calls([e for e in json.loads(events.read_text()) if _is_kernel(e)])[-calls:]
    for number, part in enumerate(parts):
        for event, own in zip(part, _own_time(part), strict=True):
            name = event["name"].removesuffix("_kernel_time")
            key = event["args"].get("op_name", "?"), module_of.get(name, NOWHERE)
            seen.setdefault(key, [0] * len(parts))[number] += own
            runs[key] += 1
    micro = {key: median(durations) for key, durations in seen.items()}
    total = sum(micro.values())
    costs = [
        Cost(operator, module, took * 1e-6, took / total if total else 0.0, runs[operator, module] / len(parts))
        for (operator, module), took in sorted(micro.items(), key=lambda item: -item[1])
    ]
    return Profile(original.name, dict(point), total * 1e-6, tuple(costs), plain)


def _is_kernel(event: Mapping[str, Any]) -> bool:
    return event.get("cat") == "Node" and str(event.get("name", "")).endswith("_kernel_time")


def _calls(kernels: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The events call by call, in the order of time. Every call begins with the same node."""
    parts: list[list[dict[str, Any]]] = []
    for event in sorted(kernels, key=lambda event: (event["ts"], -event["dur"])):
        if not parts or event["name"] == parts[0][0]["name"]:
            parts.append([])
        parts[-1].append(event)
    return parts


def _own_time(ordered: Sequence[dict[str, Any]]) -> list[int]:
    """What each event took itself, without those inside it: a loop's own time is not that of its body."""
    own = [event["dur"] for event in ordered]
    around: list[int] = []
    for i, event in enumerate(ordered):
        while around and ordered[around[-1]]["ts"] + ordered[around[-1]]["dur"] <= event["ts"]:
            around.pop()
        if around:
            own[around[-1]] = max(0, own[around[-1]] - event["dur"])
        around.append(i)
    return own


def modules_of_nodes(ran: Path, original: Path) -> dict[str, str]:
    """From the name of each node that runs to the module it computes for, as far as the file says."""
    import onnx_ir as ir

    by_output: dict[str, str] = {}
    by_name: dict[str, str] = {}
    for node, module in _with_modules(ir.load(original).graph, NOWHERE):
        by_name.setdefault(node.name or "", module)
        by_output.update({value.name: module for value in node.outputs if value.name})
    nodes = list(ir.load(ran).graph.all_nodes())
    found = {}
    for node in nodes:
        name = node.name or ""
        known = [by_output[value.name] for value in node.outputs if value.name in by_output]
        # A fused node may keep the name of one of those it was made from, with the fusion's own behind a stroke.
        found[name] = known[0] if known else by_name.get(name) or by_name.get(name.rpartition("/")[0], NOWHERE)
    for node in reversed(nodes):  # what was put in between belongs to whatever takes it up
        users = [use.node.name or "" for value in node.outputs for use in value.uses()]
        if found[node.name or ""] == NOWHERE and users:
            found[node.name or ""] = found.get(users[0], NOWHERE)
    return found


def _with_modules(graph: Any, outer: str) -> Iterator[tuple[Any, str]]:
    """Every node with its module; one in the body of a loop or a choice has at least that of the loop."""
    from fairway.judge.differential import locate

    for node in graph:
        named = locate(node).module
        inside = ITSELF if "''" in node.metadata_props.get("pkg.torch.onnx.name_scopes", "") else outer
        module = named or inside
        yield node, module
        for attribute in node.attributes.values():
            value = attribute.value
            for body in value if isinstance(value, list | tuple) else (value,):
                if hasattr(body, "all_nodes"):
                    yield from _with_modules(body, module)
