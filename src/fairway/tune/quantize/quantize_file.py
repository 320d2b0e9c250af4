"""`fairway quantize`: variants are made, judged on data held back, and one is shipped if it is worth it."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from fairway.diagnostics import Finding
from fairway.diagnostics.errors import UserError, complain
from fairway.model.cpu import choose_arithmetic, this_cpu
from fairway.model.onnx_file import check_room, check_signature, open_header
from fairway.model.subject import Subject
from fairway.model.weight_storage import WeightStorage
from fairway.record.delivery import check_target, deliver, workshop
from fairway.record.files import FORMAT, hash_file, hash_model, versions
from fairway.record.reader import compare_with_record
from fairway.tune.quantize.accuracy import AccuracyJudge, Judged
from fairway.tune.quantize.calibration import METHODS, Ranges, calibrate
from fairway.tune.quantize.error_metrics import METRICS
from fairway.tune.quantize.prepare import Prepared, prepare
from fairway.tune.quantize.quality_budget import Budget
from fairway.tune.quantize.sample_split import Samples, open_samples
from fairway.tune.quantize.schemes import SCHEMES, Making, make
from fairway.tune.quantize.search import MARGIN, Scene, fewest_kept, rank
from fairway.tune.quantize.slices import Sliced
from fairway.workers.staging import Janitor

Progress = Callable[[Any], None]
Verdict = Literal["quantised", "not shipped"]
MIXED = "int8-mixed"
TRIED = 8
"""Calibration samples that mixes are tried on."""


@dataclass(frozen=True)
class Wishes:
    """What was asked for."""

    scheme: str = "auto"
    method: str = "minmax"
    per_channel: bool = True
    samples: int = 32
    metric: str | None = None
    budget: Budget = field(default_factory=Budget)
    seconds: float = 2.0
    """Of timing, for each variant and the float file beside it."""
    keep: tuple[str, ...] = ()
    """Nodes that stay in float where a scheme has fewer than 16 bits, as `do_not_quantize.json` names them."""


@dataclass(frozen=True)
class Quantised:
    """What came out: the variant that was shipped, or how near each came."""

    verdict: Verdict
    path: Path | None
    best: Judged | None
    tried: tuple[Judged, ...]
    findings: tuple[Finding, ...]
    record: dict[str, Any]

    def __str__(self) -> str:
        from fairway.tune.quantize.quality_table import render

        return render(self)


def check_wishes(wishes: Wishes, subject: Subject) -> str:
    """The metric that will count; refuses what is not known."""
    for what, value, known in (
        ("scheme", wishes.scheme, (*SCHEMES, "auto")),
        ("method", wishes.method, METHODS),
        ("metric", wishes.metric, (None, *METRICS)),
    ):
        if value not in known:
            raise complain("FW006", f"{what} {value!r}; there are {', '.join(k for k in known if k)}")
    if wishes.metric == "recipe" and subject.metric is None:
        raise complain("FW006", "metric 'recipe', and the recipe has no metric")
    if wishes.samples < 2:
        raise complain("FW006", f"samples {wishes.samples}; at least 2 are needed")
    return wishes.metric or ("recipe" if subject.metric is not None else "sqnr")


def quantize_file(
    source: Path,
    subject: Subject,
    target: Path,
    wishes: Wishes,
    data: Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Quantised:
    """The whole road: prepare, calibrate, make, judge, deliver what is worth it. The float file is never touched."""
    heard = progress or (lambda event: None)
    metric = check_wishes(wishes, subject)
    check_target(target, overwrite)
    header = open_header(source)
    check_room(header)
    check_signature(header, subject)
    stored, changed = compare_with_record(source)
    janitor = Janitor()
    try:
        with workshop(target, janitor) as folder:
            found = _Road(source, subject, wishes, metric, folder, heard).walk(data)
            findings = (*found.findings, *(() if changed is None else (changed,)))
            known = stored.whole["subject"] if stored is not None and changed is None else _subject(subject)
            record = _record(source, known, wishes, metric, found, findings)
            if found.best is None:
                return Quantised("not shipped", None, None, found.tried, findings, record)
            record = deliver(folder, found.best.variant.path, target, record, WeightStorage(), overwrite)
            return Quantised("quantised", target, found.best, found.tried, findings, record)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise complain("FW009", f"{target}: {error.strerror}") from error
        raise
    finally:
        janitor.dismiss()


@dataclass(frozen=True)
class _Found:
    best: Judged | None
    tried: tuple[Judged, ...]
    findings: tuple[Finding, ...]
    prepared: Prepared
    samples: Samples
    making: Making


class _Road:
    """From a float file to judged variants, in one folder."""

    def __init__(
        self, source: Path, subject: Subject, wishes: Wishes, metric: str, folder: Path, heard: Progress
    ) -> None:
        self.source, self.subject, self.wishes = source, subject, wishes
        self.metric, self.folder, self.heard = metric, folder, heard

    def walk(self, data: Path | None) -> _Found:
        wishes, heard = self.wishes, self.heard
        heard(("stage", "preparing the graph"))
        prepared = prepare(self.source, self.folder)
        samples = open_samples(self.subject, data, wishes.samples)
        schemes = SCHEMES if wishes.scheme == "auto" else (wishes.scheme,)
        ranges: Ranges | None = None
        if "int8-static" in schemes:
            heard(("stage", f"calibrating with {samples.source}"))
            ranges = calibrate(prepared, samples.calibrating(), wishes.method, self.folder)
        making = Making(prepared, choose_arithmetic(this_cpu()), ranges, wishes.per_channel, self.folder)
        judge = AccuracyJudge(
            self.source,
            samples.held_back,
            samples.typical,
            self.metric,
            self.subject.metric,
            wishes.seconds,
            self.folder,
        )
        tried, findings = self._try_all(schemes, making, samples, judge)
        best = choose(tried, wishes.budget)
        if best is None and tried:
            findings = [*findings, *_explain(tried, wishes.budget)]
        if best is None and not tried:
            raise UserError(findings[0])
        return _Found(best, tuple(tried), tuple(findings), prepared, samples, making)

    def _try_all(
        self, schemes: Sequence[str], making: Making, samples: Samples, judge: AccuracyJudge
    ) -> tuple[list[Judged], list[Finding]]:
        tried: list[Judged] = []
        findings: list[Finding] = []
        kept = _kept(making.prepared, self.wishes.keep)
        for number, scheme in enumerate(schemes):
            self.heard(("count", number, len(schemes), "schemes", f"making and judging {scheme}"))
            try:
                judged = judge.look(make(scheme, making, kept))
            except UserError as error:
                findings.append(error.finding)
                continue
            tried.append(judged)
            if scheme == "int8-static" and not self.wishes.budget.within(judged) and len(making.prepared.units) > 1:
                tried += self._mix(making, samples, judge, kept)
            if (best := choose(tried, self.wishes.budget)) is not None:
                self.heard(("best", best.variant.scheme))
        distinct: dict[str, Judged] = {}
        for one in tried:
            if one.sha256 in distinct:
                seen = f"{one.variant.scheme} and {distinct[one.sha256].variant.scheme} are the same bytes"
                findings.append(Finding("FW710", seen))
            distinct.setdefault(one.sha256, one)
        return [*distinct.values()], findings

    def _mix(self, making: Making, samples: Samples, judge: AccuracyJudge, kept: Sequence[str]) -> list[Judged]:
        """The mix that keeps the fewest units in float; if it does worse on the data held back, some more are kept."""
        self.heard(("stage", "looking for the units to keep in float"))
        scene = Scene(Sliced(making), list(islice(samples.calibrating(), TRIED)), self.metric, judge.own)
        ranked = [unit for unit, _ in rank(scene)]
        keep = list(fewest_kept(ranked, scene.drop, MARGIN * self.wishes.budget.max_drop).keep)
        keep += [name for name in kept if name not in keep]
        others = [unit.name for unit in ranked if unit.name not in keep]
        found: list[Judged] = []
        while others:
            variant = replace(make("int8-static", making, keep, f"{MIXED}-{len(keep)}"), scheme=MIXED)
            found = [judge.look(variant)]
            if self.wishes.budget.within(found[0]):
                break
            more = max(1, len(keep) // 4)
            keep, others = [*keep, *others[:more]], others[more:]
        return found


def _kept(prepared: Prepared, nodes: Sequence[str]) -> list[str]:
    """The units of these nodes; refuses a node that is none's."""
    known = {node for unit in prepared.units for node in unit.nodes}
    strange = [node for node in nodes if node not in known]
    if strange:
        raise complain("FW006", f"keep {strange[0]!r}; no node of that name can be quantised")
    return [unit.name for unit in prepared.units if set(unit.nodes) & set(nodes)]


