"""Turn evidence into its part of the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.record.schema_evidence import (
    CanaryRecord,
    EvidenceRecord,
    FailingSampleRecord,
    OutputRecord,
    RowsRecord,
    SampleRecord,
    SecondExportRecord,
    SizesRecord,
    TouchRecord,
    ValuesRecord,
)
from fairway.record.writer import describe_finding, to_plain

if TYPE_CHECKING:
    from fairway.judge.evidence import Differential, Evidence, RowIndependence, TestedSample
    from fairway.judge.guards import SizeCoverage
    from fairway.model.sample import Sample


def write_evidence(evidence: Evidence) -> EvidenceRecord:
    return EvidenceRecord(
        level=evidence.level,
        domain=evidence.domain,
        tested=tuple(map(_describe_sample, evidence.tested)),
        outputs=tuple(
            OutputRecord(
                name=output.name,
                dtype=output.dtype,
                ratio=output.ratio,
                file_error=output.file_error,
                own_error=output.own_error,
            )
            for output in evidence.outputs
        ),
        yardstick=evidence.yardstick,
        factor=evidence.factor,
        seconds=evidence.seconds,
        spent=dict(evidence.spent),
        findings=tuple(map(describe_finding, evidence.findings)),
        smallest=None if evidence.smallest is None else dict(evidence.smallest),
        boundaries=tuple(evidence.boundaries),
        wrong_at={dim: tuple(sizes) for dim, sizes in evidence.wrong_at.items()},
        failing=tuple(map(_describe_failing, evidence.failing)),
        sides=tuple((dict(right), dict(wrong)) for right, wrong in evidence.sides),
        undecided=evidence.undecided,
        differential=_describe_second_export(evidence.differential),
        second_runtime=evidence.second_runtime,
        canary=None if evidence.canary is None else CanaryRecord.model_validate_json(to_plain(evidence.canary)),
        rows=None if evidence.rows is None else _describe_rows(evidence.rows),
        sizes=_describe_sizes(evidence.sizes),
        values=tuple(
            ValuesRecord(name=drawn.name, text=drawn.text, low=drawn.low, high=drawn.high) for drawn in evidence.values
        ),
        unreached=tuple(evidence.unreached),
    )


def _describe_sample(tested: TestedSample) -> SampleRecord:
    return SampleRecord(
        point=dict(tested.point),
        seed=tested.seed,
        flavor=tested.flavor,
        right=tested.right,
        ratio=tested.ratio,
        note=tested.note,
        data=tested.data,
        ratios=tuple(tested.ratios),
        excused=tested.excused,
    )


def _describe_failing(sample: Sample) -> FailingSampleRecord:
    touch = sample.touch
    return FailingSampleRecord(
        point=tuple(sample.point),
        seed=sample.seed,
        flavor=sample.flavor,
        data=sample.data,
        touch=None if touch is None else TouchRecord(kind=touch.kind, value=float(touch.value), input=touch.input),
    )


def _describe_second_export(leg: Differential) -> SecondExportRecord:
    return SecondExportRecord(
        done=leg.done, same=leg.same, harmless=leg.harmless, differences=tuple(leg.differences), note=leg.note
    )


def _describe_rows(rows: RowIndependence) -> RowsRecord:
    return RowsRecord(
        dim=rows.dim,
        independent=rows.independent,
        sizes=tuple(rows.sizes),
        compared=rows.compared,
        reason=rows.reason,
    )


def _describe_sizes(sizes: SizeCoverage) -> SizesRecord:
    return SizesRecord(
        guards=tuple(sizes.guards),
        points=sizes.points,
        excluded=sizes.excluded,
        excluded_run=sizes.excluded_run,
        complete=sizes.complete,
        sampled=sizes.sampled,
        pieces=sizes.pieces,
    )
