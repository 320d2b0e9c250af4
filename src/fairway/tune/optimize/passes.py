"""The passes that are tried, in one table. Each reads a file and writes another; none is trusted.

ONNX Runtime's `extended` level and its transformer fusions write operators that no other engine knows.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairway.model.ort_session import SessionSettings, open_session


@dataclass(frozen=True)
class Pass:
    """One optimizer with one setting."""

    name: str
    description: str
    apply: Callable[[Path, Path], None]
    package: str | None = None
    """The package that it needs in addition to a plain install."""

    @property
    def missing_package(self) -> str | None:
        """The package that has to be installed first, or None."""
        return self.package if self.package is not None and importlib.util.find_spec(self.package) is None else None


def _run_onnxscript(source: Path, target: Path) -> None:
    import onnx_ir as ir
    from onnxscript import optimizer

    model = ir.load(source)
    optimizer.optimize(model)
    ir.save(model, target)


def _run_onnxslim(source: Path, target: Path) -> None:
    import onnxslim

    onnxslim.slim(str(source), str(target), save_as_external_data=_has_external_data(source))


def _run_transformer_fusions(source: Path, target: Path) -> None:
    """Apply the fusions that need only patterns; most encoders have those of BERT."""
    from onnxruntime.transformers.optimizer import optimize_model

    fused = optimize_model(str(source), model_type="bert", opt_level=0, use_gpu=False)
    fused.save_model_to_file(str(target), use_external_data_format=_has_external_data(source))


def _make_ort_pass(level: str) -> Callable[[Path, Path], None]:
    def apply(source: Path, target: Path) -> None:
        key = "session.optimized_model_external_initializers_file_name"
        entries = {key: f"{target.name}.raw"} if _has_external_data(source) else {}
        open_session(source, SessionSettings(None, level, str(target), config_entries=entries))

    return apply


def _has_external_data(source: Path) -> bool:
    """Return whether the weights are in a separate file; then they are too large to be moved into the model."""
    return source.with_name(f"{source.name}.data").exists()


PASSES = (
    Pass("onnxscript", "onnxscript's optimizer: constants folded, patterns rewritten", _run_onnxscript),
    Pass("onnxslim", "onnxslim", _run_onnxslim, "onnxslim"),
    Pass("ort-transformer", "ONNX Runtime's transformer fusions", _run_transformer_fusions),
    Pass("ort-basic", "ONNX Runtime's offline optimization, basic", _make_ort_pass("ORT_ENABLE_BASIC")),
    Pass("ort-extended", "ONNX Runtime's offline optimization, extended", _make_ort_pass("ORT_ENABLE_EXTENDED")),
)
"""In the order in which they are tried, each on top of the passes kept before it."""
