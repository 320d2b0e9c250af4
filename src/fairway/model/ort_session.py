"""The one place that opens ONNX Runtime sessions. They run on the CPU and do not log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import onnxruntime

OptimizationLevel = Literal["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"]

FATAL_ONLY = 4
"""The severity from which ONNX Runtime logs. It raises its errors too, so logging them would report them twice."""

COPYING_OPTIMIZERS = ("ConstantFolding", "FuseFp16InitializerToFp32NodeTransformer")
"""Optimizations that keep a second copy of weights."""


@dataclass(frozen=True)
class SessionSettings:
    """The options of a session. A default of None leaves the choice to ONNX Runtime."""

    threads: int | None = None
    """Threads that compute one operator; 0 means one for each core. Operators always run one after the other."""
    optimization_level: str | None = None
    """One of `OptimizationLevel`."""
    optimized_model_path: str | None = None
    """The file to which the optimized model is written when the session opens."""
    profile_prefix: str | None = None
    """The beginning of the path to which a profile is written."""
    is_lean: bool = False
    """Whether weights stay mapped from the file instead of being copied, which makes running slower."""
    config_entries: Mapping[str, str] = field(default_factory=dict)
    """Entries by their ONNX Runtime name, such as `session.intra_op.allow_spinning`."""


def open_session(model: str | Path | bytes, settings: SessionSettings | None = None) -> onnxruntime.InferenceSession:
    """Open a file, or a model's bytes. Raise whatever ONNX Runtime raises."""
    import onnxruntime  # loaded here, because a process that only reads settings needs no runtime

    settings = settings or SessionSettings()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = FATAL_ONLY
    if settings.threads is not None:
        options.intra_op_num_threads = settings.threads
        options.inter_op_num_threads = 1
    if settings.optimization_level is not None:
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, settings.optimization_level)
    if settings.optimized_model_path is not None:
        options.optimized_model_filepath = settings.optimized_model_path
    if settings.profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = settings.profile_prefix
    if settings.is_lean:
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
    for name, value in settings.config_entries.items():
        options.add_session_config_entry(name, value)
    return onnxruntime.InferenceSession(
        model if isinstance(model, bytes) else str(model),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=[*COPYING_OPTIMIZERS] if settings.is_lean else None,
    )
