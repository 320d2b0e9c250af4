"""Reads the header of an ONNX file and checks it before any runtime opens the file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import complain
from fairway.model.memory_check import format_bytes, is_regular_file, read_memory_bytes
from fairway.model.onnx_requirements import check_requirements, count_promised_bytes, decode_text

if TYPE_CHECKING:
    import onnx

    from fairway.model.subject import Subject

SUFFIXES = (".onnx", ".pb", "")
"""With another ending, onnx reads text or JSON, ONNX Runtime its own format, and OpenVINO yet another one."""

MAX_FILE_BYTES = 2**31
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
    """A file's description of itself, read without its weights."""

    path: Path
    opset: int
    opsets: dict[str, int]
    inputs: tuple[OnnxValue, ...]
    outputs: tuple[OnnxValue, ...]
    nodes: int
    weights: int
    weight_bytes: int
    tensor_bytes: int
    """The bytes of every tensor in the file. Two that share their data count twice, as they do in memory."""
    external: tuple[str, ...]
    metadata: dict[str, str]
    producer: str


def open_model(path: Path, subject: Subject | None = None) -> OnnxHeader:
    """Check a file that is about to be loaded, and return its header.

    Refuses what `open_header` refuses, and what does not fit into memory. With a subject, the inputs must be its own.
    """
    header = open_header(path)
    check_memory(header)
    if subject is not None:
        check_signature(header, subject)
    return header


def open_header(path: Path) -> OnnxHeader:
    """Read the structure; refuse files that are not ONNX, or that require files or memory they must not have."""
    return open_structure(path)[0]


def open_structure(path: Path) -> tuple[OnnxHeader, onnx.ModelProto]:
    """Return the header of `open_header` and the structure itself, whose weights may be in other files."""
    proto = _parse_file(path)
    try:
        return _make_header(path, proto), proto
    except UnicodeDecodeError as error:
        raise complain(Code.NOT_ONNX, f"{path} contains a name that is not valid text") from error


def _parse_file(path: Path) -> onnx.ModelProto:
    """Parse the file's bytes, as a runtime does: onnx.load chooses the format by the file's name."""
    import onnx

    if not is_regular_file(path):
        kind = (
            "is a folder" if path.is_dir() else "is not a regular file" if os.path.lexists(path) else "does not exist"
        )
        raise complain(Code.NOT_ONNX, f"{path} {kind}")
    if path.suffix not in SUFFIXES:
        todo = ("Name it something.onnx.",)
        raise complain(
            Code.NOT_ONNX, f"{path} does not end in .onnx; runtimes choose the format by the ending", todo=todo
        )
    size = f"{path} ({path.stat().st_size} bytes)"
    if path.stat().st_size > MAX_FILE_BYTES:
        raise complain(
            Code.NOT_ONNX, f"{size} is larger than an ONNX file can be; weights beyond 2 GiB belong in a separate file"
        )
    try:
        proto = onnx.ModelProto.FromString(path.read_bytes())
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise complain(Code.NOT_ONNX, f"{size} is truncated or not an ONNX model: {first}") from error
    if not proto.graph.output or not proto.opset_import:
        raise complain(Code.NOT_ONNX, f"{size} contains no graph with outputs")
    return proto


def _make_header(path: Path, proto: onnx.ModelProto) -> OnnxHeader:
    external, tensor_bytes = check_requirements(path, proto)
    opsets = {decode_text(o.domain): o.version for o in proto.opset_import}
    weights = {i.name for i in proto.graph.initializer}
    return OnnxHeader(
        path=path,
        opset=opsets.get("", opsets.get("ai.onnx", 0)),
        opsets=opsets,
        inputs=tuple(_make_value(v) for v in proto.graph.input if v.name not in weights),
        outputs=tuple(_make_value(v) for v in proto.graph.output),
        nodes=len(proto.graph.node),
        weights=len(proto.graph.initializer),
        weight_bytes=sum(count_promised_bytes(t) for t in proto.graph.initializer),
        tensor_bytes=tensor_bytes,
        external=external,
        metadata={decode_text(p.key): decode_text(p.value) for p in proto.metadata_props},
        producer=f"{decode_text(proto.producer_name)} {decode_text(proto.producer_version)}".strip(),
    )


