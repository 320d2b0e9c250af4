"""Paths of records, and the hashes and versions that they state."""

from __future__ import annotations

import hashlib
import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import blake3

from fairway.diagnostics.extras import DISTRIBUTION

if TYPE_CHECKING:
    import torch

LARGE_CHECKPOINT_BYTES = 64 * 2**20
"""A tensor in a larger checkpoint is identified by its place in it."""
METADATA_KEY = "fairway"
"""The key of the short record in the metadata of the ONNX file."""

PACKAGES = ("fairway", "torch", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "transformers", "numpy")


def get_record_path(path: Path) -> Path:
    """Return the path of the record beside a model file or a folder."""
    return path.with_name(path.name + ".json") if path.suffix != ".onnx" else path.with_suffix(".fairway.json")


def read_versions() -> dict[str, str]:
    """Return the installed versions that a record names."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(DISTRIBUTION if package == "fairway" else package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def hash_model(model: torch.nn.Module) -> str:
    """Return a hash over the class, and the names, shapes and values of all parameters and buffers."""
    from fairway.model.weight_hash import hash_weights

    return hash_weights(model, LARGE_CHECKPOINT_BYTES, lambda path: hash_checkpoint(Path(path)))


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_file_cached(path: Path) -> str:
    """Return the sha256 of a file. It is computed again only if the file has changed."""
    return _hash_by_stamp("sha256", *_read_stamp(path))


def hash_checkpoint(path: Path) -> str:
    """Return the BLAKE3 of a checkpoint. It is computed again only if the file has changed.

    A checkpoint is hashed at every export and before every use of a linked file. SHA-256 takes more than twice as long,
    and far longer on a CPU without instructions for it.
    """
    return _hash_by_stamp("blake3", *_read_stamp(path))


def _read_stamp(path: Path) -> tuple[str, int, int]:
    now = os.stat(path)
    return os.path.realpath(path), now.st_mtime_ns, now.st_size


@cache
def _hash_by_stamp(kind: str, path: str, changed_at: int, size: int) -> str:
    with open(path, "rb") as file:
        if kind == "blake3":
            digest = hashlib.file_digest(file, blake3.blake3)  # type: ignore[arg-type] # the stub of blake3 lacks `name`
            return digest.hexdigest()
        return hashlib.file_digest(file, kind).hexdigest()
