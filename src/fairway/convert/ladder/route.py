"""Routes: the ways from PyTorch to ONNX, described well enough to repeat them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Capture = Literal["export", "strict", "trace", "script", "file"]
Dims = Literal["dynamic", "named", "auto"]

TRACED: tuple[Capture, ...] = ("trace", "script")
"""The captures that go through TorchScript and `torch.onnx.export(dynamo=False)`."""


@dataclass(frozen=True)
class Route:
    """A way to capture a model, with the form of its dims, the opset and the remedies."""

    capture: Capture
    dims: Dims = "dynamic"
    opset: int | None = None
    remedies: tuple[str, ...] = ()
    pieces: bool = False
    """Whether several captures are joined, each for a region of sizes."""

    @property
    def name(self) -> str:
        """The route's name for `--route`: `export-dynamic`, `strict-auto`, `trace`, `script`, `pieces`."""
        if self.pieces:
            return "pieces"
        return self.capture if self.capture not in ("export", "strict") else f"{self.capture}-{self.dims}"

    @property
    def is_traced(self) -> bool:
        return self.capture in TRACED

    def with_remedies(self, *names: str) -> Route:
        return replace(self, remedies=(*self.remedies, *(n for n in names if n not in self.remedies)))


ROUTES: dict[str, str] = {
    "export-dynamic": "torch.export, non-strict, Dim.DYNAMIC: raises where a dim cannot stay dynamic",
    "export-named": "torch.export, non-strict, named dims with bounds: keeps relations such as 2*time",
    "export-auto": "torch.export, non-strict, Dim.AUTO: lets torch fix what it cannot keep; judged afterwards",
    "strict-dynamic": "torch.export through Dynamo's bytecode analysis, Dim.DYNAMIC",
    "trace": "TorchScript tracer: runs the model once and records; control flow is frozen",
    "pieces": "torch.export at several points, each capture for a region of sizes, joined by If on the sizes",
    "script": "TorchScript compiler inside a trace: control flow of scriptable modules is kept",
}
"""All routes with a description, in their default order."""


def parse_route(name: str, opset: int | None = None) -> Route:
    if name == "pieces":
        return Route("export", "auto", opset, pieces=True)
    capture, _, dims = name.partition("-")
    return Route(capture, dims or "dynamic", opset)  # type: ignore[arg-type]  # checked against ROUTES by the caller
