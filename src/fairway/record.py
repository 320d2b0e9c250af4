"""The record: everything known of a file, as JSON beside it and, in short, inside it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from functools import cache
from importlib import metadata
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import blake3

from fairway.subject.dims import show

if TYPE_CHECKING:
    import torch

    from fairway.ladder.climb import Climb, Rung, Settings
    from fairway.subject.subject import Subject
    from fairway.weights.store import Stored

FORMAT = 1
LARGE = 64 * 2**20
"""Bytes of a checkpoint whose tensors are known by their places in it."""
INSIDE = "fairway"
"""The key of the short record in the file's metadata."""

PACKAGES = ("fairway", "torch", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "transformers", "numpy")


def record_path(path: Path) -> Path:
    return path.with_name(path.name + ".json") if path.suffix != ".onnx" else path.with_suffix(".fairway.json")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def hash_model(model: torch.nn.Module) -> str:
    """A fingerprint of class, names, shapes and values of every parameter and buffer."""
    from fairway.weights.held import hash_held

    return hash_held(model, LARGE, lambda path: hash_checkpoint(Path(path)))


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_once(path: Path) -> str:
    """The file's hash, computed again only where the file has changed."""
    return _hash_of("sha256", *_stamp(path))


def hash_checkpoint(path: Path) -> str:
    """Of a checkpoint its BLAKE3, likewise: it is read whole for every export and before every use of a linked file,
    and SHA-256 takes more than twice as long, or far more where the CPU has no instructions for it."""
    return _hash_of("blake3", *_stamp(path))


def _stamp(path: Path) -> tuple[str, int, int]:
    now = os.stat(path)
    return os.path.realpath(path), now.st_mtime_ns, now.st_size


@cache
def _hash_of(kind: str, path: str, changed: int, size: int) -> str:
    with open(path, "rb") as file:
        by: Any = blake3.blake3 if kind == "blake3" else kind
        return hashlib.file_digest(file, by).hexdigest()


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
    from fairway.remedies.catalogue import CATALOGUE

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


def _weights(stored: Stored) -> dict[str, Any]:
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


def short(record: dict[str, Any]) -> str:
    """What goes into the file's own metadata: enough to know what was proven, without paths of this machine."""
    evidence = record["evidence"] or {}
    kept = {
        "format": FORMAT,
        "verdict": record["verdict"],
        "route": record["route"],
        "remedies": [r["name"] for r in record["remedies"]],
        "domain": record["subject"]["domain"],
        "subject_sha256": record["subject"]["sha256"],
        "level": evidence.get("level"),
        "points": len(evidence.get("tested", ())),
        "versions": record["versions"],
    }
    if record.get("quantised"):
        told = ("said", "from", "scheme", "cpu", "arithmetic")
        kept["quantised"] = {key: record["quantised"].get(key) for key in told}
    return json.dumps(kept, sort_keys=True)
