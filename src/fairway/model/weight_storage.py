"""Where a file's weights lie: inside it, in one file beside it, or still in the checkpoint they came from.

Runtimes follow no path that leaves a model's folder. So a candidate that is to stay linked lies in the target's folder
itself, beside the workshop. Others lie in the workshop, with hard links to the checkpoint's files: what is to be copied
is copied once, when it is delivered, or before where it cannot be linked.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import onnx_ir as ir
import torch

from fairway.diagnostics.errors import complain
from fairway.model.memory_check import amount
from fairway.model.weight_hash import bytes_of
from fairway.model.weight_mappings import ByteRange, Mappings

Mode = Literal["embed", "copy", "link"]
MODES: tuple[Mode, ...] = get_args(Mode)

EMBEDDED = 1_500_000_000
"""Bytes of weights up to which they go into the file itself: protobuf ends at 2 GB."""
INSIDE = 4096
"""Bytes up to which a constant stays in the graph. ONNX Runtime wants to see those that shapes are computed from."""
ALIGNED = 4096
LINKED = "linked"
"""The workshop's folder of links into checkpoints."""
_CHUNK = 1 << 24


@dataclass(frozen=True)
class WeightStorage:
    """How the weights of a candidate lie."""

    mode: Mode = "embed"
    links: Mapping[str, str] = field(default_factory=dict)
    """Locations in the candidate, and the checkpoint's files they stand for."""
    linked: int = 0
    linked_bytes: int = 0
    beside: tuple[str, ...] = ()
    """Names of the weights that lie in no checkpoint as they are: computed, folded, cast, transposed."""
    beside_bytes: int = 0
    wide: bool = False
    """16-bit weights are computed with in float32."""


def weight_bytes(model: ir.Model) -> int:
    return sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)


def choose(asked: Mode | None, size: int) -> Mode:
    """What was asked for; else inside the file as long as one file can hold it."""
    return asked or ("embed" if size <= EMBEDDED else "copy")


def save_candidate(model: ir.Model, path: Path, asked: Mode | None) -> WeightStorage:
    """Saves a candidate. Weights in a mapped file are pointed to; others go beside, where they do not fit inside."""
    mode = choose(asked, weight_bytes(model))
    if mode == "embed":
        ir.save(model, path)
        return WeightStorage()
    mappings = Mappings()
    links = _Links(path.parent, hard=mode != "link")
    linked = linked_bytes = 0
    rest: list[ir.Value] = []
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or tensor.nbytes <= INSIDE or _is_short_list(tensor):
            continue
        span = _span(tensor, mappings)
        location = None if span is None else links.provide(span.path)
        if span is None or location is None:
            rest.append(value)
            continue
        value.const_value = _external(tensor, location, span.offset, path.parent)
        linked, linked_bytes = linked + 1, linked_bytes + span.length
    beside = tuple(value.name or "?" for value in rest)
    size = sum(value.const_value.nbytes for value in rest if value.const_value is not None)
    if rest:
        write_data(rest, path.with_name(path.name + ".data"))
    ir.save(model, path)
    return WeightStorage(mode, links.made, linked, linked_bytes, beside, size)


def _is_short_list(tensor: Any) -> bool:
    """Whole numbers in a row, such as the sizes of a split."""
    return tensor.dtype.is_integer() and len(tensor.shape) <= 1 and tensor.nbytes < 1 << 20


def _span(tensor: Any, mappings: Mappings) -> ByteRange | None:
    raw = getattr(tensor, "raw", None)
    if isinstance(raw, torch.Tensor) and raw.is_contiguous() and raw.device.type == "cpu":
        return mappings.find(raw.data_ptr(), raw.nbytes)
    if isinstance(raw, np.ndarray) and raw.flags.c_contiguous:
        return mappings.find(raw.__array_interface__["data"][0], raw.nbytes)
    return None


def _external(tensor: Any, location: str, offset: int, folder: Path) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        location, offset, tensor.nbytes, tensor.dtype, shape=ir.Shape(tensor.shape), name=tensor.name, base_dir=folder
    )


class _Links:
    """The checkpoint's files as seen from a candidate's folder: where they lie, or `hard` links to them."""

    def __init__(self, folder: Path, hard: bool) -> None:
        self.folder, self.hard = folder, hard
        self.made: dict[str, str] = {}
        self._known: dict[str, str | None] = {}

    def provide(self, path: str) -> str | None:
        """The location of the file as seen from the candidate; None where it cannot be linked."""
        if path not in self._known:
            name = from_home(path, self.folder)
            if self.hard:
                name = f"{LINKED}/{os.stat(path).st_ino}-{os.path.basename(path)}"
            there = not self.hard or _hard_link(path, self.folder / name)
            self._known[path] = name if there else None
            if there:
                self.made[name] = path
        return self._known[path]


