"""Stores a file's weights: inside it, in one file beside it, or still in the checkpoint they came from.

Runtimes follow no path that leaves a model's folder. So a candidate that stays linked is made in the target's folder
itself, beside the workshop. Others are made in the workshop, with hard links to the checkpoint's files: their weights
are copied once, at delivery, or earlier if the file cannot be linked.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, get_args

import numpy as np
import onnx_ir as ir
import torch

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.memory_check import format_bytes
from fairway.model.weight_hash import count_bytes
from fairway.model.weight_mappings import ByteRange, Mappings

WeightMode = Literal["embed", "copy", "link"]
WEIGHT_MODES: tuple[WeightMode, ...] = get_args(WeightMode)

MAX_EMBEDDED_BYTES = 1_500_000_000
"""Weights up to this size go into the file itself: protobuf ends at 2 GB."""
MAX_INSIDE_BYTES = 4096
"""Constants up to this size stay in the graph. ONNX Runtime needs those from which shapes are computed."""
ALIGNMENT_BYTES = 4096
LINK_FOLDER = "linked"
"""The workshop's folder of hard links to checkpoints."""
_CHUNK_BYTES = 1 << 24


@dataclass(frozen=True)
class WeightStorage:
    """The places of a candidate's weights."""

    mode: WeightMode = "embed"
    links: Mapping[str, str] = field(default_factory=dict)
    """The checkpoint's files, by the locations in the candidate that refer to them."""
    linked: int = 0
    linked_bytes: int = 0
    beside: tuple[str, ...] = ()
    """Names of the weights that are in no checkpoint in this form: computed, folded, cast, transposed."""
    beside_bytes: int = 0
    wide: bool = False
    """True if 16-bit weights are computed with in float32."""


def count_weight_bytes(model: ir.Model) -> int:
    """Return the bytes of all initializers."""
    return sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)


def choose_mode(request: WeightMode | None, size: int) -> WeightMode:
    """Return the requested mode; without a request, `embed` as long as one file can hold the weights."""
    return request or ("embed" if size <= MAX_EMBEDDED_BYTES else "copy")


def save_candidate(model: ir.Model, path: Path, request: WeightMode | None) -> WeightStorage:
    """Save a candidate. If its weights do not go inside, those in a mapped file are linked, and others go beside it."""
    mode = choose_mode(request, count_weight_bytes(model))
    if mode == "embed":
        ir.save(model, path)
        return WeightStorage()
    mappings = Mappings()
    links = _CheckpointLinks(path.parent, hard=mode != "link")
    linked = linked_bytes = 0
    rest: list[ir.Value] = []
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or tensor.nbytes <= MAX_INSIDE_BYTES or _is_short_list(tensor):
            continue
        span = _find_span(tensor, mappings)
        location = None if span is None else links.provide(span.path)
        if span is None or location is None:
            rest.append(value)
            continue
        value.const_value = _make_external(tensor, location, span.offset, path.parent)
        linked, linked_bytes = linked + 1, linked_bytes + span.length
    beside = tuple(value.name or "?" for value in rest)
    size = sum(value.const_value.nbytes for value in rest if value.const_value is not None)
    if rest:
        write_data(rest, path.with_name(path.name + ".data"))
    ir.save(model, path)
    return WeightStorage(mode, links.made, linked, linked_bytes, beside, size)


def _is_short_list(tensor: ir.TensorProtocol) -> bool:
    """Return whether a tensor is a short list of integers, such as the sizes of a split."""
    return tensor.dtype.is_integer() and len(tensor.shape) <= 1 and tensor.nbytes < 1 << 20


def _find_span(tensor: ir.TensorProtocol, mappings: Mappings) -> ByteRange | None:
    """Return the bytes of a file that a constant is mapped from, if any."""
    raw = getattr(tensor, "raw", None)
    if isinstance(raw, torch.Tensor) and raw.is_contiguous() and raw.device.type == "cpu":
        return mappings.find(raw.data_ptr(), raw.nbytes)
    if isinstance(raw, np.ndarray) and raw.flags.c_contiguous:
        return mappings.find(raw.__array_interface__["data"][0], raw.nbytes)
    return None


def _make_external(tensor: ir.TensorProtocol, location: str, offset: int, folder: Path) -> ir.ExternalTensor:
    shape, name = ir.Shape(tensor.shape.numpy()), tensor.name or ""
    return ir.ExternalTensor(location, offset, tensor.nbytes, tensor.dtype, shape=shape, name=name, base_dir=folder)


class _CheckpointLinks:
    """The checkpoint's files as seen from a candidate's folder: their own paths, or `hard` links to them."""

    def __init__(self, folder: Path, hard: bool) -> None:
        self.folder, self.hard = folder, hard
        self.made: dict[str, str] = {}
        self._known: dict[str, str | None] = {}

    def provide(self, path: str) -> str | None:
        """Return the location of the file as seen from the candidate, or None if it cannot be linked."""
        if path not in self._known:
            name = find_relative_path(path, self.folder)
            if self.hard:
                name = f"{LINK_FOLDER}/{os.stat(path).st_ino}-{os.path.basename(path)}"
            is_linked = not self.hard or _hard_link(path, self.folder / name)
            self._known[path] = name if is_linked else None
            if is_linked:
                self.made[name] = path
        return self._known[path]


