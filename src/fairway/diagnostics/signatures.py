"""The words by which known failures are recognised, live and in pasted logs. The first that fits is meant.

Each pattern starts with words of its own and never looks further than a few hundred characters, so that the time to
search a text grows with its length and no faster, whatever the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class ErrorSignature:
    """A failure's code, the exceptions that mean it whatever they say, and the words that mean it in any exception."""

    code: str
    words: re.Pattern[str] | None = None
    kinds: tuple[str, ...] = ()

    def found(self, kind: str, text: str) -> re.Match[str] | bool | None:
        return kind in self.kinds or (self.words.search(text) if self.words else None)


EXPORTERS = (
    ErrorSignature("FW218", re.compile(r"cause the trace to be incorrect"), ("TracerWarning",)),
    ErrorSignature("FW009", re.compile(r"No space left on device|\[Errno 28\]")),
    ErrorSignature("FW306", kinds=("OpsetNotHonoured",)),
    ErrorSignature("FW328", kinds=("Unlike",)),
    ErrorSignature(
        "FW304",
        re.compile(
            r"No decompositions? registered for (?:the .{0,200}?)?['\"]?(?P<a>[\w.:]{1,200})|"
            r"No ONNX function found for <OpOverload\(op='(?P<b>[^']{1,200})'|"
            r"Exporting the operator '(?P<c>[^']{1,200})'"
        ),
    ),
    ErrorSignature("FW307", re.compile(r"torch\.jit\.frontend"), ("NotSupportedError", "UnsupportedNodeError")),
    ErrorSignature(
        "FW303",
        re.compile(
            r"GuardOnDataDependentSymNode|Could not guard on data-dependent|Could not extract specialized|"
            r"DataDependent|data.dependent|_local_scalar_dense"
        ),
    ),
    ErrorSignature(
        "FW302",
        re.compile(
            r"ConstraintViolation|specialized|Constraints violated|not all values of|marked .{0,100}? as dynamic"
        ),
    ),
    ErrorSignature("FW305", kinds=("TranslationError", "ConversionError", "OnnxExporterError")),
    ErrorSignature("FW307", re.compile(r"scripted|torch\.jit\.script|Arguments for call|has no attribute or method")),
)
"""What exporters say, in the order in which it is asked."""

OTHERS = (
    ErrorSignature("FW212", re.compile(r"mat1 and mat2 shapes cannot be multiplied")),
    ErrorSignature("FW107", re.compile(r"Weights only load failed")),
    ErrorSignature("FW110", re.compile(r"INVALID_PROTOBUF|Error parsing message with type 'onnx\.ModelProto'")),
    ErrorSignature("FW407", re.compile(r"INVALID_GRAPH|This is an invalid model")),
    ErrorSignature("FW408", re.compile(r"Non-zero status code returned while running")),
    ErrorSignature("FW301", kinds=("TorchExportError",)),
)
"""What PyTorch and ONNX Runtime say; live, Fairway knows these before an exporter is asked. FW301 is the wrapper that
torch.onnx puts around whatever torch.export said, and comes last."""

ANYWHERE = (
    ErrorSignature("FW218", re.compile(r"cause the trace to be incorrect")),
    ErrorSignature("FW212", re.compile(r"mat1 and mat2 shapes cannot be multiplied")),
    ErrorSignature("FW303", re.compile(r"GuardOnDataDependentSymNode|Could not guard on data-dependent expression")),
    ErrorSignature("FW304", re.compile(r"No ONNX function found for <OpOverload|Exporting the operator 'aten::")),
    ErrorSignature("FW107", re.compile(r"Weights only load failed")),
)
"""Words that mean their finding also where no exception is named beside them, as in a sentence somebody wrote."""


def recognise(kind: str, text: str, among: tuple[ErrorSignature, ...] = EXPORTERS) -> tuple[str, str | None] | None:
    """The code of the first signature that fits an exception, and the operator where one is named."""
    for signature in among:
        found = signature.found(kind, text)
        if isinstance(found, re.Match):
            return signature.code, next((g for g in found.groups() if g), None)
        if found:
            return signature.code, None
    return None