def choose(tried: Sequence[Judged], budget: Budget) -> Judged | None:
    """Of those that meet the budget the fastest; of those as fast, the smallest."""
    good = [one for one in tried if budget.met(one)]
    faster = [one for one in good if one.speed is not None and one.speed.faster]
    if not faster:
        return min(good, key=lambda one: one.size, default=None)
    top = max(one.speed.low for one in faster if one.speed is not None)
    equal = [one for one in faster if one.speed is not None and one.speed.high >= top]
    return min(equal, key=lambda one: one.size)


def _explain(tried: Sequence[Judged], budget: Budget) -> list[Finding]:
    """How near each came, and why the slow ones are slow."""
    nearest = min(tried, key=lambda one: (len(budget.lacking(one)), one.drop if math.isfinite(one.drop) else math.inf))
    seen = "\n".join(f"{one.variant.scheme}: {'; '.join(budget.lacking(one))}" for one in tried)
    found = [Finding("FW708", seen, data={"nearest": nearest.variant.scheme})]
    slow = [one for one in tried if one.speed is not None and one.speed.slower]
    if slow:
        told = "\n".join(f"{one.variant.scheme} runs at {one.speed}: {one.why_slow}" for one in slow)
        found.append(Finding("FW709", told))
    return found


def _subject(subject: Subject) -> dict[str, Any]:
    """Of whom the file is, where no record beside the float file says so."""
    return {
        "name": subject.name,
        "class": f"{type(subject.model).__module__}.{type(subject.model).__qualname__}",
        "sha256": hash_model(subject.model),
        "inputs": [str(s) for s in subject.spec],
        "domain": subject.domain.as_dict(),
    }


