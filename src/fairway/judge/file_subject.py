"""Build a subject from an ONNX file alone. The inputs and sizes come from its record, or from the file without one.

A file without a record shows which sizes vary, but neither their bounds nor which whole numbers are legal. Spec lines
and dims given by the user override both.
"""

from __future__ import annotations

import contextlib
from functools import cached_property

import numpy as np
import torch

from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.judge.runtimes.ort import OrtSession
from fairway.judge.runtimes.wide_tensors import Wide
from fairway.model.dims import Size, parse_size
from fairway.model.onnx_file import OnnxHeader, OnnxValue
from fairway.model.recipe import Overrides
from fairway.model.spec import DTYPES, TensorSpec, parse_input
from fairway.model.subject import Subject, build_subject
from fairway.model.tree import flatten
from fairway.record.schema import Record


class FileModel(torch.nn.Module):
    """The file in ONNX Runtime behind PyTorch's interface. It is opened at the first call."""

    def __init__(self, header: OnnxHeader) -> None:
        super().__init__()
        self._path = header.path
        self._outputs = tuple(value.name for value in header.outputs)

    @cached_property
    def _session(self) -> OrtSession:
        return OrtSession(self._path)

    def forward(self, **tensors: object) -> dict[str, torch.Tensor]:
        leaves = flatten(tensors)
        if any(isinstance(leaf.value, Wide) for leaf in leaves):
            raise TypeError("the reference is a file, which has no float64 to measure from")
        answers = self._session.run([leaf.name for leaf in leaves], [leaf.value for leaf in leaves])
        return {name: torch.from_numpy(np.array(a)) for name, a in zip(self._outputs, answers, strict=True)}


def build_file_subject(header: OnnxHeader, stored: Record | None, overrides: Overrides) -> Subject:
    """Build a subject whose model is the file itself. `stored` is its record, if it has one."""
    lines = _read_recorded_spec(header, stored)
    spec: list[str | TensorSpec]
    if overrides.inputs:
        spec = list(overrides.inputs)
    elif lines is not None:
        spec = list(lines)
    else:
        spec = [_make_declared_spec(value) for value in header.inputs]
    names = {name for line in spec for name in (parse_input(line) if isinstance(line, str) else line).dims}
    domain = {} if stored is None else {k: v for k, v in stored.subject.domain.items() if k in names}
    bounds = {name: (dim.low, dim.high) for name, dim in domain.items()}
    multiples = {name: max(dim.multiple, 1) for name, dim in domain.items()}
    outputs = [value.name for value in header.outputs]
    return build_subject(
        FileModel(header),
        spec,
        bounds={**bounds, **overrides.bounds},
        multiples={**multiples, **overrides.multiples},
        example=_read_recorded_example(stored, bounds, overrides),
        output_names=outputs,
        name=header.path.stem,
    )


def _read_recorded_spec(header: OnnxHeader, stored: Record | None) -> tuple[TensorSpec, ...] | None:
    """The record's spec, if it reads and names the file's inputs."""
    if stored is None:
        return None
    with contextlib.suppress(UserError):
        spec = tuple(map(parse_input, stored.subject.inputs))
        if {spec_line.name for spec_line in spec} == {value.name for value in header.inputs}:
            return spec
    return None


def _read_recorded_example(
    stored: Record | None, bounds: dict[str, tuple[int, int]], overrides: Overrides
) -> dict[str, int]:
    """Return the record's example, as far as it is within the bounds that hold now."""
    sizes = {} if stored is None else stored.subject.example
    ends = {**bounds, **overrides.bounds}
    return {
        name: size
        for name, size in sizes.items()
        if name in ends and ends[name][0] <= size <= ends[name][1] and size % overrides.multiples.get(name, 1) == 0
    }


def _make_declared_spec(value: OnnxValue) -> TensorSpec:
    if value.shape is None or value.dtype not in DTYPES:
        todo = (f"Say what it is: --input '{value.name}: float32[batch, 3]'.",)
        raise complain(Code.NO_INPUTS, f"the file has no record, and declares an input only as {value}", todo=todo)
    return TensorSpec(value.name, value.dtype, tuple(_make_size(value.name, i, s) for i, s in enumerate(value.shape)))


def _make_size(name: str, axis: int, size: int | str | None) -> Size:
    """Return a size. A name that is not valid here (`s0 // 2 + 1`, `batch-size`) is replaced by one for its place."""
    with contextlib.suppress(ValueError):
        return parse_size(str(size)) if size is not None else parse_size(f"{_make_identifier(name)}_{axis}")
    return parse_size(f"{_make_identifier(name)}_{axis}")


def _make_identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name if c.isascii()).lstrip("0123456789_") or "input"
