"""A subject from an ONNX file alone: its record says what it takes and over which sizes; without one, the file does.

A file without a record says which sizes vary, but not between which bounds, nor which whole numbers are legal. Spec
lines and dims of the user's own win over both.
"""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fairway.diagnostics.errors import UserError, complain
from fairway.judge.runtimes.ort import OrtSession
from fairway.judge.runtimes.wide_tensors import Wide
from fairway.model.dims import Size, parse_size
from fairway.model.onnx_file import OnnxHeader, OnnxValue
from fairway.model.recipe import Overrides
from fairway.model.spec import DTYPES, TensorSpec, parse_input
from fairway.model.subject import Subject, build_subject
from fairway.model.tree import flatten
from fairway.record.reader import StoredRecord


class FileModel(torch.nn.Module):
    """The file in ONNX Runtime behind PyTorch's interface; opened at its first call."""

    def __init__(self, header: OnnxHeader) -> None:
        super().__init__()
        self._path = header.path
        self._outputs = tuple(value.name for value in header.outputs)

    @cached_property
    def _session(self) -> OrtSession:
        return OrtSession(self._path)

    def forward(self, **tensors: Any) -> dict[str, torch.Tensor]:
        leaves = flatten(tensors)
        if any(isinstance(leaf.value, Wide) for leaf in leaves):
            raise TypeError("the reference is a file, which has no float64 to measure from")
        answers = self._session.run([leaf.name for leaf in leaves], [leaf.value for leaf in leaves])
        return {name: torch.from_numpy(np.array(a)) for name, a in zip(self._outputs, answers, strict=True)}


def file_subject(header: OnnxHeader, stored: StoredRecord | None, said: Overrides) -> Subject:
    """What is known of the file's inputs, with the file itself as the model. `stored` is its record, if it has one."""
    lines = _recorded(header, stored)
    spec: list[str | TensorSpec]
    if said.inputs:
        spec = list(said.inputs)
    elif lines is not None:
        spec = list(lines)
    else:
        spec = [_declared(value) for value in header.inputs]
    names = {name for one in spec for name in (parse_input(one) if isinstance(one, str) else one).dims}
    domain = {} if stored is None else {k: v for k, v in stored.proven.domain.items() if k in names}
    bounds = {name: (dim["low"], dim["high"]) for name, dim in domain.items()}
    multiples = {name: max(dim["multiple"], 1) for name, dim in domain.items()}
    outputs = [value.name for value in header.outputs]
    return build_subject(
        FileModel(header),
        spec,
        bounds={**bounds, **said.bounds},
        multiples={**multiples, **said.multiples},
        example=_example(stored, bounds, said),
        output_names=outputs,
        name=header.path.stem,
    )


def _recorded(header: OnnxHeader, stored: StoredRecord | None) -> tuple[TensorSpec, ...] | None:
    """The record's spec, if it reads and names the file's inputs."""
    lines = None if stored is None else stored.whole.get("subject", {}).get("inputs")
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        return None
    with contextlib.suppress(UserError):
        spec = tuple(map(parse_input, lines))
        if {one.name for one in spec} == {value.name for value in header.inputs}:
            return spec
    return None


def _example(stored: StoredRecord | None, bounds: dict[str, tuple[int, int]], said: Overrides) -> dict[str, int]:
    """The record's example, as far as it lies within the bounds that hold now."""
    sizes = None if stored is None else stored.whole.get("subject", {}).get("example")
    if not isinstance(sizes, dict):
        return {}
    ends = {**bounds, **said.bounds}
    return {
        name: size
        for name, size in sizes.items()
        if name in ends
        and isinstance(size, int)
        and ends[name][0] <= size <= ends[name][1]
        and size % said.multiples.get(name, 1) == 0
    }


def _declared(value: OnnxValue) -> TensorSpec:
    if value.shape is None or value.dtype not in DTYPES:
        todo = (f"Say what it is: --input '{value.name}: float32[batch, 3]'.",)
        raise complain("FW010", f"the file has no record, and says of an input only {value}", todo=todo)
    return TensorSpec(value.name, value.dtype, tuple(_size(value.name, i, s) for i, s in enumerate(value.shape)))


def _size(name: str, axis: int, size: int | str | None) -> Size:
    """A name that is none of ours (`s0 // 2 + 1`, `batch-size`) gets one after its place."""
    with contextlib.suppress(ValueError):
        return parse_size(str(size)) if size is not None else parse_size(f"{_plain(name)}_{axis}")
    return parse_size(f"{_plain(name)}_{axis}")


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name if c.isascii()).lstrip("0123456789_") or "input"
