"""Where the time goes inside a file: ONNX Runtime's profile, summed up by operator and by module.

The runtime fuses nodes before it runs them, and a fused node has another name. What it computes has the name it had:
so each node that ran is traced to the nodes of the file by its outputs, and through their metadata to a module.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST = 10

NOWHERE = "(no module named)"


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


def read_profile(events: Path, ran: Path, original: Path, point: Mapping[str, int], calls: int) -> Profile:
    """Sums up what the profiler wrote of the last `calls` calls; those before were warm-up."""
    module_of = modules_of_nodes(ran, original)
    kernels = [e for e in json.loads(events.read_text()) if _is_kernel(e)]
    last = _last_calls(kernels, calls)
    seconds: Counter[tuple[str, str]] = Counter()
    runs: Counter[tuple[str, str]] = Counter()
    for event in last:
        name = event["name"].removesuffix("_kernel_time")
        key = event["args"].get("op_name", "?"), module_of.get(name, NOWHERE)
        seconds[key] += event["dur"]
        runs[key] += 1
    total = sum(seconds.values())
    costs = [
        Cost(operator, module, micro * 1e-6 / calls, micro / total if total else 0.0, runs[operator, module] / calls)
        for (operator, module), micro in seconds.most_common()
    ]
    return Profile(original.name, dict(point), total * 1e-6 / calls, tuple(costs))


def _is_kernel(event: Mapping[str, Any]) -> bool:
    return event.get("cat") == "Node" and str(event.get("name", "")).endswith("_kernel_time")


def _last_calls(kernels: Sequence[dict[str, Any]], calls: int) -> Sequence[dict[str, Any]]:
    """Every call runs the same nodes unless it branches; the first node of the graph tells where a call begins."""
    if not kernels:
        return kernels
    first = kernels[0]["name"]
    starts = [i for i, event in enumerate(kernels) if event["name"] == first]
    return kernels[starts[-calls] if len(starts) >= calls else 0 :]


def modules_of_nodes(ran: Path, original: Path) -> dict[str, str]:
    """From the name of each node that runs to the module it computes for, as far as the file says."""
    import onnx_ir as ir

    from fairway.evidence.differential import locate

    by_output: dict[str, str] = {}
    by_name: dict[str, str] = {}
    for node in ir.load(original).graph.all_nodes():
        module = locate(node).module or NOWHERE
        by_name.setdefault(node.name or "", module)
        by_output.update({value.name: module for value in node.outputs if value.name})
    found = {}
    for node in ir.load(ran).graph.all_nodes():
        known = [by_output[value.name] for value in node.outputs if value.name in by_output]
        found[node.name or ""] = known[0] if known else by_name.get(node.name or "", NOWHERE)
    return found
