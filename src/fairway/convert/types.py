"""The values that travel between the steps of an export: settings, planned rungs, candidates, rungs and their climb."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from fairway.convert.blocks.repeats import Repeat
from fairway.convert.ladder.route import Route
from fairway.convert.ladder.size_questions import Question
from fairway.convert.pieces.piece import Piece
from fairway.convert.remedies.catalogue import BUILT_IN
from fairway.diagnostics import Code, Finding, Where
from fairway.judge.evidence import Evidence
from fairway.judge.lattice import Level
from fairway.model.dims import Point
from fairway.model.weight_storage import WeightMode, WeightStorage
from fairway.workers.attempt import Limits

Verdict = Literal["verified", "wrong", "unproven", "failed"]

VERDICT_ORDER: tuple[Verdict, ...] = ("failed", "wrong", "unproven", "verified")
"""From the worst to the best."""

CAUSE_CODES = (
    Code.MODULE_CHOSEN_BY_VALUE,
    Code.LOOP_UNROLLED,
    Code.BRANCH_FROZEN,
    Code.PATCH_NOT_EQUAL,
    Code.LAYER_SIZES_DISAGREE,
    Code.OTHER_WAY_WHEN_EXPORTED,
    Code.LIST_FROZEN,
    Code.TOO_MANY_REGIONS,
)
"""Findings that name the cause in the model's own code, or say that a model has too many regions of sizes."""

SOURCE_REMEDIES = tuple(name for name, remedy in BUILT_IN.items() if remedy.stage == "source")
"""The remedies that change what the user's source does."""


@dataclass(frozen=True)
class Settings:
    """The level, the routes and the limits of an export."""

    level: Level = "standard"
    routes: tuple[str, ...] = ()
    """Empty for the entire ladder."""
    opset: int | None = None
    remedies: bool = True
    limits: Limits = field(default_factory=Limits)
    weights: WeightMode | None = None
    """None chooses by the size of the model."""


@dataclass(frozen=True)
class PlannedRung:
    """A route, with or without rewrites of the user's source, and without a remedy that may have done harm."""

    route: Route
    rewrites: bool = False
    without: str = ""
    wrong_at: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Sizes to take the example from, because the file of an earlier rung was wrong at them."""
    decided: bool = False
    """Whether decisions on values are made beforehand; such a rung needs a remedy that can do that."""
    repeats: tuple[Repeat, ...] = ()
    """Runs of equal blocks of which two or three are captured."""
    wrong_points: tuple[tuple[tuple[str, int], ...], ...] = ()
    """Points at which the last file of several captures was wrong."""

    @property
    def name(self) -> str:
        without = f" without {self.without}" if self.without else ""
        larger = " from a larger example" if self.wrong_at else " once more" if self.wrong_points else ""
        how = " with branches decided" if self.decided else " with rewrites" if self.rewrites else ""
        return self.route.name + how + without + larger

    @property
    def needs(self) -> tuple[str, ...]:
        """Remedies of which one must be chosen; without any, the rung would repeat an earlier one."""
        return SOURCE_REMEDIES if self.decided else ()


@dataclass(frozen=True)
class Candidate:
    """A file that was made but not yet judged, and everything the exporter reported while making it."""

    path: str
    opset: int
    output_names: tuple[str, ...] = ()
    remedies: tuple[tuple[str, str], ...] = ()
    """Names of the remedies that did something, each with its note."""
    warnings: tuple[tuple[str, Where], ...] = ()
    """The tracer's warnings."""
    edges: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Sizes at which the capture's own range constraints end, to be tested on both sides."""
    guards: tuple[str, ...] | None = None
    """Conditions on the dims under which the captured program is valid; None if the route records none."""
    sampled_because: str = ""
    """The reason why sizes can only be sampled, if there are no guards; empty for a trace."""
    one_sided: bool = False
    """Whether the file holds only one side of every branch on values or sizes."""
    decided: tuple[tuple[str, int], ...] = ()
    """Lines of branches on values that a remedy decided."""
    constant: frozenset[tuple[str, int]] = frozenset()
    """Lines that read only values that no input reaches."""
    clash: tuple[str, ...] = ()
    """Names that are both input and output, left unresolved because remedies are off."""
    stored: WeightStorage = field(default_factory=WeightStorage)
    rewritten: tuple[dict[str, str], ...] = ()
    """Functions of the model that were rewritten: their names, and their texts before and after."""
    questions: tuple[Question, ...] = ()
    """Conditions on sizes that the capture assumed, with the lines that asked for them."""
    pieces: tuple[Piece, ...] = ()
    """The captures that were joined in this file, in the order in which their regions are tested."""
    sides: tuple[Point, ...] = ()
    """Points on either side of each condition that chooses a piece."""


@dataclass(frozen=True)
class Preflight:
    """The model's outputs, and the findings from runs in PyTorch."""

    output_names: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    output_axes: tuple[tuple[bool, ...], ...] = ()
    """For each output, which of its axes vary with the dims; used when a file is judged."""

    @property
    def hopeless(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)


@dataclass(frozen=True)
class Rung:
    """A planned rung that was carried out: its candidate, its evidence and its cost."""

    step: PlannedRung
    route: Route
    verdict: Verdict = "failed"
    seconds: float = 0.0
    peak_bytes: int = 0
    findings: tuple[Finding, ...] = ()
    remedies: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    candidate: Candidate | None = None
    evidence: Evidence | None = None
    export_seconds: float = 0.0
    tried: tuple[str, ...] = ()
    """Names of the remedies prescribed, also if the capture failed."""

    @property
    def is_captured(self) -> bool:
        """Say whether anything was captured. A rung ends at once if no remedy can do what it needs."""
        return bool(self.findings or self.seconds)


@dataclass(frozen=True)
class Climb:
    """All rungs that were tried for one subject, and the findings that matter for the result."""

    preflight: Preflight
    rungs: tuple[Rung, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def best(self) -> Rung | None:
        return find_best_rung(self.rungs)

    @property
    def verdict(self) -> Verdict:
        return self.best.verdict if self.best else "failed"


def find_best_rung(rungs: Sequence[Rung]) -> Rung | None:
    """Return the rung with the best verdict; of equals one with evidence, a cause, a line, or that got further.

    A model that was captured and has no translation got further than one that was not captured. Decisions and rewrites
    let a capture get further.
    """

    def merit(rung: Rung) -> tuple[int, bool, bool, bool, bool, bool]:
        codes = {finding.code for finding in rung.findings}
        is_captured = bool(codes & {Code.NO_TRANSLATION, Code.TRANSLATION_FAILED, Code.OPSET_NOT_HONORED})
        names_line = any(f.where is not None and f.where.file is not None for f in rung.findings)
        return (
            VERDICT_ORDER.index(rung.verdict),
            rung.evidence is not None,
            not codes.isdisjoint(CAUSE_CODES),
            names_line,
            is_captured,
            rung.step.decided,
        )

    return max(rungs, key=merit, default=None)
