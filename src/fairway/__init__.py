"""Fairway takes a PyTorch model to ONNX and shows that it arrived intact.

The names are loaded on first use, so that `import fairway` in a recipe, and `fairway --help`, need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairway.telemetry import switch_off

if TYPE_CHECKING:
    from fairway.errors import UserError
    from fairway.evidence.evidence import Evidence
    from fairway.exporting import export, verify
    from fairway.findings import Finding
    from fairway.generation.export import export_generation
    from fairway.generation.result import GenerationResult
    from fairway.result import Result
    from fairway.subject.recipe import Recipe

switch_off()

__version__ = "0.1.0"

__all__ = [
    "Evidence", "Finding", "GenerationResult", "Recipe", "Result", "UserError", "export", "export_generation", "verify",
]  # fmt: skip

_HOMES = {
    "Evidence": "fairway.evidence.evidence",
    "Finding": "fairway.findings",
    "GenerationResult": "fairway.generation.result",
    "Recipe": "fairway.subject.recipe",
    "Result": "fairway.result",
    "UserError": "fairway.errors",
    "export": "fairway.exporting",
    "export_generation": "fairway.generation.export",
    "verify": "fairway.exporting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fairway' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
