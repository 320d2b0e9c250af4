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
    exporter: str
    """The exporter that the probe went through."""
    problem: str = ""
