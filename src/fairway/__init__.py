"""Fairway takes a PyTorch model to ONNX and shows that it arrived intact.

The names are loaded on first use, so that `import fairway` in a recipe, and `fairway --help`, need no torch.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from fairway.diagnostics.telemetry import disable_telemetry

if TYPE_CHECKING:
    from fairway.api import (
        bench,
        export,
        export_generation,
        locate,
        optimize,
        publish,
        pull,
        quantize,
        reduce,
        run,
        sensitivity,
        serve,
        verify,
    )
    from fairway.convert.generation.generation_result import GenerationResult
    from fairway.convert.result import Result
    from fairway.diagnostics import Finding
    from fairway.diagnostics.errors import UserError
    from fairway.judge.evidence import Evidence
    from fairway.model.observe import ObservedCalls, observe
    from fairway.model.recipe import Recipe

if sys.platform != "linux":
    raise ImportError(f"fairway runs on Linux only; this is {sys.platform}. Use a container or WSL.")

disable_telemetry()

__version__ = "0.1.0"

__all__ = [
    "Evidence",
    "Finding",
    "GenerationResult",
    "ObservedCalls",
    "Recipe",
    "Result",
    "UserError",
    "bench",
    "export",
    "export_generation",
    "locate",
    "observe",
    "optimize",
    "publish",
    "pull",
    "quantize",
    "reduce",
    "run",
    "sensitivity",
    "serve",
    "verify",
]

_MODULES = {
    "Evidence": "fairway.judge.evidence",
    "Finding": "fairway.diagnostics",
    "GenerationResult": "fairway.convert.generation.generation_result",
    "ObservedCalls": "fairway.model.observe",
    "Recipe": "fairway.model.recipe",
    "Result": "fairway.convert.result",
    "UserError": "fairway.diagnostics.errors",
    "bench": "fairway.api",
    "export": "fairway.api",
    "export_generation": "fairway.api",
    "locate": "fairway.api",
    "observe": "fairway.model.observe",
    "optimize": "fairway.api",
    "publish": "fairway.api",
    "pull": "fairway.api",
    "quantize": "fairway.api",
    "reduce": "fairway.api",
    "run": "fairway.api",
    "sensitivity": "fairway.api",
    "serve": "fairway.api",
    "verify": "fairway.api",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'fairway' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
