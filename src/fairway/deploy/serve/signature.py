"""The signature of a model: names, dtypes, sizes and values that were verified. Other requests are refused."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn

import numpy as np

from fairway.deploy.serve.tensors import DATATYPES, Array, refuse
from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.model.batch_dim import find_batch_axes, find_batch_dim
from fairway.model.dims import Dim, Point, Size, parse_size
from fairway.model.onnx_file import OnnxHeader, OnnxValue
from fairway.model.spec import TensorSpec, parse_input
from fairway.record.schema import Record


@dataclass(frozen=True)
class ModelSignature:
    """Inputs and outputs of one file, and the domain in its record."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[OnnxValue, ...]
    domain: Mapping[str, Dim]
    strict: bool
    """False with --unverified: then sizes and values outside the domain are accepted."""
    drawn: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """The range that an input was drawn from, if its values are not declared."""

    def fit(self, given: Mapping[str, Array]) -> dict[str, int]:
        """Return the sizes of a request by dim. FW812: it does not fit the file. FW813: it is outside the domain."""
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
                    refuse(f"{spec.name}: {size.text} is {got} here and {point[size.text]} elsewhere")
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
                Code.REQUEST_OUTSIDE_DOMAIN,
                f"{name} is {got}; {dim} was verified",
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
            _refuse_values(spec, f"it holds {least if least < low else most:g}; {low:g}..{high:g} was verified")

    @cached_property
    def batch(self) -> str | None:
        """The dim that counts samples, by the same rule as in the judge."""
        return find_batch_dim(self.inputs)

    @cached_property
    def axes(self) -> dict[str, int]:
        """The axis of the batch in each input."""
        return find_batch_axes(self.inputs, self.batch or "")

    def refuse_batch(self, rows: int, why: str) -> NoReturn:
        """Refuse a batch that is too large and cannot be split."""
        assert self.batch is not None
        dim = self.domain[self.batch]
        seen = f"{self.batch} is {rows}; {dim} was verified, and the request cannot be split: {why}"
        raise complain(
            Code.REQUEST_OUTSIDE_DOMAIN,
            seen,
            dim=self.batch,
            size=rows,
            low=dim.low,
            high=dim.high,
            multiple=dim.multiple,
        )


def read_signature(header: OnnxHeader, stored: Record | None, unverified: bool) -> ModelSignature:
    """Read the signature from the record if it describes these inputs, else from the file without any bounds."""
    specs = _read_recorded_inputs(header, stored) or tuple(
        _read_declared_input(number, value) for number, value in enumerate(header.inputs)
    )
    every: list[TensorSpec | OnnxValue] = [*specs, *header.outputs]
    for value in every:
        if value.dtype not in DATATYPES:
            raise complain(Code.NOT_FIT_TO_SERVE, f"{value}: {value.dtype} is not a dtype of the protocol")
    bounds = {} if stored is None else stored.subject.domain
    names = {name for spec in specs for name in spec.dims}
    domain = {name: Dim(name, dim.low, dim.high, max(dim.multiple, 1)) for name, dim in bounds.items() if name in names}
    return ModelSignature(specs, header.outputs, domain, not unverified, _read_drawn_ranges(stored))


def _read_drawn_ranges(stored: Record | None) -> dict[str, tuple[float, float]]:
    """Return the ranges of undeclared values from a record."""
    values = () if stored is None or stored.evidence is None else stored.evidence.values
    return {row.name: (row.low, row.high) for row in values if row.low is not None and row.high is not None}


def _read_recorded_inputs(header: OnnxHeader, stored: Record | None) -> tuple[TensorSpec, ...] | None:
    if stored is None:
        return None
    with contextlib.suppress(UserError):
        specs = tuple(parse_input(line).in_file for line in stored.subject.inputs)
        ours = {spec.name: (spec.dtype, len(spec.shape)) for spec in specs}
        theirs = {v.name: (v.dtype, None if v.shape is None else len(v.shape)) for v in header.inputs}
        if ours.keys() == theirs.keys() and all(
            ours[name][0] == dtype and rank in (None, ours[name][1]) for name, (dtype, rank) in theirs.items()
        ):
            return specs
    return None


def _read_declared_input(number: int, value: OnnxValue) -> TensorSpec:
    if value.shape is None:
        raise complain(Code.NOT_FIT_TO_SERVE, f"{value}: neither the file nor a record says its number of dims")
    return TensorSpec(
        value.name, value.dtype, tuple(_parse_size(f"any_{number}_{i}", s) for i, s in enumerate(value.shape))
    )


def _parse_size(nameless: str, size: int | str | None) -> Size:
    with contextlib.suppress(ValueError):
        if size is not None:
            return parse_size(str(size))
    return parse_size(nameless)


def check_values(spec: TensorSpec, array: Array, point: Point) -> None:
    """Refuse values outside the spec, and NaN and infinity, for which there is no evidence."""
    if not array.size:
        return
    values = spec.values
    if values.mask is not None:
        if array.dtype.kind != "b" and not np.isin(array, (0, 1)).all():
            _refuse_values(spec, "a mask holds 0 and 1 alone")
        given = array.astype(bool)  # `~` on a number makes both values true
        hidden = given if values.mask.startswith("padding") else ~given
        if array.shape[-1] and hidden.all(-1).any():
            _refuse_values(spec, "a row of the mask hides everything")
        return
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        _refuse_values(spec, "it holds NaN or infinity")
    low, high = values.low, values.high
    if values.below is not None:
        low, high = 0, values.below - 1
    elif values.lengths is not None:
        most = values.lengths.at(point)
        low, high = min(1, most), most
    elif values.under is not None:
        low, high = 0, max(values.under.at(point) - 1, 0)
    if low is not None and high is not None:
        least, most = array.min(), array.max()
        if least < low or most > high:
            seen: object = least if least < low else most
            _refuse_values(spec, f"it holds {seen!s}; {low:g}..{high:g} was verified")


def _refuse_values(spec: TensorSpec, why: str) -> NoReturn:
    raise complain(Code.REQUEST_OUTSIDE_DOMAIN, f"{spec.name}: {why}", input=spec.name)
