"""The passes that are tried, one flat table. Each reads a file and writes another; none is trusted.

What ONNX Runtime writes as `extended` and the transformer fusions holds operators of its own, which no other engine
knows. That is said where such a pass is kept.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pass:
    """One optimiser with one setting."""

    name: str
    about: str
    apply: Callable[[Path, Path], None]
    package: str | None = None
    """What it needs besides a plain install."""

    @property
    def missing(self) -> str | None:
        return self.package if self.package is not None and importlib.util.find_spec(self.package) is None else None


def _onnxscript(source: Path, target: Path) -> None:
    import onnx_ir as ir
    from onnxscript import optimizer

    model = ir.load(source)
    optimizer.optimize(model)
    ir.save(model, target)


def _onnxslim(source: Path, target: Path) -> None:
    import onnxslim

    onnxslim.slim(str(source), str(target), save_as_external_data=_beside(source))


def _transformer(source: Path, target: Path) -> None:
    """The fusions that go by patterns alone; BERT's are those that most encoders have."""
    from onnxruntime.transformers.optimizer import optimize_model

    fused = optimize_model(str(source), model_type="bert", opt_level=0, use_gpu=False)
    fused.save_model_to_file(str(target), use_external_data_format=_beside(source))


def _ort(level: str) -> Callable[[Path, Path], None]:
    def apply(source: Path, target: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.optimized_model_filepath = str(target)
        if _beside(source):
            key = "session.optimized_model_external_initializers_file_name"
            options.add_session_config_entry(key, f"{target.name}.raw")
        onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])

    return apply


def _beside(source: Path) -> bool:
    """Whether weights lie beside the file; then they are too large to be put into it on the way."""
    return source.with_name(f"{source.name}.data").exists()


PASSES = (
    Pass("onnxscript", "onnxscript's optimiser: constants folded, patterns rewritten", _onnxscript),
    Pass("onnxslim", "onnxslim", _onnxslim, "onnxslim"),
    Pass("ort-transformer", "ONNX Runtime's transformer fusions", _transformer),
    Pass("ort-basic", "ONNX Runtime's offline optimisation, basic", _ort("ORT_ENABLE_BASIC")),
    Pass("ort-extended", "ONNX Runtime's offline optimisation, extended", _ort("ORT_ENABLE_EXTENDED")),
)
"""In the order in which they are tried, each on top of what was kept before it."""