def _hard_link(source: str, target: Path) -> bool:
    """Return whether a hard link exists now. Files on other file systems, or of other users, cannot be linked."""
    target.parent.mkdir(exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:  # another capture linked the same file
        return True
    except OSError:
        return False
    return True


def write_data(values: list[ir.Value], path: Path) -> None:
    """Write the weights into one file, each once and at an aligned place, with no more than one in memory."""
    written: dict[object, int] = {}
    with path.open("wb") as file:
        for value in values:
            tensor = value.const_value
            assert tensor is not None
            place = _make_identity_key(tensor)
            if place in written:  # tied to a weight that is written already
                value.const_value = _make_external(tensor, path.name, written[place], path.parent)
                continue
            file.write(b"\0" * (-file.tell() % ALIGNMENT_BYTES))
            offset = written[place] = file.tell()
            if isinstance(tensor, ir.ExternalTensor):
                _copy_span(tensor, file)
            elif hasattr(tensor, "tofile"):
                tensor.tofile(file)
            else:
                file.write(tensor.tobytes())
            value.const_value = _make_external(tensor, path.name, offset, path.parent)
        file.flush()
        os.fsync(file.fileno())


def _make_identity_key(tensor: ir.TensorProtocol) -> object:
    """Return a key that tied weights share: the place of their bytes, and how these are read."""
    if isinstance(tensor, ir.ExternalTensor):
        return str(tensor.path), tensor.offset, tensor.length
    raw = getattr(tensor, "raw", None)
    if isinstance(raw, torch.Tensor):
        return raw.data_ptr(), raw.dtype, raw.shape, raw.stride()
    return id(tensor)


def _copy_span(tensor: ir.ExternalTensor, file: BinaryIO) -> None:
    """Copy a tensor's bytes from file to file, in chunks."""
    with open(tensor.path, "rb") as source:
        source.seek(tensor.offset or 0)
        left = tensor.length if tensor.length is not None else tensor.nbytes
        while left:
            chunk = source.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise OSError(f"{tensor.path} ends too early")
            file.write(chunk)
            left -= len(chunk)


def save_for_delivery(model: ir.Model, candidate: Path, path: Path, stored: WeightStorage, home: Path) -> str | None:
    """Save a loaded candidate in its final form; return the name of the file with its weights, if there is one.

    `home` is the folder that the file is delivered to. A complete weights file is linked, not written again.
    """
    data = path.with_name(path.name + ".data")
    beside = candidate.with_name(candidate.name + ".data")
    external = [v for v in model.graph.initializers.values() if isinstance(v.const_value, ir.ExternalTensor)]
    linked = [v for v in external if _get_location(v) in stored.links]
    if stored.mode == "copy" and linked:
        write_data(external, data)
    else:
        for value in linked:
            value.const_value = _move_tensor(value, find_relative_path(stored.links[_get_location(value)], home))
        if beside.exists():
            os.link(beside, data)
            for value in external:
                if _get_location(value) == beside.name:
                    value.const_value = _move_tensor(value, data.name)
    ir.save(model, path)
    return data.name if data.exists() else None


def find_relative_path(path: str, home: Path) -> str:
    """Return the path of a checkpoint's file as seen from the folder of the file that links to it."""
    return os.path.relpath(os.path.realpath(path), os.path.realpath(home))


def _get_location(value: ir.Value) -> str:
    assert isinstance(value.const_value, ir.ExternalTensor)
    return str(value.const_value.location)


def _move_tensor(value: ir.Value, location: str) -> ir.ExternalTensor:
    tensor = value.const_value
    assert isinstance(tensor, ir.ExternalTensor)
    return ir.ExternalTensor(
        location, tensor.offset, tensor.length, tensor.dtype, shape=tensor.shape, name=tensor.name or "", base_dir=""
    )


def find_checkpoint_files(model: torch.nn.Module) -> tuple[str, ...]:
    """Return the checkpoint files that the model's weights are mapped from, sorted."""
    mappings = Mappings()
    dense = [t for t in (*model.parameters(), *model.buffers()) if t.layout == torch.strided]
    spans = (mappings.find(t.data_ptr(), t.nbytes) for t in dense if t.is_contiguous() and t.device.type == "cpu")
    return tuple(sorted({span.path for span in spans if span is not None}))


def check_disk(model: torch.nn.Module, target: Path, request: WeightMode | None) -> None:
    """Refuse a disk without room for the weights, before the export fails at its end."""
    tensors = {id(t): count_bytes(t) for t in (*model.parameters(), *model.buffers())}
    size = sum(tensors.values())
    total, _, free = shutil.disk_usage(target.parent)
    if choose_mode(request, size) != "link" and total and size > free:  # some file systems report a total of 0
        raise complain(
            Code.CANNOT_WRITE,
            f"{target.parent} has room for {format_bytes(free)}; the weights alone take {format_bytes(size)}",
        )


def check_linkable(model: torch.nn.Module, target: Path) -> None:
    """Refuse a model whose weights cannot be linked: without a mapped file, or with one outside the target's folder."""
    files = find_checkpoint_files(model)
    if not files:
        raise complain(
            Code.NOT_LINKABLE, "none of the model's weights is in a checkpoint that is mapped unchanged from the disk"
        )
    home = os.path.realpath(target.parent)
    for file in files:
        if not os.path.realpath(file).startswith(home + os.sep):
            raise complain(Code.NOT_LINKABLE, f"{file} is not in {target.parent} or below")
