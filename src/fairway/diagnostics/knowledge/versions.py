"""Package versions named in a log, and their comparison."""

from __future__ import annotations

import re

_NAMES = {
    "pytorch": "torch",
    "torch.onnx.export": "torch",
    "onnxruntime-gpu": "onnxruntime",
    "onnx runtime": "onnxruntime",
}
_VERSION = re.compile(
    r"(?<![\w./\\-])"
    r"(?P<name>(?:py)?torch|torch\.onnx\.export|onnxscript|onnx ?runtime(?:-gpu)?|onnx|transformers|optimum)"
    r"(?:`|\*\*|\])?(?:[ \t]{1,3}version)?[ \t]{0,20}[:=@|-]{0,2}[ \t]{0,20}[`v]?"
    r"(?P<version>\d{1,4}\.\d{1,5}(?:\.\d{1,5})?)",
    re.IGNORECASE,
)


def find_versions(text: str) -> dict[str, str]:
    """Return the last version named for each package: `torch 2.1`, `torch==2.1.0`, `PyTorch version: 2.1`."""
    versions: dict[str, str] = {}
    for match in _VERSION.finditer(text):
        name = match["name"].lower()
        versions[_NAMES.get(name, name)] = match["version"]
    return versions


def is_at_least(version: str, other: str) -> bool:
    """Return whether a version equals another or is later. Missing parts count as 0."""
    return _split_version(version) >= _split_version(other)


def _split_version(version: str) -> tuple[int, ...]:
    parts = [int(part) for part in version.split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
