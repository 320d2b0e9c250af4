"""The whole visit: the machine, the versions, the probes, the recipe where there is one, the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fairway.debug.doctor.combinations import clashes
from fairway.debug.doctor.machine import Machine, complaints
from fairway.debug.doctor.probe_steps import ProbeStep
from fairway.debug.doctor.verdict import Diagnosis, RecipeOutcome, conclude, findings_of
from fairway.diagnostics import Finding
from fairway.diagnostics.errors import UserError, complain

if TYPE_CHECKING:
    from fairway.convert.ladder.climb import Settings
    from fairway.model.recipe import Overrides

PROBE_SECONDS = 240.0
"""For all probes on one way, which take twenty seconds where all is well."""

Heard = Callable[[Any], None]


@dataclass(frozen=True)
class RecipeToTry:
    """A recipe to try, with the settings to try it with."""

    recipe: str
    overrides: Overrides
    settings: Settings
    spelt: str
    """The settings as they were typed; empty for the defaults."""


@dataclass(frozen=True)
class Checkup:
    """Everything seen, and what follows from it."""

    machine: Machine
    tools: tuple[str, ...]
    steps: tuple[ProbeStep, ...]
    findings: tuple[Finding, ...]
    tried: RecipeOutcome | None
    diagnosis: Diagnosis

    @property
    def healthy(self) -> bool:
        return self.diagnosis.blame == "nothing"

    def as_dict(self) -> dict[str, Any]:
        return {
            "healthy": self.healthy,
            "blame": self.diagnosis.blame,
            "verdict": self.diagnosis.sentence,
            "machine": asdict(self.machine),
            "probes": [asdict(step) for step in self.steps],
            "findings": [finding.as_dict() for finding in self.findings],
            "recipe": None if self.tried is None else self.tried.record,
            "recipe_by_default": None if self.tried is None else self.tried.defaults,
        }


def check_up(machine: Machine, only: Sequence[str], asked: Callable[[], RecipeToTry] | None, heard: Heard) -> Checkup:
    """Lets the machine work. `only` names probes, empty for all; `asked` needs torch, so it waits."""
    findings = complaints(machine)
    findings += clashes(machine.versions)
    if any(finding.code == "FW604" for finding in findings):
        return _without_probes(machine, findings)

    heard(("stage", "loading torch and the exporters"))
    from fairway.convert.export import warm_up
    from fairway.debug.doctor.examine import examine, tools
    from fairway.debug.doctor.probes import PROBES
    from fairway.workers.attempt import Limits, Workers

    unknown = sorted(set(only) - {probe.name for probe in PROBES})
    if unknown:
        raise complain("FW006", f"probe {unknown[0]!r}; the probes are {', '.join(p.name for p in PROBES)}")
    chosen = [probe for probe in PROBES if not only or probe.name in only]
    warm_up()
    with TemporaryDirectory(prefix="fairway-doctor-") as folder, Workers(Limits(PROBE_SECONDS)) as workers:
        workers.tick = partial(heard, ("tick",))
        steps = examine(workers, chosen, Path(folder), heard)
    findings += findings_of(steps)
    tried = None if asked is None else _try(asked, heard)
    if tried is not None and tried.finding is not None:
        findings.append(tried.finding)
    return Checkup(machine, tools(), tuple(steps), tuple(findings), tried, conclude(steps, findings, tried))


def _without_probes(machine: Machine, findings: Sequence[Finding]) -> Checkup:
    """Where a package cannot be imported there is nothing to export with."""
    return Checkup(machine, (), (), tuple(findings), None, conclude((), findings, None))


def _try(asked: Callable[[], RecipeToTry], heard: Heard) -> RecipeOutcome:
    """The recipe with the settings asked for, and where that fails, with the defaults."""
    from fairway.convert.export import export_subject, make_settings
    from fairway.model.recipe import load_subject

    wish = asked()
    try:
        subject = load_subject(wish.recipe, wish.overrides)
    except UserError as error:
        return RecipeOutcome(wish.spelt, None, finding=error.finding)

    def run(settings: Settings) -> dict[str, Any]:
        with TemporaryDirectory(prefix="fairway-doctor-") as folder:
            try:
                return export_subject(subject, Path(folder) / "model.onnx", settings, progress=heard).record
            except UserError as error:
                return {"verdict": "failed", "route": None, "ladder": [], "findings": [error.finding.as_dict()]}

    record = run(wish.settings)
    if record["verdict"] == "verified" or not wish.spelt:
        return RecipeOutcome(wish.spelt, record)
    limits = wish.settings.limits
    plain = make_settings(wish.settings.level, (), None, True, limits.seconds, limits.bytes)
    return RecipeOutcome(wish.spelt, record, run(plain))
