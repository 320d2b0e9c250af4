"""A file from anywhere, looked at before any runtime may touch it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairway.errors import complain

if TYPE_CHECKING:
    from fairway.subject.subject import Subject


@dataclass(frozen=True)
class Value:
    """A graph input or output as the file declares it. A size is a number, a name, or None."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        sizes = "…" if self.shape is None else ", ".join("?" if s is None else str(s) for s in self.shape)
        return f"{self.name}: {self.dtype}[{sizes}]"


@dataclass(frozen=True)
class Header:
    """What a file says of itself, read without its weights."""

    path: Path
    opset: int
    opsets: dict[str, int]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: int
    weights: int
    weight_bytes: int
    external: tuple[str, ...]
    metadata: dict[str, str]
    producer: str

    @property
    def fixed_dims(self) -> dict[str, tuple[int, ...]]:
        return {v.name: tuple(i for i, s in enumerate(v.shape or ()) if isinstance(s, int)) for v in self.inputs}


def open_header(path: Path) -> Header:
    """Reads the structure; refuses what is not ONNX, and external data that is missing or lies outside the folder."""
    import onnx

    if not path.is_file():
        raise complain("FW110", f"{path} is a folder" if path.is_dir() else f"{path} does not exist")
    size = f"{path} ({path.stat().st_size} bytes)"
    try:
        proto = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise complain("FW110", f"{size} is truncated or no ONNX model: {first}") from error
    if not proto.graph.output or not proto.opset_import:
        raise complain("FW110", f"{size} holds no graph with outputs")
    external = _external(path, proto)
    opsets = {o.domain: o.version for o in proto.opset_import}
    weights = {i.name for i in proto.graph.initializer}
    return Header(
        path=path,
        opset=opsets.get("", opsets.get("ai.onnx", 0)),
        opsets=opsets,
        inputs=tuple(_value(v) for v in proto.graph.input if v.name not in weights),
        outputs=tuple(_value(v) for v in proto.graph.output),
        nodes=len(proto.graph.node),
        weights=len(proto.graph.initializer),
        weight_bytes=sum(_bytes(t) for t in proto.graph.initializer),
        external=external,
        metadata={p.key: p.value for p in proto.metadata_props},
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
    )


def _external(path: Path, proto: Any) -> tuple[str, ...]:
    """The names of the data files. The needed length is checked, because a truncated file passes onnx's checker."""
    folder = path.resolve().parent
    needed: dict[str, int] = {}
    for tensor in (t for part in (proto.graph, *proto.functions) for t in _tensors(part)):
        entries = {e.key: e.value for e in tensor.external_data}
        if not entries:
            continue
        location = entries.get("location", "")
        target = (folder / location).resolve()
        if not location or Path(location).is_absolute() or not target.is_relative_to(folder):
            raise complain("FW112", f"{path.name}: {tensor.name} asks for {location!r}")
        try:
            offset, length = int(entries.get("offset") or 0), int(entries.get("length") or _bytes(tensor))
        except ValueError as error:
            raise complain("FW110", f"{path.name}: {tensor.name} has an offset or length that is no number") from error
        if offset < 0 or length < 0:
            raise complain("FW110", f"{path.name}: {tensor.name} has an offset or length below 0")
        needed[location] = max(needed.get(location, 0), offset + length)
    for location, end in needed.items():
        target = folder / location
        if not target.is_file():
            raise complain("FW111", f"{path.name} needs {location}, which is not beside it")
        if target.stat().st_size < end:
            raise complain("FW111", f"{location} has {target.stat().st_size} bytes, {path.name} needs {end}")
    return tuple(needed)


def _tensors(graph: Any) -> Any:
    """Every tensor of a graph or function, also those inside its nodes."""
    yield from getattr(graph, "initializer", ())
    for sparse in getattr(graph, "sparse_initializer", ()):
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)
            for inner in attribute.graphs:
                yield from _tensors(inner)


def _bytes(tensor: Any) -> int:
    import onnx

    count = 1
    for size in tensor.dims:
        count *= size
    try:
        width = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (KeyError, TypeError):
        width = 1
    return int(count * width)


def _value(value: Any) -> Value:
    import onnx

    kind = value.type.tensor_type
    dtype = onnx.TensorProto.DataType.Name(kind.elem_type).lower() if kind.elem_type else "?"
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    if not kind.HasField("shape"):
        return Value(value.name, dtype, None)
    sizes = tuple(
        d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in kind.shape.dim
    )
    return Value(value.name, dtype, sizes)


def check_signature(header: Header, subject: Subject) -> None:
    """The file's inputs must be the declared ones, by name, dtype and rank."""
    theirs = {v.name: v for v in header.inputs}
    if set(theirs) != set(subject.input_names):
        takes, declared = ", ".join(theirs) or "nothing", ", ".join(subject.input_names)
        raise complain("FW411", f"the file takes {takes}; declared are {declared}")
    for spec in subject.spec:
        value = theirs[spec.name]
        if value.dtype != spec.dtype or (value.shape is not None and len(value.shape) != len(spec.shape)):
            raise complain("FW411", f"the file has {value}; declared is {spec}")


def dims_fixed(header: Header, subject: Subject) -> list[str]:
    """Axes that the file fixes although they are declared dynamic."""
    theirs = {v.name: v for v in header.inputs}
    found = []
    for spec in subject.spec:
        for axis, size in enumerate(spec.shape):
            shape = theirs[spec.name].shape
            if size.names and shape is not None and isinstance(shape[axis], int):
                found.append(f"{spec.name} axis {axis} ({size}) is fixed at {shape[axis]}")
    return found