def _record(
    source: Path, subject: dict[str, Any], wishes: Wishes, metric: str, found: _Found, findings: Sequence[Finding]
) -> dict[str, Any]:
    cpu, making, best = this_cpu(), found.making, found.best
    quantised: dict[str, Any] = {
        "from": {"name": source.name, "sha256": hash_file(source)},
        "scheme": None if best is None else best.variant.scheme,
        "metric": metric,
        "cpu": cpu.as_dict(),
        "arithmetic": asdict(making.arithmetic),
        "calibration": {
            "source": found.samples.source,
            "drawn_from_spec": found.samples.drawn,
            "held_back": len(found.samples.held_back),
            **({} if making.ranges is None else making.ranges.as_dict()),
        },
        "per_channel": wishes.per_channel,
        "budget": wishes.budget.as_dict(),
        "opset_raised_from": found.prepared.raised_from,
        "shipped": None if best is None else best.as_dict(),
        "tried": [one.as_dict() for one in found.tried],
    }
    if best is not None:
        speed = "speed not taken" if best.speed is None else f"speed {best.speed}"
        quantised["said"] = (
            f"{best.variant.scheme} from {quantised['from']['sha256'][:12]}, drop {best.drop:.3%} by {metric}, "
            f"{speed}, size {best.size_share:.0%}"
        )
    return {
        "format": FORMAT,
        "subject": subject,
        "versions": versions(),
        "settings": {"scheme": wishes.scheme, "method": wishes.method, "samples": wishes.samples},
        "verdict": "failed" if best is None else "quantised",
        "route": None,
        "remedies": [],
        "evidence": None,
        "findings": [f.as_dict() for f in findings],
        "quantised": quantised,
    }
