"""`fairway quantize`: make variants, judge them on held-back data, and deliver one if it is worth it."""

from __future__ import annotations

import errno
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from fairway.convert.record_writer import describe_subject
from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import UserError, complain
from fairway.model.cpu import choose_arithmetic, detect_cpu
from fairway.model.onnx_file import open_model
from fairway.model.subject import Subject
from fairway.model.weight_storage import WeightStorage
from fairway.record.delivery import check_target, deliver, make_workshop
from fairway.record.files import hash_file, hash_model, read_versions
from fairway.record.progress import BestChanged, EventSink, ItemsCounted, StageStarted, ignore_event
from fairway.record.reader import compare_with_record
from fairway.record.schema import RECORD_FORMAT, Record
from fairway.record.schema_parts import SettingsRecord, SubjectRecord
from fairway.record.schema_tuning import ArithmeticRecord, CalibrationRecord, CpuRecord, QuantizedRecord, SourceRecord
from fairway.record.writer import describe_finding
from fairway.tune.quantize.accuracy import AccuracyJudge, JudgedVariant
from fairway.tune.quantize.calibration import CALIBRATION_METHODS, ActivationRanges, calibrate
from fairway.tune.quantize.error_metrics import METRICS
from fairway.tune.quantize.prepare import PreparedGraph, prepare_graph
from fairway.tune.quantize.quality_budget import Budget
from fairway.tune.quantize.sample_split import SampleSplit, open_samples
from fairway.tune.quantize.schemes import SCHEMES, QuantizeContext, make_variant
from fairway.tune.quantize.search import BUDGET_MARGIN, MixEvaluator, find_smallest_mix, rank_units
from fairway.tune.quantize.slices import SlicedModel
from fairway.workers.workshop import Janitor

Verdict = Literal["quantized", "not shipped"]
MIXED_SCHEME = "int8-mixed"
MIX_SAMPLES = 8
"""Calibration samples that mixes are tried on."""


@dataclass(frozen=True)
class QuantizeSettings:
    """The options of a quantization."""

    scheme: str = "auto"
    method: str = "minmax"
    per_channel: bool = True
    samples: int = 32
    metric: str | None = None
    budget: Budget = field(default_factory=Budget)
    seconds: float = 2.0
    """Seconds of timing for each variant, and as many for the float file."""
    keep: tuple[str, ...] = ()
    """Nodes that stay in float in schemes of fewer than 16 bits, named as in `do_not_quantize.json`."""
    data: Path | None = None
    """Files with samples; None for the recipe's `calibration`, or samples drawn from the spec."""


@dataclass(frozen=True)
class QuantizeResult:
    """The variant that was delivered, or how near each came."""

    verdict: Verdict
    path: Path | None
    best: JudgedVariant | None
    tried: tuple[JudgedVariant, ...]
    findings: tuple[Finding, ...]
    record: Record

    def __str__(self) -> str:
        from fairway.tune.quantize.quality_table import render

        return render(self)


def check_settings(settings: QuantizeSettings, subject: Subject) -> str:
    """Return the metric to use; fail on unknown settings."""
    for option, value, known in (
        ("scheme", settings.scheme, (*SCHEMES, "auto")),
        ("method", settings.method, CALIBRATION_METHODS),
        ("metric", settings.metric, (None, *METRICS)),
    ):
        if value not in known:
            raise complain(
                Code.UNKNOWN_OPTION, f"{option} {value!r}; expected one of {', '.join(k for k in known if k)}"
            )
    if settings.metric == "recipe" and subject.metric is None:
        raise complain(Code.UNKNOWN_OPTION, "metric 'recipe', but the recipe has no metric")
    if settings.samples < 2:
        raise complain(Code.UNKNOWN_OPTION, f"samples {settings.samples}; expected at least 2")
    return settings.metric or ("recipe" if subject.metric is not None else "sqnr")


def quantize_file(
    source: Path,
    subject: Subject,
    target: Path,
    settings: QuantizeSettings,
    overwrite: bool = False,
    on_event: EventSink = ignore_event,
) -> QuantizeResult:
    """Prepare, calibrate, make and judge variants, and deliver the best if it is worth it. The float file stays as it
    is.
    """
    metric = check_settings(settings, subject)
    check_target(target, overwrite)
    open_model(source, subject)
    stored, changed = compare_with_record(source)
    janitor = Janitor()
    try:
        with make_workshop(target, janitor) as folder:
            run = _Quantizer(source, subject, settings, metric, folder, on_event).run()
            findings = (*run.findings, *(() if changed is None else (changed,)))
            if stored is not None and changed is None:
                described = stored.subject
            else:
                described = describe_subject(subject, hash_model(subject.model))
            record = _make_record(source, described, settings, metric, run, findings)
            if run.best is None:
                return QuantizeResult("not shipped", None, None, run.tried, findings, record)
            record = deliver(folder, run.best.variant.path, target, record, WeightStorage(), overwrite)
            return QuantizeResult("quantized", target, run.best, run.tried, findings, record)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise complain(Code.CANNOT_WRITE, f"{target}: {error.strerror}") from error
        raise
    finally:
        janitor.dismiss()


