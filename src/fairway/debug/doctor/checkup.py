"""The complete checkup: the machine, the versions, the probes, the recipe if there is one, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from fairway.debug.doctor.combinations import find_conflicts
from fairway.debug.doctor.machine import Machine, find_problems
from fairway.debug.doctor.probe_steps import ProbeStep
from fairway.debug.doctor.verdict import Diagnosis, RecipeOutcome, conclude, make_findings
from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import UserError, complain
from fairway.record.progress import EventSink, StageStarted, StillWorking

if TYPE_CHECKING:
    from fairway.convert.types import Settings
    from fairway.model.recipe import Overrides
    from fairway.record.schema import Record

PROBE_SECONDS = 240.0
"""For all probes of one exporter, which take twenty seconds on a healthy machine."""


@dataclass(frozen=True)
class RecipeToTry:
    """A recipe to try, with the settings to try it with."""

    recipe: str
    overrides: Overrides
    settings: Settings
    typed_settings: str
    """The settings as they were typed; empty for the defaults."""


@dataclass(frozen=True)
class Checkup:
    """Everything seen, and the conclusion."""

    machine: Machine
    tools: tuple[str, ...]
    steps: tuple[ProbeStep, ...]
    findings: tuple[Finding, ...]
    tried: RecipeOutcome | None
    diagnosis: Diagnosis

    @property
    def is_healthy(self) -> bool:
        return self.diagnosis.blame == "nothing"

    def as_dict(self) -> dict[str, object]:
        return {
            "healthy": self.is_healthy,
            "blame": self.diagnosis.blame,
            "verdict": self.diagnosis.sentence,
            "machine": asdict(self.machine),
            "probes": [asdict(step) for step in self.steps],
            "findings": [finding.as_dict() for finding in self.findings],
            "recipe": _as_dict(None if self.tried is None else self.tried.record),
            "recipe_by_default": _as_dict(None if self.tried is None else self.tried.defaults),
        }


def _as_dict(record: Record | None) -> dict[str, object] | None:
    return None if record is None else record.as_dict()


def check_up(
    machine: Machine, only: Sequence[str], load_request: Callable[[], RecipeToTry] | None, on_event: EventSink
) -> Checkup:
    """Run all checks. `only` names probes, empty for all; `load_request` needs torch, so it is called late."""
    findings = find_problems(machine)
    findings += find_conflicts(machine.versions)
    if any(finding.code == Code.IMPORT_FAILS for finding in findings):
        return _skip_probes(machine, findings)

    on_event(StageStarted("loading torch and the exporters"))
    from fairway.convert.export import preload_modules
    from fairway.debug.doctor.examine import list_tools, run_probes
    from fairway.debug.doctor.probes import PROBES
    from fairway.workers.attempt import Limits, Workers

    unknown = sorted(set(only) - {probe.name for probe in PROBES})
    if unknown:
        raise complain(
            Code.UNKNOWN_OPTION, f"probe: expected one of {', '.join(p.name for p in PROBES)}, got {unknown[0]!r:.80}"
        )
    chosen = [probe for probe in PROBES if not only or probe.name in only]
    preload_modules()
    with TemporaryDirectory(prefix="fairway-doctor-") as folder, Workers(Limits(PROBE_SECONDS)) as workers:
        workers.tick = partial(on_event, StillWorking())
        steps = run_probes(workers, chosen, Path(folder), on_event)
    findings += make_findings(steps)
    tried = None if load_request is None else _try_recipe(load_request, on_event)
    if tried is not None and tried.finding is not None:
        findings.append(tried.finding)
    return Checkup(machine, list_tools(), tuple(steps), tuple(findings), tried, conclude(steps, findings, tried))


def _skip_probes(machine: Machine, findings: Sequence[Finding]) -> Checkup:
    """Return a checkup without probes: if a package cannot be imported, nothing can be exported."""
    return Checkup(machine, (), (), tuple(findings), None, conclude((), findings, None))


def _try_recipe(load_request: Callable[[], RecipeToTry], on_event: EventSink) -> RecipeOutcome:
    """Export the recipe with the requested settings and, if that fails, with the defaults."""
    from fairway.convert.export import export_subject, make_settings
    from fairway.convert.record_writer import build_failure
    from fairway.model.recipe import load_subject

    request = load_request()
    try:
        subject = load_subject(request.recipe, request.overrides)
    except UserError as error:
        return RecipeOutcome(request.typed_settings, None, finding=error.finding)

    def run(settings: Settings) -> Record:
        with TemporaryDirectory(prefix="fairway-doctor-") as folder:
            try:
                return export_subject(subject, Path(folder) / "model.onnx", settings, progress=on_event).record
            except UserError as error:
                return build_failure(subject, error.finding)

    record = run(request.settings)
    if record.is_verified or not request.typed_settings:
        return RecipeOutcome(request.typed_settings, record)
    plain = make_settings(request.settings.level, (), None, True, request.settings.limits)
    return RecipeOutcome(request.typed_settings, record, run(plain))
