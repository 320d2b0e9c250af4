"""Conclude from all results whether the model, the settings or the machine is at fault.

A tool that fails for a probe is broken, because every probe is known to pass. The machine is to blame for a recipe only
if every route that was tried needs a broken tool. A route with working tools that fails points to the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fairway.convert.ladder.route import parse_route
from fairway.debug.doctor.probe_steps import CAPTURE, CHECKER, DYNAMO, ORT, PYTORCH, TORCHSCRIPT, ProbeStep
from fairway.diagnostics import CODES, Code, Finding
from fairway.record.schema import Record

Blame = Literal["nothing", "model", "settings", "machine", "recipe"]

EXPORTERS = (CAPTURE, DYNAMO, TORCHSCRIPT)
EXPORTER_TITLES = {
    DYNAMO: "dynamo (torch.export and torch.onnx.export with dynamo=True)",
    TORCHSCRIPT: "TorchScript (torch.onnx.export with dynamo=False)",
}

_BLAME_BY_LIMIT: dict[str, str] = {
    Code.TIME_LIMIT: "settings",
    Code.MEMORY_LIMIT: "machine",
    Code.CANNOT_WRITE: "machine",
    Code.INPUTS_TOO_LARGE: "machine",
}
"""Findings that point neither to the model nor to an exporter."""


@dataclass(frozen=True)
class RecipeOutcome:
    """The records of the recipe with the requested settings, and with the defaults if those differ."""

    typed_settings: str
    """The settings as they were typed; empty for the defaults."""
    record: Record | None
    """The record with those settings; None if the recipe could not be loaded."""
    defaults: Record | None = None
    finding: Finding | None = None
    """The reason if there is no record."""


@dataclass(frozen=True)
class Diagnosis:
    blame: Blame
    sentence: str


def find_broken_tools(steps: Sequence[ProbeStep]) -> dict[str, list[ProbeStep]]:
    """Return the tools that fail, each with its failed steps."""
    broken: dict[str, list[ProbeStep]] = {}
    for step in steps:
        if step.problem:
            broken.setdefault(step.tool, []).append(step)
    return broken


def make_findings(steps: Sequence[ProbeStep]) -> list[Finding]:
    """Return a finding for each tool that fails, with the number of probes and the first problem in full."""
    findings = []
    for tool, failed in find_broken_tools(steps).items():
        reached = {s.probe for s in steps if s.tool == tool}
        names = list(dict.fromkeys(s.probe for s in failed))
        seen = f"{tool} fails for {len(names)} of {len(reached)} models: {', '.join(names)}. {_describe_first(failed)}"
        todo: tuple[str, ...] = ()
        if tool in EXPORTERS and (working := find_working_exporters(steps)):
            todo = (
                f"Take the exporter that works here: {'; '.join(EXPORTER_TITLES[exporter] for exporter in working)}.",
            )
        code = Code.EXPORTER_BROKEN if tool in (PYTORCH, *EXPORTERS) else Code.RUNTIME_BROKEN
        findings.append(Finding(code, seen, todo=(*todo, *CODES[code].todo), data={"tool": tool, "probes": names}))
    return findings


def _describe_first(failed: Sequence[ProbeStep]) -> str:
    return f"{failed[0].probe}: {failed[0].problem}"


def find_working_exporters(steps: Sequence[ProbeStep]) -> list[str]:
    """Return the exporters for which everything that an export needs works."""
    broken = find_broken_tools(steps)
    return [exporter for exporter in (DYNAMO, TORCHSCRIPT) if not list_needed_tools(exporter).intersection(broken)]


def list_needed_tools(exporter: str) -> set[str]:
    return {PYTORCH, CHECKER, ORT, *((CAPTURE, DYNAMO) if exporter == DYNAMO else (TORCHSCRIPT,))}


def conclude(steps: Sequence[ProbeStep], findings: Sequence[Finding], tried: RecipeOutcome | None) -> Diagnosis:
    """Return the diagnosis. `findings` are the machine's own, including those of broken tools."""
    errors = [f for f in findings if f.severity == "error"]
    machine = _describe_machine_fault(steps, errors)
    if tried is None:
        probes = len({s.probe for s in steps})
        sentence = f"This machine is healthy: {probes} models that are known to export went through every tool here."
        return Diagnosis("machine", f"Your machine: {machine}.") if errors else Diagnosis("nothing", sentence)
    if tried.record is None:
        seen = tried.finding.seen if tried.finding else ""
        return Diagnosis("recipe", f"Your recipe: it cannot be loaded ({_describe_finding(tried.finding)}: {seen}).")
    return _conclude_with_recipe(steps, errors, machine, tried, tried.record)