def _make_value(value: onnx.ValueInfoProto) -> OnnxValue:
    import onnx

    kind = value.type.tensor_type
    known = onnx.TensorProto.DataType.values()
    dtype = onnx.TensorProto.DataType.Name(kind.elem_type).lower() if kind.elem_type in known[1:] else "?"
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    if not kind.HasField("shape"):
        return OnnxValue(decode_text(value.name), dtype, None)
    sizes = tuple(
        d.dim_value if d.HasField("dim_value") else (decode_text(d.dim_param) or None) for d in kind.shape.dim
    )
    return OnnxValue(decode_text(value.name), dtype, sizes)


def load_structure(path: str | Path) -> onnx.ModelProto:
    """Load the structure of a file that was checked before, without weights from other files."""
    import onnx

    return onnx.load(str(path), load_external_data=False)


def check_memory(header: OnnxHeader) -> None:
    """Refuse weights that do not fit into memory, before a runtime loads them."""
    if header.tensor_bytes > read_memory_bytes():
        needed, available = format_bytes(header.tensor_bytes), format_bytes(read_memory_bytes())
        raise complain(
            Code.ASKS_TOO_MUCH, f"{header.path.name}: its tensors need {needed}; this machine has {available} of memory"
        )


def check_signature(header: OnnxHeader, subject: Subject) -> None:
    """Refuse a file whose inputs are not the declared ones, by name, dtype and rank."""
    theirs = {v.name: v for v in header.inputs}
    if set(theirs) != set(subject.input_names):
        takes, declared = ", ".join(theirs) or "nothing", ", ".join(subject.input_names)
        raise complain(
            Code.INPUTS_DIFFER, f"the file takes {takes}; declared are {declared}{_explain_renaming(header, subject)}"
        )
    for spec in subject.spec:
        value, ours = theirs[spec.name], spec.in_file
        if value.dtype != ours.dtype or (value.shape is not None and len(value.shape) != len(ours.shape)):
            raise complain(Code.INPUTS_DIFFER, f"the file has {value}; declared is {spec}")


def _explain_renaming(header: OnnxHeader, subject: Subject) -> str:
    """Explain an input with another name: TorchScript's exporter renames one that shares its name with an output."""
    both = {v.name for v in header.outputs} & set(subject.input_names)
    for value in header.inputs:
        stem = value.name.rpartition(".")[0]
        if stem in both:
            return f". An output is named {stem} too, so the exporter renamed the input to {value.name}"
    return ""


def find_fixed_dims(header: OnnxHeader, subject: Subject) -> list[str]:
    """Return the axes that the file fixes although they are declared dynamic."""
    theirs = {v.name: v for v in header.inputs}
    fixed = []
    for spec in subject.spec:
        for axis, size in enumerate(spec.shape):
            shape = theirs[spec.name].shape
            if size.names and shape is not None and isinstance(shape[axis], int):
                fixed.append(f"{spec.name} axis {axis} ({size}) is fixed at {shape[axis]}")
    return fixed


def find_fixed_outputs(header: OnnxHeader, output_axes: Sequence[tuple[bool, ...]]) -> list[Finding]:
    """Return findings about outputs declared with a fixed size on an axis that varies; some runtimes fail on them."""
    findings = []
    for value, axes in zip(header.outputs, output_axes, strict=False):
        for axis, (declared, varies) in enumerate(zip(value.shape or (), axes, strict=False)):
            if varies and isinstance(declared, int):
                findings.append(
                    Finding(Code.OUTPUT_SHAPE_FIXED, f"{value.name} axis {axis} is declared {declared}, but varies")
                )
    return findings
