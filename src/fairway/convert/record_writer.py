"""Write the record of an export: everything known of a file, as plain data for JSON."""

from __future__ import annotations

import os
import platform
from math import prod
from typing import TYPE_CHECKING, Any

from fairway.convert.remedies.catalogue import CATALOGUE
from fairway.model.dims import show
from fairway.record.files import FORMAT, hash_model, versions

if TYPE_CHECKING:
    from fairway.convert.ladder.climb import Climb, Rung, Settings
    from fairway.model.subject import Subject
    from fairway.model.weight_storage import WeightStorage


def write_record(subject: Subject, settings: Settings, climb: Climb) -> dict[str, Any]:
    """The whole story, ready for JSON."""
    best = climb.best
    return {
        "format": FORMAT,
        "subject": {
            "name": subject.name,
            "class": f"{type(subject.model).__module__}.{type(subject.model).__qualname__}",
            "sha256": hash_model(subject.model),
            "inputs": [str(s) for s in subject.spec],
            "outputs": list(best.captured.output_names if best and best.captured else climb.preflight.output_names),
            "domain": subject.domain.as_dict(),
            "example": dict(subject.example),
            "patches": [getattr(p, "__qualname__", str(p)) for p in subject.patches],
            "translations": [str(operator) for operator in subject.translations],
        },
        "versions": versions(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "settings": {
            "level": settings.level,
            "opset": settings.opset,
            "remedies": settings.remedies,
            "routes": list(settings.routes),
        },
        "verdict": climb.verdict,
        "route": None if best is None else best.route.name,
        "remedies": [] if best is None else [_remedy(name, note) for name, note in best.remedies],
        "rewritten": [] if best is None or best.captured is None else list(best.captured.rewritten),
        "weights": None if best is None or best.captured is None else _weights(best.captured.stored),
        "blocks": [] if best is None else [vars(repeat) for repeat in best.step.repeats],
        "pieces": [] if best is None or best.captured is None else [one.as_dict() for one in best.captured.pieces],
        "evidence": None if best is None or best.evidence is None else best.evidence.as_dict(),
        "findings": [f.as_dict() for f in climb.findings],
        "ladder": [_rung(r) for r in climb.rungs],
    }


def _remedy(name: str, note: str) -> dict[str, Any]:
    known = CATALOGUE[name]
    return {"name": name, "note": note, "cures": known.cures, "title": known.title, "safety": known.safety}


def _rung(rung: Rung) -> dict[str, Any]:
    return {
        "route": rung.step.name,
        "verdict": rung.verdict,
        "seconds": round(rung.seconds, 2),
        "export_seconds": round(rung.export_seconds, 2),
        "evidence": _cost(rung),
        "samples": None if rung.evidence is None else [rung.evidence.points_right, len(rung.evidence.tested)],
        "peak_mb": rung.peak_bytes // 2**20,
        "remedies": [name for name, _ in rung.remedies],
        "refused": [{"remedy": name, "reason": why} for name, why in rung.refused],
        "findings": [
            {"code": f.code, "seen": f.seen, "where": str(f.where) if f.where else None} for f in rung.findings
        ],
    }


def _weights(stored: WeightStorage) -> dict[str, Any]:
    """Where they lie; of those that lie in no checkpoint as they are, the names of the first."""
    return {
        "mode": stored.mode,
        "linked": {"tensors": stored.linked, "bytes": stored.linked_bytes},
        "beside": {"tensors": len(stored.beside), "bytes": stored.beside_bytes, "names": list(stored.beside[:20])},
        "computed_in": "float32, from 16-bit weights" if stored.wide else "their own dtypes",
    }


def _cost(rung: Rung) -> str | None:
    """Evidence that cost more than the export is explained."""
    evidence = rung.evidence
    if evidence is None or evidence.seconds <= rung.export_seconds:
        return None
    parts = ", ".join(f"{seconds:.1f} s in {what}" for what, seconds in evidence.spent.items())
    largest = max((t.point for t in evidence.tested), key=lambda p: prod(p.values()), default={})
    return (
        f"{evidence.seconds:.1f} s, more than the export's {rung.export_seconds:.1f} s: {len(evidence.tested)} samples "
        f"up to {show(largest)}; {parts}"
    )