@dataclass(frozen=True)
class _QuantizerRun:
    """All judged variants, the best of them, and what they were made with."""

    best: JudgedVariant | None
    tried: tuple[JudgedVariant, ...]
    findings: tuple[Finding, ...]
    prepared: PreparedGraph
    samples: SampleSplit
    context: QuantizeContext


class _Quantizer:
    """Makes and judges variants of a float file in one folder."""

    def __init__(
        self, source: Path, subject: Subject, settings: QuantizeSettings, metric: str, folder: Path, on_event: EventSink
    ) -> None:
        self.source, self.subject, self.settings = source, subject, settings
        self.metric, self.folder, self.on_event = metric, folder, on_event

    def run(self) -> _QuantizerRun:
        """Return the judged variants; fail if no scheme produced one."""
        settings, on_event = self.settings, self.on_event
        on_event(StageStarted("preparing the graph"))
        prepared = prepare_graph(self.source, self.folder)
        samples = open_samples(self.subject, settings.data, settings.samples)
        schemes = SCHEMES if settings.scheme == "auto" else (settings.scheme,)
        ranges: ActivationRanges | None = None
        if "int8-static" in schemes:
            on_event(StageStarted(f"calibrating with {samples.source}"))
            ranges = calibrate(prepared, samples.read_calibration(), settings.method, self.folder)
        context = QuantizeContext(prepared, choose_arithmetic(detect_cpu()), ranges, settings.per_channel, self.folder)
        judge = AccuracyJudge(
            self.source,
            samples,
            self.metric,
            self.subject.metric,
            settings.seconds,
            self.folder,
        )
        tried, findings = self._try_all(schemes, context, samples, judge)
        best = choose_best(tried, settings.budget)
        if best is None and tried:
            findings = [*findings, *_explain_refusal(tried, settings.budget)]
        if best is None and not tried:
            raise UserError(findings[0])
        return _QuantizerRun(best, tuple(tried), tuple(findings), prepared, samples, context)

    def _try_all(
        self, schemes: Sequence[str], context: QuantizeContext, samples: SampleSplit, judge: AccuracyJudge
    ) -> tuple[list[JudgedVariant], list[Finding]]:
        tried: list[JudgedVariant] = []
        findings: list[Finding] = []
        kept = _find_kept_units(context.prepared, self.settings.keep)
        for number, scheme in enumerate(schemes):
            self.on_event(ItemsCounted(number, len(schemes), "schemes", f"making and judging {scheme}"))
            try:
                judged = judge.judge(make_variant(scheme, context, kept))
            except UserError as error:
                findings.append(error.finding)
                continue
            tried.append(judged)
            can_mix = scheme == "int8-static" and len(context.prepared.units) > 1
            if can_mix and not self.settings.budget.is_drop_allowed(judged):
                tried += self._make_mixes(context, samples, judge, kept)
            if (best := choose_best(tried, self.settings.budget)) is not None:
                self.on_event(BestChanged(best.variant.scheme))
        distinct: dict[str, JudgedVariant] = {}
        for variant in tried:
            if variant.sha256 in distinct:
                seen = f"{variant.variant.scheme} and {distinct[variant.sha256].variant.scheme} are the same bytes"
                findings.append(Finding(Code.SCHEMES_ALIKE, seen))
            distinct.setdefault(variant.sha256, variant)
        return [*distinct.values()], findings

    def _make_mixes(
        self, context: QuantizeContext, samples: SampleSplit, judge: AccuracyJudge, kept: Sequence[str]
    ) -> list[JudgedVariant]:
        """Make the mix with the fewest units in float.

        If its drop on the held-back samples is over the budget, more units are kept.
        """
        self.on_event(StageStarted("looking for the units to keep in float"))
        evaluator = MixEvaluator(
            SlicedModel(context),
            list(islice(samples.read_calibration(), MIX_SAMPLES)),
            self.metric,
            judge.recipe_metric,
        )
        ranked = [unit for unit, _ in rank_units(evaluator)]
        keep = list(
            find_smallest_mix(ranked, evaluator.measure_drop, BUDGET_MARGIN * self.settings.budget.max_drop).keep
        )
        keep += [name for name in kept if name not in keep]
        others = [unit.name for unit in ranked if unit.name not in keep]
        judged: list[JudgedVariant] = []
        while others:
            variant = replace(
                make_variant("int8-static", context, keep, f"{MIXED_SCHEME}-{len(keep)}"), scheme=MIXED_SCHEME
            )
            judged = [judge.judge(variant)]
            if self.settings.budget.is_drop_allowed(judged[0]):
                break
            step = max(1, len(keep) // 4)
            keep, others = [*keep, *others[:step]], others[step:]
        return judged


def _find_kept_units(prepared: PreparedGraph, nodes: Sequence[str]) -> list[str]:
    """Return the units of these nodes; fail on a node that cannot be quantized."""
    known = {node for unit in prepared.units for node in unit.nodes}
    unknown = [node for node in nodes if node not in known]
    if unknown:
        raise complain(Code.UNKNOWN_OPTION, f"keep {unknown[0]!r}; no node of that name can be quantized")
    return [unit.name for unit in prepared.units if set(unit.nodes) & set(nodes)]


def choose_best(tried: Sequence[JudgedVariant], budget: Budget) -> JudgedVariant | None:
    """Return the fastest variant that meets the budget; of equally fast variants, the smallest."""
    allowed = [variant for variant in tried if budget.is_met_by(variant)]
    faster = [variant for variant in allowed if variant.speed is not None and variant.speed.is_faster]
    if not faster:
        return min(allowed, key=lambda variant: variant.size, default=None)
    best_low = max(variant.speed.low for variant in faster if variant.speed is not None)
    equal = [variant for variant in faster if variant.speed is not None and variant.speed.high >= best_low]
    return min(equal, key=lambda variant: variant.size)


def _explain_refusal(tried: Sequence[JudgedVariant], budget: Budget) -> list[Finding]:
    """Describe how near each variant came, and why the slow ones are slow."""
    nearest = min(
        tried,
        key=lambda variant: (
            len(budget.list_shortfalls(variant)),
            variant.drop if math.isfinite(variant.drop) else math.inf,
        ),
    )
    seen = "\n".join(f"{variant.variant.scheme}: {'; '.join(budget.list_shortfalls(variant))}" for variant in tried)
    findings = [Finding(Code.NOT_WORTH_SHIPPING, seen, data={"nearest": nearest.variant.scheme})]
    slow = [variant for variant in tried if variant.speed is not None and variant.speed.is_slower]
    if slow:
        reasons = "\n".join(f"{variant.variant.scheme} runs at {variant.speed}: {variant.why_slow}" for variant in slow)
        findings.append(Finding(Code.SLOWER_QUANTIZED, reasons))
    return findings


def _make_record(
    source: Path,
    subject: SubjectRecord,
    settings: QuantizeSettings,
    metric: str,
    run: _QuantizerRun,
    findings: Sequence[Finding],
) -> Record:
    """Return the record of the run; `subject` comes from the float file's record if there is one."""
    best = run.best
    return Record(
        format=RECORD_FORMAT,
        subject=subject,
        versions=read_versions(),
        settings=SettingsRecord(scheme=settings.scheme, method=settings.method, samples=settings.samples),
        verdict="failed" if best is None else "quantized",
        route=None,
        remedies=(),
        evidence=None,
        findings=tuple(map(describe_finding, findings)),
        quantized=_describe_quantization(source, settings, metric, run),
    )


def _describe_quantization(
    source: Path, settings: QuantizeSettings, metric: str, run: _QuantizerRun
) -> QuantizedRecord:
    """Return the part of the record about quantization."""
    context, best, sha256 = run.context, run.best, hash_file(source)
    ranges = {} if context.ranges is None else context.ranges.as_dict()
    quantized = QuantizedRecord(
        source=SourceRecord(name=source.name, sha256=sha256),
        scheme=None if best is None else best.variant.scheme,
        metric=metric,
        cpu=CpuRecord(**detect_cpu().as_dict()),
        arithmetic=ArithmeticRecord(**asdict(context.arithmetic)),
        calibration=CalibrationRecord(
            source=run.samples.source,
            drawn_from_spec=run.samples.drawn_from_spec,
            held_back=len(run.samples.held_back),
            **ranges,
        ),
        per_channel=settings.per_channel,
        budget=settings.budget.as_dict(),
        opset_raised_from=run.prepared.raised_from,
        shipped=None if best is None else best.describe(),
        tried=tuple(variant.describe() for variant in run.tried),
    )
    if best is None:
        return quantized
    speed = "speed not measured" if best.speed is None else f"speed {best.speed}"
    return quantized.model_copy(
        update={
            "said": f"{best.variant.scheme} from {sha256[:12]}, drop {best.drop:.3%} by {metric}, {speed}, "
            f"size {best.size_share:.0%}"
        }
    )