def _conclude_with_recipe(
    steps: Sequence[ProbeStep], errors: Sequence[Finding], machine: str, tried: RecipeOutcome, record: Record
) -> Diagnosis:
    if record.is_verified:
        outcome = f"the recipe is verified ({record.route})"
        if errors:
            return Diagnosis("machine", f"Your machine, in part: {machine}; {outcome} all the same.")
        return Diagnosis("nothing", f"Nothing is wrong: {outcome}, and the machine is healthy.")
    last = tried.defaults or record
    if _is_machine_fault(steps, errors, last):
        return Diagnosis("machine", f"Your machine, not your model: {machine}.")
    if tried.defaults is not None and tried.defaults.is_verified:
        route = tried.defaults.route
        outcome = f"the recipe is verified without {tried.typed_settings} ({route}) and {record.verdict} with it"
        if _is_machine_fault(steps, errors, record):
            return Diagnosis("machine", f"Your machine, not your model: {machine}; {outcome}.")
        return Diagnosis("settings", f"Your settings: {outcome}.")
    worst = next((finding for finding in last.findings if finding.severity == "error"), None)
    finding_text = f"{worst.code}, {worst.title[0].lower()}{worst.title[1:]}" if worst else "no finding"
    blame = _BLAME_BY_LIMIT.get(worst.code, "model") if worst else "model"
    if blame == "settings":
        return Diagnosis("settings", f"Your settings: the recipe comes out {last.verdict} ({finding_text}).")
    if blame == "machine":
        return Diagnosis("machine", f"Your machine: it has too little room for the recipe ({finding_text}).")
    addition = f"; also, {machine}" if errors else ""
    passes = "this machine exports models that are known to export"
    if errors:
        passes = "the tools that it uses work on this machine"
    return Diagnosis(
        "model", f"Your model: {passes}, and the recipe comes out {last.verdict} ({finding_text}){addition}."
    )


def _is_machine_fault(steps: Sequence[ProbeStep], errors: Sequence[Finding], record: Record) -> bool:
    """Return whether every route that was tried needs a broken tool. A model that failed earlier is at fault itself."""
    if any(f.code == Code.IMPORT_FAILS for f in errors):
        return True
    broken = find_broken_tools(steps)
    routes = [rung.route.split(" ")[0] for rung in record.ladder]
    return bool(routes) and all(list_needed_tools(_get_exporter(route)).intersection(broken) for route in routes)


def _get_exporter(route: str) -> str:
    return TORCHSCRIPT if parse_route(route).is_traced else DYNAMO


def _describe_machine_fault(steps: Sequence[ProbeStep], errors: Sequence[Finding]) -> str:
    """Describe the machine's worst problem in a few words."""
    unimportable = [f.seen for f in errors if f.code == Code.IMPORT_FAILS]
    if unimportable:
        return f"a package that every export needs cannot be imported ({unimportable[0]})"
    broken = find_broken_tools(steps)
    if broken:
        tool, failed = next(iter(broken.items()))
        names = list(dict.fromkeys(s.probe for s in failed))
        reached = {s.probe for s in steps if s.tool == tool}
        others = f", {', '.join(list(broken)[1:])} too" if len(broken) > 1 else ""
        works = f"; {' and '.join(ways)} works" if (ways := find_working_exporters(steps)) else ""
        known = "models that are known to export" if tool in EXPORTERS else "models that are known to run"
        return f"{tool} fails for {len(names)} of {len(reached)} {known} ({_describe_first(failed)}){others}{works}"
    clash = next((f for f in errors if f.code == Code.VERSIONS_CLASH), None)
    return f"versions installed do not go together ({clash.seen})" if clash else "it is healthy"


def _describe_finding(finding: Finding | None) -> str:
    return f"{finding.code}, {finding.title[0].lower()}{finding.title[1:]}" if finding else "no finding"
