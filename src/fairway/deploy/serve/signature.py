"""What a model takes: names, dtypes, sizes and values as its record verified them. Everything else is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from fairway.deploy.serve.tensors import DATATYPES, Array, refuse
from fairway.diagnostics.errors import UserError, complain
from fairway.model.batch_dim import find_batch_axes, find_batch_dim
from fairway.model.dims import Dim, Point, Size, parse_size
from fairway.model.onnx_file import OnnxHeader, OnnxValue
from fairway.model.spec import TensorSpec, parse_input
from fairway.record.reader import StoredRecord


@dataclass(frozen=True)
class ModelSignature:
    """Inputs and outputs of one file, and the domain that its record speaks of."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[OnnxValue, ...]
    domain: Mapping[str, Dim]
    strict: bool
    """False with --unverified: then sizes and values outside the domain go through."""
    drawn: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Ends of the values that an input was drawn from, if its values are not declared."""

    def fit(self, given: Mapping[str, Array]) -> dict[str, int]:
        """The sizes of a request, dim by dim; FW812 where it does not fit the file, FW813 where nobody verified it."""
        names = [spec.name for spec in self.inputs]
        for name in given:
            if name not in names:
                refuse(f"there is no input {name!r:.80}; the inputs are {', '.join(names)}")
        missing = [name for name in names if name not in given]
        if missing:
            refuse(f"{', '.join(missing)} is missing; the inputs are {', '.join(names)}")
        point: dict[str, int] = {}
        for spec in self.inputs:
            array = given[spec.name]
            if array.dtype.name != spec.dtype:
                refuse(f"{spec.name} is {DATATYPES[array.dtype.name]}, the model takes {DATATYPES[spec.dtype]}")
            if array.ndim != len(spec.shape):
                refuse(f"{spec.name} has the shape {list(array.shape)}, the model takes {spec}")
            for size, got in zip(spec.shape, array.shape, strict=True):
                if size.text in size.names and point.setdefault(size.text, got) != got:
                    refuse(f"{spec.name}: {size.text} is {got} here and {point[size.text]} in another place")
        self._check_sizes(given, point)
        if self.strict:
            self._check_domain(point)
            for spec in self.inputs:
                check_values(spec, given[spec.name], point)
                self._check_drawn(spec, given[spec.name])
        return point

    def _check_sizes(self, given: Mapping[str, Array], point: Point) -> None:
        for spec in self.inputs:
            for size, got in zip(spec.shape, given[spec.name].shape, strict=True):
                if all(name in point for name in size.names) and size.at(point) != got:
                    shape = list(given[spec.name].shape)
                    refuse(f"{spec.name} has the shape {shape}, the model takes {spec}: {size} is not {got}")

    def _check_domain(self, point: Point) -> None:
        for name, dim in self.domain.items():
            got = point.get(name)
            if got is None or got in dim.sizes or (name == self.batch and got > dim.high):
                continue
            raise complain(
                "FW813",
                f"{name} is {got}; verified is {dim}",
                dim=name,
                size=got,
                low=dim.low,
                high=dim.high,
                multiple=dim.multiple,
            )

    def _check_drawn(self, spec: TensorSpec, array: Array) -> None:
        """Refuse values outside those that the file was verified with."""
        if spec.name not in self.drawn or not array.size or array.dtype.kind not in "fiu":
            return
        low, high = self.drawn[spec.name]
        least, most = float(array.min()), float(array.max())
        if least < low or most > high:
            _outside(spec, f"it holds {least if least < low else most:g}; verified is {low:g}..{high:g}")

    @cached_property
    def batch(self) -> str | None:
        """The dim that counts samples, by the rule that the judge uses too."""
        return find_batch_dim(self.inputs)

    @cached_property
    def axes(self) -> dict[str, int]:
        """Where each input has the batch."""
        return find_batch_axes(self.inputs, self.batch or "")

    def refuse_batch(self, rows: int, why: str) -> NoReturn:
        """A batch beyond the bound that cannot be split."""
        assert self.batch is not None
        dim = self.domain[self.batch]
        seen = f"{self.batch} is {rows}; verified is {dim}, and it cannot be split: {why}"
        raise complain("FW813", seen, dim=self.batch, size=rows, low=dim.low, high=dim.high, multiple=dim.multiple)


def read_signature(header: OnnxHeader, stored: StoredRecord | None, unverified: bool) -> ModelSignature:
    """From the record where it speaks of these inputs, else from the file, which says nothing of bounds and values."""
    specs = _recorded(header, stored) or tuple(_declared(*one) for one in enumerate(header.inputs))
    every: list[TensorSpec | OnnxValue] = [*specs, *header.outputs]
    for value in every:
        if value.dtype not in DATATYPES:
            raise complain("FW815", f"{value}: {value.dtype} cannot be sent to a server or from it")
    told = {} if stored is None else stored.proven.domain
    names = {name for spec in specs for name in spec.dims}
    domain = {
        name: Dim(name, dim["low"], dim["high"], max(dim["multiple"], 1)) for name, dim in told.items() if name in names
    }
    return ModelSignature(specs, header.outputs, domain, not unverified, _drawn(stored))


def _drawn(stored: StoredRecord | None) -> dict[str, tuple[float, float]]:
    """Return the ends of undeclared values from a record. A record comes from elsewhere, so each field is checked."""
    evidence = None if stored is None else stored.whole.get("evidence")
    rows = evidence.get("values") if isinstance(evidence, dict) else None
    ends: dict[str, tuple[float, float]] = {}
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict):
            continue
        name, low, high = row.get("name"), row.get("low"), row.get("high")
        if isinstance(name, str) and isinstance(low, int | float) and isinstance(high, int | float):
            ends[name] = (float(low), float(high))
    return ends


def _recorded(header: OnnxHeader, stored: StoredRecord | None) -> tuple[TensorSpec, ...] | None:
    subject = {} if stored is None else stored.whole.get("subject", {})
    lines = subject.get("inputs") if isinstance(subject, dict) else None
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        return None
    with contextlib.suppress(UserError):
        specs = tuple(parse_input(line).in_file for line in lines)
        ours = {spec.name: (spec.dtype, len(spec.shape)) for spec in specs}
        theirs = {v.name: (v.dtype, None if v.shape is None else len(v.shape)) for v in header.inputs}
        if ours.keys() == theirs.keys() and all(
            ours[name][0] == dtype and rank in (None, ours[name][1]) for name, (dtype, rank) in theirs.items()
        ):
            return specs
    return None


def _declared(number: int, value: OnnxValue) -> TensorSpec:
    if value.shape is None:
        raise complain("FW815", f"{value}: neither the file nor a record says how many dims it has")
    return TensorSpec(value.name, value.dtype, tuple(_size(f"any_{number}_{i}", s) for i, s in enumerate(value.shape)))


def _size(nameless: str, size: int | str | None) -> Size:
    with contextlib.suppress(ValueError):
        if size is not None:
            return parse_size(str(size))
    return parse_size(nameless)


def check_values(spec: TensorSpec, array: Array, point: Point) -> None:
    """Refuses values that the spec rules out, and NaN and infinity, which no evidence speaks of."""
    if not array.size:
        return
    values = spec.values
    if values.mask is not None:
        hidden = array if values.mask.startswith("padding") else ~array
        if array.shape[-1] and hidden.all(-1).any():
            _outside(spec, "a row of the mask leaves nothing")
        return
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        _outside(spec, "it holds NaN or infinity")
    low, high = values.low, values.high
    if values.below is not None:
        low, high = 0, values.below - 1
    elif values.lengths is not None:
        most = values.lengths.at(point)
        low, high = min(1, most), most
    if low is not None and high is not None:
        least, most = array.min(), array.max()
        if least < low or most > high:
            seen: Any = least if least < low else most
            _outside(spec, f"it holds {seen!s}, and {low:g}..{high:g} was verified")


def _outside(spec: TensorSpec, why: str) -> NoReturn:
    raise complain("FW813", f"{spec.name}: {why}", input=spec.name)
