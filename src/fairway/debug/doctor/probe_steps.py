"""The tools that a model meets on its way, and what one of them did to one probe. Needs no torch."""

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
    """One tool at work on one probe: what went wrong, or nothing."""

    probe: str
    tool: str
    way: str
    """The exporter whose way it was on."""
    problem: str = ""
