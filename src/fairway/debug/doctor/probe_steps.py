"""The tools that a model passes through, and the result of one of them for one probe. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

PYTORCH, CAPTURE, DYNAMO, TORCHSCRIPT, CHECKER, ORT = (
    "PyTorch",
    "torch.export",
    "dynamo",
    "TorchScript",
    "checker",
    "onnxruntime",
)


@dataclass(frozen=True)
class ProbeStep:
    """One tool's work on one probe; the problem is empty if it worked."""

    probe: str
    tool: str
    way: str
    """The exporter on whose path the step was."""
    problem: str = ""
