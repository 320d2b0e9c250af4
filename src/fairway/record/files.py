"""Where records lie, and the hashes and versions that they state."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import blake3

if TYPE_CHECKING:
    import torch

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
    from fairway.model.weight_hash import hash_held

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
