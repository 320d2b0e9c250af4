"""From what was seen to one sentence: is it the model, the settings or the machine?

A tool is broken where it fails for a probe, because every probe is known to pass. The machine is to blame for a recipe
only where every route that was tried needs a broken tool; a route that is whole here and fails speaks of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fairway.convert.ladder.route import parse_route
from fairway.debug.doctor.probe_steps import CAPTURE, CHECKER, DYNAMO, ORT, PYTORCH, TORCHSCRIPT, ProbeStep
from fairway.diagnostics import CODES, Finding

Blame = Literal["nothing", "model", "settings", "machine", "recipe"]

EXPORTERS = (CAPTURE, DYNAMO, TORCHSCRIPT)
WAYS = {
    DYNAMO: "dynamo (torch.export and torch.onnx.export with dynamo=True)",
    TORCHSCRIPT: "TorchScript (torch.onnx.export with dynamo=False)",
}

_LIMITS = {"FW501": "settings", "FW502": "machine", "FW009": "machine", "FW017": "machine"}
"""Findings that speak neither of the model nor of an exporter."""


@dataclass(frozen=True)
class RecipeOutcome:
    """How the recipe came out: with the settings asked for, and with the defaults where those differ."""

    asked: str
    """The settings as they would be typed; empty where they are the defaults."""
    record: Mapping[str, Any] | None
    """The record of the run with those settings; None where the recipe could not be loaded."""
    defaults: Mapping[str, Any] | None = None
    finding: Finding | None = None
    """Why there is no record."""


@dataclass(frozen=True)
class Diagnosis:
    blame: Blame
    sentence: str


def broken_tools(steps: Sequence[ProbeStep]) -> dict[str, list[ProbeStep]]:
    """The tools that fail, each with what it failed at."""
    found: dict[str, list[ProbeStep]] = {}
    for step in steps:
        if step.problem:
            found.setdefault(step.tool, []).append(step)
    return found


def findings_of(steps: Sequence[ProbeStep]) -> list[Finding]:
    """A finding for each tool that fails, naming how many of the probes, and the first in full."""
    found = []
    for tool, failed in broken_tools(steps).items():
        reached = {s.probe for s in steps if s.tool == tool}
        names = list(dict.fromkeys(s.probe for s in failed))
        seen = f"{tool} fails for {len(names)} of {len(reached)} models: {', '.join(names)}. {_first(failed)}"
        todo: tuple[str, ...] = ()
        if tool in EXPORTERS and (well := whole_ways(steps)):
            todo = (f"Take the exporter that works here: {'; '.join(WAYS[way] for way in well)}.",)
        code = "FW601" if tool in (PYTORCH, *EXPORTERS) else "FW602"
        found.append(Finding(code, seen, todo=(*todo, *CODES[code].todo), data={"tool": tool, "probes": names}))
    return found


def _first(failed: Sequence[ProbeStep]) -> str:
    return f"{failed[0].probe}: {failed[0].problem}"


def whole_ways(steps: Sequence[ProbeStep]) -> list[str]:
    """The ways on which nothing that an export needs is broken."""
    broken = broken_tools(steps)
    return [way for way in (DYNAMO, TORCHSCRIPT) if not needs(way).intersection(broken)]


def needs(way: str) -> set[str]:
    return {PYTORCH, CHECKER, ORT, *((CAPTURE, DYNAMO) if way == DYNAMO else (TORCHSCRIPT,))}


def conclude(steps: Sequence[ProbeStep], findings: Sequence[Finding], tried: RecipeOutcome | None) -> Diagnosis:
    """The sentence. `findings` are the machine's own, those of broken tools among them."""
    errors = [f for f in findings if f.severity == "error"]
    machine = _machine(steps, errors)
    if tried is None:
        probes = len({s.probe for s in steps})
        fine = f"This machine is healthy: {probes} models that are known to export went through every tool here."
        return Diagnosis("machine", f"Your machine: {machine}.") if errors else Diagnosis("nothing", fine)
    if tried.record is None:
        seen = tried.finding.seen if tried.finding else ""
        return Diagnosis("recipe", f"Your recipe: it cannot be loaded ({_named(tried.finding)}: {seen}).")
    return _with_recipe(steps, errors, machine, tried, tried.record)


