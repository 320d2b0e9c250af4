"""The versions that a log names, and whether one is as new as another."""

from __future__ import annotations

import re

_NAMES = {
    "pytorch": "torch",
    "torch.onnx.export": "torch",
    "onnxruntime-gpu": "onnxruntime",
    "onnx runtime": "onnxruntime",
}
_SAID = re.compile(
    r"(?<![\w./\\-])"
    r"(?P<name>(?:py)?torch|torch\.onnx\.export|onnxscript|onnx ?runtime(?:-gpu)?|onnx|transformers|optimum)"
    r"(?:`|\*\*|\])?(?:[ \t]{1,3}version)?[ \t]{0,20}[:=@|-]{0,2}[ \t]{0,20}[`v]?"
    r"(?P<version>\d{1,4}\.\d{1,5}(?:\.\d{1,5})?)",
    re.IGNORECASE,
)


def versions_in(text: str) -> dict[str, str]:
    """The last version that the text gives for each package: `torch 2.1`, `torch==2.1.0`, `PyTorch version: 2.1`."""
    found: dict[str, str] = {}
    for said in _SAID.finditer(text):
        name = said["name"].lower()
        found[_NAMES.get(name, name)] = said["version"]
    return found


def as_new_as(version: str, other: str) -> bool:
    """Whether a version is another or later; missing parts count as 0."""
    return _parts(version) >= _parts(other)


def _parts(version: str) -> tuple[int, ...]:
    parts = [int(part) for part in version.split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
