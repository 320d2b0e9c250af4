"""A file from anywhere, looked at before any runtime may touch it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairway.diagnostics import Finding
from fairway.diagnostics.errors import complain
from fairway.model.memory_check import amount, is_regular, room
from fairway.model.onnx_requirements import check_asks, promised, text

if TYPE_CHECKING:
    from fairway.model.subject import Subject

SUFFIXES = (".onnx", ".pb", "")
"""Other endings make onnx read text or JSON, ONNX Runtime its own format, and OpenVINO another one again."""

LARGEST = 2**31
"""A protobuf message is smaller than 2 GiB."""


@dataclass(frozen=True)
class OnnxValue:
    """A graph input or output as the file declares it. A size is a number, a name, or None."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        sizes = "…" if self.shape is None else ", ".join("?" if s is None else str(s) for s in self.shape)
        return f"{self.name}: {self.dtype}[{sizes}]"


@dataclass(frozen=True)
class OnnxHeader:
    """What a file says of itself, read without its weights."""

    path: Path
    opset: int
    opsets: dict[str, int]
    inputs: tuple[OnnxValue, ...]
    outputs: tuple[OnnxValue, ...]
    nodes: int
    weights: int
    weight_bytes: int
    tensor_bytes: int
    """Of every tensor in the file, wherever it stands; two that share their data count twice, as they do in memory."""
    external: tuple[str, ...]
    metadata: dict[str, str]
    producer: str


def open_header(path: Path) -> OnnxHeader:
    """Reads the structure; refuses what is not ONNX, and what asks for other files or for memory it must not have."""
    return open_file(path)[0]


def open_file(path: Path) -> tuple[OnnxHeader, Any]:
    """As `open_header`, and the structure itself, an onnx.ModelProto whose weights may lie elsewhere."""
    proto = _parse(path)
    try:
        return _describe(path, proto), proto
    except UnicodeDecodeError as error:
        raise complain("FW110", f"{path} holds a name that is no text") from error


def _parse(path: Path) -> Any:
    """The file's structure from its bytes, as a runtime reads them: onnx.load would go by the file's name."""
    import onnx

    if not is_regular(path):
        what = "is a folder" if path.is_dir() else "is no plain file" if os.path.lexists(path) else "does not exist"
        raise complain("FW110", f"{path} {what}")
    if path.suffix not in SUFFIXES:
        todo = ("Name it something.onnx.",)
        raise complain("FW110", f"{path} has another ending than .onnx, by which engines choose how to read", todo=todo)
    size = f"{path} ({path.stat().st_size} bytes)"
    if path.stat().st_size > LARGEST:
        raise complain("FW110", f"{size} is larger than an ONNX file can be; weights beyond 2 GiB lie beside it")
    try:
        proto = onnx.ModelProto.FromString(path.read_bytes())
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise complain("FW110", f"{size} is truncated or no ONNX model: {first}") from error
    if not proto.graph.output or not proto.opset_import:
        raise complain("FW110", f"{size} holds no graph with outputs")
    return proto


def _describe(path: Path, proto: Any) -> OnnxHeader:
    external, tensor_bytes = check_asks(path, proto)
    opsets = {text(o.domain): o.version for o in proto.opset_import}
    weights = {i.name for i in proto.graph.initializer}
    return OnnxHeader(
        path=path,
        opset=opsets.get("", opsets.get("ai.onnx", 0)),
        opsets=opsets,
        inputs=tuple(_value(v) for v in proto.graph.input if v.name not in weights),
        outputs=tuple(_value(v) for v in proto.graph.output),
        nodes=len(proto.graph.node),
        weights=len(proto.graph.initializer),
        weight_bytes=sum(promised(t) for t in proto.graph.initializer),
        tensor_bytes=tensor_bytes,
        external=external,
        metadata={text(p.key): text(p.value) for p in proto.metadata_props},
        producer=f"{text(proto.producer_name)} {text(proto.producer_version)}".strip(),
    )


def _value(value: Any) -> OnnxValue:
    import onnx

    kind = value.type.tensor_type
    known = onnx.TensorProto.DataType.values()
    dtype = onnx.TensorProto.DataType.Name(kind.elem_type).lower() if kind.elem_type in known[1:] else "?"
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    if not kind.HasField("shape"):
        return OnnxValue(text(value.name), dtype, None)
    sizes = tuple(d.dim_value if d.HasField("dim_value") else (text(d.dim_param) or None) for d in kind.shape.dim)
    return OnnxValue(text(value.name), dtype, sizes)


def check_room(header: OnnxHeader) -> None:
    """The weights must fit into memory before an engine is asked to load them."""
    if header.tensor_bytes > room():
        asked = f"its tensors ask for {amount(header.tensor_bytes)}; this machine has {amount(room())}"
        raise complain("FW114", f"{header.path.name}: {asked}")


def check_signature(header: OnnxHeader, subject: Subject) -> None:
    """The file's inputs must be the declared ones, by name, dtype and rank."""
    theirs = {v.name: v for v in header.inputs}
    if set(theirs) != set(subject.input_names):
        takes, declared = ", ".join(theirs) or "nothing", ", ".join(subject.input_names)
        raise complain("FW411", f"the file takes {takes}; declared are {declared}{_renamed(header, subject)}")
    for spec in subject.spec:
        value, ours = theirs[spec.name], spec.in_file
        if value.dtype != ours.dtype or (value.shape is not None and len(value.shape) != len(ours.shape)):
            raise complain("FW411", f"the file has {value}; declared is {spec}")


def _renamed(header: OnnxHeader, subject: Subject) -> str:
    """TorchScript's exporter renames an input whose name an output has too, and says nothing."""
    both = {v.name for v in header.outputs} & set(subject.input_names)
    for value in header.inputs:
        stem = value.name.rpartition(".")[0]
        if stem in both:
            return f". An output has the name {stem}, too; so the exporter renamed the input to {value.name}"
    return ""


def dims_fixed(header: OnnxHeader, subject: Subject) -> list[str]:
    """Axes that the file fixes although they are declared dynamic."""
    theirs = {v.name: v for v in header.inputs}
    found = []
    for spec in subject.spec:
        for axis, size in enumerate(spec.shape):
            shape = theirs[spec.name].shape
            if size.names and shape is not None and isinstance(shape[axis], int):
                found.append(f"{spec.name} axis {axis} ({size}) is fixed at {shape[axis]}")
    return found


def fixed_outputs(header: OnnxHeader, output_axes: Sequence[tuple[bool, ...]]) -> list[Finding]:
    """Outputs declared with a fixed size on an axis that varies; runtimes that believe declarations stumble there."""
    found = []
    for value, axes in zip(header.outputs, output_axes, strict=False):
        for axis, (declared, varies) in enumerate(zip(value.shape or (), axes, strict=False)):
            if varies and isinstance(declared, int):
                found.append(Finding("FW315", f"{value.name} axis {axis} is declared {declared}, but varies"))
    return found
