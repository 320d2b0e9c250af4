"""Report models whose results change with PyTorch's inference fast path for attention."""

from __future__ import annotations

import torch

from fairway.diagnostics import Code, Finding
from fairway.judge.runtimes.eager import run_eager
from fairway.model.dims import Point, describe_point
from fairway.model.subject import Subject

FAST_LAYERS = (torch.nn.TransformerEncoder, torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention)
SEEDS = (1, 2, 3, 4)
"""Samples to try: padding may be on either side, and the fast path packs rows only if it is on the right."""
ROUNDING_SHARE = 1e-2
"""The share of an output's largest value up to which a difference may be rounding."""


def check_fast_path(subject: Subject, point: Point) -> list[Finding]:
    """Run the model as its users do, with the fast path, which workers switch off.

    If a mask pads on the right, `nn.TransformerEncoder` then writes zeros into padded rows, and may return fewer rows.
    """
    if not any(isinstance(module, FAST_LAYERS) for module in subject.model.modules()):
        return []
    for seed in SEEDS:
        tensors = subject.make(point, seed, "normal")
        try:
            differing = _compare_paths(subject, tensors)
        except Exception:
            return []  # the documented path is the reference, and the evidence runs it
        if differing:
            seen = f"output {', '.join(map(str, differing))} at {describe_point(point)} (seed {seed})"
            return [Finding(Code.FAST_PATH_DIFFERS, seen)]
    return []


def _compare_paths(subject: Subject, tensors: list[torch.Tensor]) -> list[int]:
    """Return the indices of the outputs that differ between the two paths."""
    outputs = run_eager(subject, tensors)
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(True)
    try:
        others = run_eager(subject, tensors)
    finally:
        torch.backends.mha.set_fastpath_enabled(was_enabled)
    return [index for index, pair in enumerate(zip(outputs, others, strict=True)) if _is_different(*pair)]


def _is_different(output: torch.Tensor, other: torch.Tensor) -> bool:
    if output.shape != other.shape:
        return True
    if not output.is_floating_point() or output.numel() == 0:
        return False
    both = torch.isfinite(output) & torch.isfinite(other)
    largest = torch.where(both, output.abs(), torch.zeros_like(output)).max()
    difference = torch.where(both, (output - other).abs(), torch.zeros_like(output)).max()
    return bool(difference > ROUNDING_SHARE * largest)