def _with_recipe(
    steps: Sequence[ProbeStep], errors: Sequence[Finding], machine: str, tried: RecipeOutcome, record: Mapping[str, Any]
) -> Diagnosis:
    if record["verdict"] == "verified":
        how = f"the recipe is verified ({record['route']})"
        if errors:
            return Diagnosis("machine", f"Your machine, in part: {machine}; {how} all the same.")
        return Diagnosis("nothing", f"Nothing is wrong: {how}, and the machine is healthy.")
    last = tried.defaults or record
    if _machines_fault(steps, errors, last):
        return Diagnosis("machine", f"Your machine, not your model: {machine}.")
    if tried.defaults is not None and tried.defaults["verdict"] == "verified":
        route = tried.defaults["route"]
        how = f"the recipe is verified without {tried.asked} ({route}) and {record['verdict']} with it"
        if _machines_fault(steps, errors, record):
            return Diagnosis("machine", f"Your machine, not your model: {machine}; {how}.")
        return Diagnosis("settings", f"Your settings: {how}.")
    worst = next((f for f in last["findings"] if f["severity"] == "error"), None)
    said = f"{worst['code']}, {worst['title'][0].lower()}{worst['title'][1:]}" if worst else "no finding"
    whose = _LIMITS.get(worst["code"], "model") if worst else "model"
    if whose == "settings":
        return Diagnosis("settings", f"Your settings: the recipe comes out {last['verdict']} ({said}).")
    if whose == "machine":
        return Diagnosis("machine", f"Your machine: it has too little room for the recipe ({said}).")
    also = f"; besides, {machine}" if errors else ""
    passes = "this machine exports models that are known to export"
    if errors:
        passes = "what fails here is not what is broken on this machine"
    return Diagnosis("model", f"Your model: {passes}, and the recipe comes out {last['verdict']} ({said}){also}.")


def _machines_fault(steps: Sequence[ProbeStep], errors: Sequence[Finding], record: Mapping[str, Any]) -> bool:
    """Whether every route that was walked needs a broken tool. A model that never got that far speaks for itself."""
    if any(f.code == "FW604" for f in errors):
        return True
    broken = broken_tools(steps)
    routes = [rung["route"].split(" ")[0] for rung in record["ladder"]]
    return bool(routes) and all(needs(_way(route)).intersection(broken) for route in routes)


def _way(route: str) -> str:
    return TORCHSCRIPT if parse_route(route).traced else DYNAMO


def _machine(steps: Sequence[ProbeStep], errors: Sequence[Finding]) -> str:
    """What is wrong with the machine, worst first, in few words."""
    unimportable = [f.seen for f in errors if f.code == "FW604"]
    if unimportable:
        return f"a package that every export needs cannot be imported ({unimportable[0]})"
    broken = broken_tools(steps)
    if broken:
        tool, failed = next(iter(broken.items()))
        names = list(dict.fromkeys(s.probe for s in failed))
        reached = {s.probe for s in steps if s.tool == tool}
        others = f", {', '.join(list(broken)[1:])} too" if len(broken) > 1 else ""
        works = f"; {' and '.join(ways)} works" if (ways := whole_ways(steps)) else ""
        known = "models that are known to export" if tool in EXPORTERS else "models that are known to run"
        return f"{tool} fails for {len(names)} of {len(reached)} {known} ({_first(failed)}){others}{works}"
    clash = next((f for f in errors if f.code == "FW603"), None)
    return f"versions installed do not go together ({clash.seen})" if clash else "it is healthy"


def _named(finding: Finding | None) -> str:
    return f"{finding.code}, {finding.title[0].lower()}{finding.title[1:]}" if finding else "no finding"
