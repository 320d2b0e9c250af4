"""Build the record of an export from the subject, the settings and the climb."""

from __future__ import annotations

import os
import platform
from math import prod

from fairway.convert.evidence_writer import write_evidence
from fairway.convert.pieces.piece import Piece
from fairway.convert.remedies.catalogue import CATALOGUE
from fairway.convert.types import Climb, Rung, Settings
from fairway.diagnostics import Finding
from fairway.model.dims import describe_point
from fairway.model.subject import Subject
from fairway.model.weight_storage import WeightStorage
from fairway.record.files import hash_model, read_versions
from fairway.record.schema import RECORD_FORMAT, UNKNOWN_SUBJECT, Record
from fairway.record.schema_parts import (
    BlockRecord,
    DimRecord,
    PieceRecord,
    RefusalRecord,
    RemedyRecord,
    RewriteRecord,
    RungFindingRecord,
    RungRecord,
    SettingsRecord,
    SubjectRecord,
    WeightCount,
    WeightsRecord,
)
from fairway.record.writer import describe_finding

MAX_WEIGHT_NAMES = 20


def build_record(subject: Subject, settings: Settings, climb: Climb) -> Record:
    """Return the record, without the file that is not delivered yet."""
    best = climb.best
    candidate = None if best is None else best.candidate
    outputs = (
        candidate.output_names if candidate is not None and candidate.output_names else climb.preflight.output_names
    )
    return Record(
        format=RECORD_FORMAT,
        subject=describe_subject(subject, hash_model(subject.model), outputs),
        versions=read_versions(),
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        settings=SettingsRecord(
            level=settings.level, opset=settings.opset, remedies=settings.remedies, routes=tuple(settings.routes)
        ),
        verdict=climb.verdict,
        route=None if best is None else best.route.name,
        remedies=() if best is None else tuple(_describe_remedy(name, note) for name, note in best.remedies),
        rewritten=() if candidate is None else tuple(RewriteRecord(**change) for change in candidate.rewritten),
        weights=None if candidate is None else _describe_weights(candidate.stored),
        blocks=()
        if best is None
        else tuple(
            BlockRecord(container=run.container, first=run.first, count=run.count, kept=run.kept)
            for run in best.step.repeats
        ),
        pieces=() if candidate is None else tuple(map(_describe_piece, candidate.pieces)),
        evidence=None if best is None or best.evidence is None else write_evidence(best.evidence),
        findings=tuple(map(describe_finding, climb.findings)),
        ladder=tuple(map(_describe_rung, climb.rungs)),
    )


def build_failure(subject: Subject, finding: Finding) -> Record:
    """Return the record of an export that was refused before the first rung."""
    return Record(
        format=RECORD_FORMAT,
        subject=describe_subject(subject, UNKNOWN_SUBJECT),
        versions=read_versions(),
        verdict="failed",
        route=None,
        remedies=(),
        findings=(describe_finding(finding),),
        ladder=(),
    )


def describe_subject(subject: Subject, sha256: str, outputs: tuple[str, ...] = ()) -> SubjectRecord:
    model = type(subject.model)
    return SubjectRecord(
        name=subject.name,
        class_name=f"{model.__module__}.{model.__qualname__}",
        sha256=sha256,
        inputs=tuple(str(spec) for spec in subject.spec),
        outputs=tuple(outputs),
        domain={
            dim.name: DimRecord(low=dim.low, high=dim.high, multiple=dim.multiple, declared=dim.declared)
            for dim in subject.domain.dims
        },
        example=dict(subject.example),
        patches=tuple(getattr(patch, "__qualname__", str(patch)) for patch in subject.patches),
        translations=tuple(str(operator) for operator in subject.translations),
    )


def _describe_remedy(name: str, note: str) -> RemedyRecord:
    remedy = CATALOGUE[name]
    return RemedyRecord(name=name, note=note, cures=remedy.cures, title=remedy.title, safety=remedy.safety)


def _describe_weights(stored: WeightStorage) -> WeightsRecord:
    """Return the storage of the weights, with the names of the first ones that are in no checkpoint unchanged."""
    return WeightsRecord(
        mode=stored.mode,
        linked=WeightCount(tensors=stored.linked, bytes=stored.linked_bytes),
        beside=WeightCount(
            tensors=len(stored.beside), bytes=stored.beside_bytes, names=tuple(stored.beside[:MAX_WEIGHT_NAMES])
        ),
        computed_in="float32, from 16-bit weights" if stored.wide else "their own dtypes",
    )


def _describe_piece(piece: Piece) -> PieceRecord:
    return PieceRecord(
        region=piece.region,
        captured_at=dict(piece.point),
        guards=tuple(piece.guards),
        points=piece.points,
        counted="all points" if piece.complete else "a part of the points",
    )


def _describe_rung(rung: Rung) -> RungRecord:
    evidence = rung.evidence
    return RungRecord(
        route=rung.step.name,
        verdict=rung.verdict,
        seconds=round(rung.seconds, 2),
        export_seconds=round(rung.export_seconds, 2),
        evidence=_explain_cost(rung),
        samples=None if evidence is None else (evidence.points_right, len(evidence.tested)),
        peak_mb=rung.peak_bytes // 2**20,
        remedies=tuple(name for name, _ in rung.remedies),
        refused=tuple(RefusalRecord(remedy=name, reason=reason) for name, reason in rung.refused),
        findings=tuple(
            RungFindingRecord(code=finding.code, seen=finding.seen, where=str(finding.where) if finding.where else None)
            for finding in rung.findings
        ),
    )


def _explain_cost(rung: Rung) -> str | None:
    """Return why evidence cost more than the export, if it did."""
    evidence = rung.evidence
    if evidence is None or evidence.seconds <= rung.export_seconds:
        return None
    parts = ", ".join(f"{seconds:.1f} s in {what}" for what, seconds in evidence.spent.items())
    largest = max((trial.point for trial in evidence.tested), key=lambda point: prod(point.values()), default={})
    return (
        f"{evidence.seconds:.1f} s, more than the export's {rung.export_seconds:.1f} s: {len(evidence.tested)} samples "
        f"up to {describe_point(largest)}; {parts}"
    )
