"""Error signatures: known failures are recognized by them, in a running export and in logs. The first match counts.

Each pattern starts with fixed words and spans at most a few hundred characters, so that the search time grows only
linearly with the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fairway.diagnostics.code_names import Code


@dataclass(frozen=True)
class ErrorSignature:
    """The code of a failure, the exceptions that always mean it, and a pattern that means it in any exception."""

    code: str
    words: re.Pattern[str] | None = None
    kinds: tuple[str, ...] = ()

    def match(self, kind: str, text: str) -> re.Match[str] | bool | None:
        return kind in self.kinds or (self.words.search(text) if self.words else None)


EXPORTER_SIGNATURES = (
    ErrorSignature(Code.FROZEN_BY_THE_TRACE, re.compile(r"cause the trace to be incorrect"), ("TracerWarning",)),
    ErrorSignature(Code.CANNOT_WRITE, re.compile(r"No space left on device|\[Errno 28\]")),
    ErrorSignature(Code.OPSET_NOT_HONORED, kinds=("OpsetNotHonoured",)),
    ErrorSignature(Code.BLOCKS_DIFFER, kinds=("BlocksDiffer",)),
    ErrorSignature(
        Code.NO_TRANSLATION,
        re.compile(
            r"No ONNX function found for <OpOverload\(op='(?P<operator>[^']{1,200})'|"
            r"No ONNX function found for <?(?:built-in )?(?:function |method )?(?P<function>[\w.]{1,200})|"
            r"Exporting the operator '(?P<traced>[^']{1,200})'|"
            # torch's message ends with "the real-valued input" or "the complex-valued input".
            r"No decompositions? registered for (?:the \w{1,20}-valued input|['\"]?(?P<plain>[\w.:]{1,200}))"
        ),
    ),
    ErrorSignature(
        Code.NOT_SCRIPTABLE, re.compile(r"torch\.jit\.frontend"), ("NotSupportedError", "UnsupportedNodeError")
    ),
    ErrorSignature(
        Code.DATA_DEPENDENT,
        re.compile(
            r"GuardOnDataDependentSymNode|Could not guard on data-dependent|Could not extract specialized|"
            r"DataDependent|data.dependent|_local_scalar_dense"
        ),
    ),
    ErrorSignature(
        Code.DIM_SPECIALIZED,
        re.compile(
            r"ConstraintViolation|specialized|Constraints violated|not all values of|marked .{0,100}? as dynamic"
        ),
    ),
    ErrorSignature(Code.TRANSLATION_FAILED, kinds=("TranslationError", "ConversionError", "OnnxExporterError")),
    ErrorSignature(
        Code.NOT_SCRIPTABLE, re.compile(r"scripted|torch\.jit\.script|Arguments for call|has no attribute or method")
    ),
)
"""Errors of exporters, in the order in which they are tried."""

RUNTIME_SIGNATURES = (
    ErrorSignature(Code.LAYER_SIZES_DISAGREE, re.compile(r"mat1 and mat2 shapes cannot be multiplied")),
    ErrorSignature(Code.CHECKPOINT_RUNS_CODE, re.compile(r"Weights only load failed")),
    ErrorSignature(Code.NOT_ONNX, re.compile(r"INVALID_PROTOBUF|Error parsing message with type 'onnx\.ModelProto'")),
    ErrorSignature(Code.RUNTIME_REFUSES, re.compile(r"INVALID_GRAPH|This is an invalid model")),
    ErrorSignature(Code.RUNTIME_FAILS, re.compile(r"Non-zero status code returned while running")),
    ErrorSignature(Code.CAPTURE_FAILED, kinds=("TorchExportError",)),
)
"""Errors of PyTorch and ONNX Runtime. In an export, Fairway finds these before an exporter runs. FW301 is the wrapper
that torch.onnx puts around any error of torch.export, so it comes last."""

PROSE_SIGNATURES = (
    ErrorSignature(Code.FROZEN_BY_THE_TRACE, re.compile(r"cause the trace to be incorrect")),
    ErrorSignature(Code.LAYER_SIZES_DISAGREE, re.compile(r"mat1 and mat2 shapes cannot be multiplied")),
    ErrorSignature(
        Code.DATA_DEPENDENT, re.compile(r"GuardOnDataDependentSymNode|Could not guard on data-dependent expression")
    ),
    ErrorSignature(
        Code.NO_TRANSLATION, re.compile(r"No ONNX function found for <OpOverload|Exporting the operator 'aten::")
    ),
    ErrorSignature(Code.CHECKPOINT_RUNS_CODE, re.compile(r"Weights only load failed")),
)
"""Patterns that mean their finding even without the name of an exception, as in a sentence of a bug report."""


def recognize_error(
    kind: str, text: str, among: tuple[ErrorSignature, ...] = EXPORTER_SIGNATURES
) -> tuple[str, str | None] | None:
    """Return the code of the first signature that matches an exception, and the operator if one is named."""
    for signature in among:
        match = signature.match(kind, text)
        if isinstance(match, re.Match):
            return signature.code, next((g for g in match.groups() if g), None)
        if match:
            return signature.code, None
    return None
