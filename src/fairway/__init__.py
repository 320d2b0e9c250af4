"""Fairway takes a PyTorch model to ONNX and shows that it arrived intact.

The names are loaded on first use, so that `import fairway` in a recipe, and `fairway --help`, need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairway.telemetry import switch_off

if TYPE_CHECKING:
    from fairway.convert.export import export, verify
    from fairway.convert.generation.export_generator import export_generation
    from fairway.convert.generation.generation_result import GenerationResult
    from fairway.convert.result import Result
    from fairway.diagnostics import Finding
    from fairway.diagnostics.errors import UserError
    from fairway.judge.evidence import Evidence
    from fairway.model.recipe import Recipe

switch_off()

__version__ = "0.1.0"

__all__ = [
    "Evidence",
    "Finding",
    "GenerationResult",
    "Recipe",
    "Result",
    "UserError",
    "export",
    "export_generation",
    "verify",
]

_HOMES = {
    "Evidence": "fairway.judge.evidence",
    "Finding": "fairway.diagnostics",
    "GenerationResult": "fairway.convert.generation.generation_result",
    "Recipe": "fairway.model.recipe",
    "Result": "fairway.convert.result",
    "UserError": "fairway.diagnostics.errors",
    "export": "fairway.convert.export",
    "export_generation": "fairway.convert.generation.export_generator",
    "verify": "fairway.convert.export",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fairway' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
