"""Time by operator and module inside a file, from ONNX Runtime's profile.

The runtime fuses nodes before it runs them, and a fused node has another name. Its outputs keep their names, so each
node that ran is traced to the file's nodes by its outputs, and by their metadata to a module.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import onnx_ir as ir

ProfileEvent: TypeAlias = dict[str, Any]
"""A line of ONNX Runtime's profile."""

MAX_TOP_COSTS = 10

NO_MODULE = "(no module named)"
OWN_FORWARD = "(the model's own forward)"


@dataclass(frozen=True)
class Cost:
    """The time of one kind of operator in one module: seconds of a call, its share, and the number of runs."""

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
    """All of them, most expensive first."""
    plain_seconds: float = 0.0
    """A call without the profiler, which adds time itself, mostly if operators are many and small."""
    note: str = ""
    """The reason if there is no profile."""

    @property
    def top(self) -> tuple[Cost, ...]:
        return self.costs[:MAX_TOP_COSTS]

    def by_operator(self) -> dict[str, float]:
        return _sum_by_key((cost.operator, cost.seconds) for cost in self.costs)

    def by_module(self) -> dict[str, float]:
        return _sum_by_key((cost.module, cost.seconds) for cost in self.costs)


def _sum_by_key(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    totals: Counter[str] = Counter()
    for key, seconds in pairs:
        totals[key] += seconds  # type: ignore[assignment]  # Counter counts in ints by its types only
    return dict(totals.most_common())


def read_profile(
    events: Path, optimized: Path, original: Path, point: Mapping[str, int], calls: int, plain: float
) -> Profile:
    """Sum up the profile of the last `calls` calls; those before were warm-up.

    The time of an operator is the median over the calls. `plain` is the duration of a call without the profiler.
    """
    module_of = map_nodes_to_modules(optimized, original)
    durations: dict[tuple[str, str], list[int]] = {}
    runs: Counter[tuple[str, str]] = Counter()
    parts = _split_calls([e for e in json.loads(events.read_text()) if _is_kernel(e)])[-calls:]
    for number, events_of_call in enumerate(parts):
        for event, own_time in zip(events_of_call, _compute_own_times(events_of_call), strict=True):
            name = event["name"].removesuffix("_kernel_time")
            key = event["args"].get("op_name", "?"), module_of.get(name, NO_MODULE)
            durations.setdefault(key, [0] * len(parts))[number] += own_time
            runs[key] += 1
    micro = {key: median(durations) for key, durations in durations.items()}
    total = sum(micro.values())
    costs = [
        Cost(operator, module, took * 1e-6, took / total if total else 0.0, runs[operator, module] / len(parts))
        for (operator, module), took in sorted(micro.items(), key=lambda item: -item[1])
    ]
    return Profile(original.name, dict(point), total * 1e-6, tuple(costs), plain)


def _is_kernel(event: ProfileEvent) -> bool:
    return event.get("cat") == "Node" and str(event.get("name", "")).endswith("_kernel_time")


def _split_calls(kernels: Sequence[ProfileEvent]) -> list[list[ProfileEvent]]:
    """Split events into calls, in the order of time. Every call begins with the same node."""
    parts: list[list[ProfileEvent]] = []
    for event in sorted(kernels, key=lambda event: (event["ts"], -event["dur"])):
        if not parts or event["name"] == parts[0][0]["name"]:
            parts.append([])
        parts[-1].append(event)
    return parts


def _compute_own_times(ordered: Sequence[ProfileEvent]) -> list[int]:
    """Return the time of each event without the events inside it: a loop's own time excludes its body."""
    own = [event["dur"] for event in ordered]
    enclosing: list[int] = []
    for i, event in enumerate(ordered):
        while enclosing and ordered[enclosing[-1]]["ts"] + ordered[enclosing[-1]]["dur"] <= event["ts"]:
            enclosing.pop()
        if enclosing:
            own[enclosing[-1]] = max(0, own[enclosing[-1]] - event["dur"])
        enclosing.append(i)
    return own


def map_nodes_to_modules(optimized: Path, original: Path) -> dict[str, str]:
    """Map the name of each node that runs to the module it belongs to, as far as the file shows it."""
    import onnx_ir as ir

    by_output: dict[str, str] = {}
    by_name: dict[str, str] = {}
    for node, module in _iterate_with_modules(ir.load(original).graph, NO_MODULE):
        by_name.setdefault(node.name or "", module)
        by_output.update({value.name: module for value in node.outputs if value.name})
    nodes = list(ir.load(optimized).graph.all_nodes())
    module_by_name = {}
    for node in nodes:
        name = node.name or ""
        known = [by_output[value.name] for value in node.outputs if value.name in by_output]
        # A fused node may keep the name of one of its sources, with a slash and the fusion's name after it.
        module_by_name[name] = (
            known[0] if known else by_name.get(name) or by_name.get(name.rpartition("/")[0], NO_MODULE)
        )
    for node in reversed(nodes):  # an inserted node belongs to the module of its first user
        users = [use.node.name or "" for value in node.outputs for use in value.uses()]
        if module_by_name[node.name or ""] == NO_MODULE and users:
            module_by_name[node.name or ""] = module_by_name.get(users[0], NO_MODULE)
    return module_by_name


def _iterate_with_modules(graph: ir.Graph, outer: str) -> Iterator[tuple[ir.Node, str]]:
    """Yield every node with its module; one in a subgraph has at least the module of the outer node."""
    from fairway.judge.differential import locate_node

    for node in graph:
        named = locate_node(node).module
        default = OWN_FORWARD if "''" in node.metadata_props.get("pkg.torch.onnx.name_scopes", "") else outer
        module = named or default
        yield node, module
        for attribute in node.attributes.values():
            value = attribute.value
            for body in value if isinstance(value, list | tuple) else (value,):
                if hasattr(body, "all_nodes"):
                    yield from _iterate_with_modules(body, module)