def _hard_link(source: str, target: Path) -> bool:
    """Other file systems, and other people's files, cannot be linked; two captures link the same file."""
    target.parent.mkdir(exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def write_data(values: list[ir.Value], path: Path) -> None:
    """Streams the weights into one file, each once and at an aligned place, never holding more than one."""
    written: dict[Any, int] = {}
    with path.open("wb") as file:
        for value in values:
            tensor = value.const_value
            assert tensor is not None
            place = _place(tensor)
            if place in written:  # tied to one that is there already
                value.const_value = _external(tensor, path.name, written[place], path.parent)
                continue
            file.write(b"\0" * (-file.tell() % ALIGNED))
            offset = written[place] = file.tell()
            if isinstance(tensor, ir.ExternalTensor):
                _copy_span(tensor, file)
            elif hasattr(tensor, "tofile"):
                tensor.tofile(file)
            else:
                file.write(tensor.tobytes())
            value.const_value = _external(tensor, path.name, offset, path.parent)
        file.flush()
        os.fsync(file.fileno())


def _place(tensor: Any) -> Any:
    """What two weights have in common that are one: their bytes lie in the same place, and are read in the same way."""
    if isinstance(tensor, ir.ExternalTensor):
        return str(tensor.path), tensor.offset, tensor.length
    raw = getattr(tensor, "raw", None)
    if isinstance(raw, torch.Tensor):
        return raw.data_ptr(), raw.dtype, raw.shape, raw.stride()
    return id(tensor)


def _copy_span(tensor: ir.ExternalTensor, file: Any) -> None:
    """From file to file, in pieces."""
    with open(tensor.path, "rb") as source:
        source.seek(tensor.offset or 0)
        left = tensor.length if tensor.length is not None else tensor.nbytes
        while left:
            piece = source.read(min(left, _CHUNK))
            if not piece:
                raise OSError(f"{tensor.path} ends too early")
            file.write(piece)
            left -= len(piece)


def save_delivered(model: ir.Model, candidate: Path, path: Path, stored: WeightStorage, home: Path) -> str | None:
    """Saves a candidate that was loaded again, for good; answers the name of the file with its weights, if any.

    `home` is the folder in which the file will lie. A weights file that is complete is moved, not written again.
    """
    data = path.with_name(path.name + ".data")
    beside = candidate.with_name(candidate.name + ".data")
    external = [v for v in model.graph.initializers.values() if isinstance(v.const_value, ir.ExternalTensor)]
    pointing = [v for v in external if _location(v) in stored.links]
    if stored.mode == "copy" and pointing:
        write_data(external, data)
    else:
        for value in pointing:
            value.const_value = _moved(value, from_home(stored.links[_location(value)], home))
        if beside.exists():
            os.link(beside, data)
            for value in external:
                if _location(value) == beside.name:
                    value.const_value = _moved(value, data.name)
    ir.save(model, path)
    return data.name if data.exists() else None


def from_home(path: str, home: Path) -> str:
    """The path of a checkpoint's file as seen from the folder of the file that links to it."""
    return os.path.relpath(os.path.realpath(path), os.path.realpath(home))


def _location(value: ir.Value) -> str:
    assert isinstance(value.const_value, ir.ExternalTensor)
    return str(value.const_value.location)


def _moved(value: ir.Value, location: str) -> ir.ExternalTensor:
    tensor = value.const_value
    assert isinstance(tensor, ir.ExternalTensor)
    return ir.ExternalTensor(
        location, tensor.offset, tensor.length, tensor.dtype, shape=tensor.shape, name=tensor.name or "", base_dir=""
    )


def checkpoint_files(model: torch.nn.Module) -> tuple[str, ...]:
    """The files that the model's weights lie in, sorted."""
    mappings = Mappings()
    dense = [t for t in (*model.parameters(), *model.buffers()) if t.layout == torch.strided]
    spans = (mappings.find(t.data_ptr(), t.nbytes) for t in dense if t.is_contiguous() and t.device.type == "cpu")
    return tuple(sorted({span.path for span in spans if span is not None}))


def check_disk(model: torch.nn.Module, target: Path, asked: Mode | None) -> None:
    """Refuses early what would fail when everything else is done: a disk without room for the weights."""
    tensors = {id(t): bytes_of(t) for t in (*model.parameters(), *model.buffers())}
    size = sum(tensors.values())
    total, _, free = shutil.disk_usage(target.parent)
    if choose(asked, size) != "link" and total and size > free:  # some file systems do not tell
        raise complain("FW009", f"{target.parent} has room for {amount(free)}; the weights alone take {amount(size)}")


def check_linkable(model: torch.nn.Module, target: Path) -> None:
    """Refuses early what could not be linked: no mapped file, or one that lies outside the target's folder."""
    files = checkpoint_files(model)
    if not files:
        raise complain("FW021", "none of the model's weights lies in a checkpoint that is mapped as it is on the disk")
    home = os.path.realpath(target.parent)
    for file in files:
        if not os.path.realpath(file).startswith(home + os.sep):
            raise complain("FW021", f"{file} is not in {target.parent} or below")
