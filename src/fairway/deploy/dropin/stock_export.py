"""Checks each file that `torch.onnx.export` writes, and offers a repaired one beside a wrong one.

The function keeps its signature, its return value and its errors, and its file is left as it is.
"""

from __future__ import annotations

import functools
import inspect
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from fairway.convert.export import export_subject, make_judging_settings, make_settings, verify_subject
from fairway.convert.result import Result
from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import UserError
from fairway.model.observe import find_observation
from fairway.model.onnx_file import open_header
from fairway.model.subject import Subject, build_subject
from fairway.model.torch_arguments import DynamicAxes
from fairway.model.tree import Tree
from fairway.model.user_types import UserModel
from fairway.record.files import get_record_path
from fairway.record.writer import write_record
from fairway.torch_internals import patch_attribute
from fairway.workers.attempt import Limits

JUDGING_SECONDS = 600.0
"""Limit of each attempt."""

REPAIRED_SUFFIX = ".fairway.onnx"


@dataclass(frozen=True)
class CheckedExport:
    """A file of torch.onnx.export with its result, or the reason why it was not checked, and a repaired file."""

    path: Path | None
    result: Result | None = None
    problem: Finding | None = None
    repaired: Result | None = None

    @property
    def is_wrong(self) -> bool:
        return self.result is not None and self.result.verdict in ("wrong", "failed")


@dataclass(frozen=True)
class ExportCall:
    """The arguments of one call of torch.onnx.export."""

    model: UserModel
    args: tuple[Tree, ...]
    kwargs: Mapping[str, Tree]
    options: Mapping[str, UserModel]


Report = Callable[[CheckedExport], None]


@contextmanager
def check_exports(report: Report, level: str = "standard", repair: bool = True) -> Iterator[None]:
    """Check the files that torch.onnx.export writes inside the block. `report` gets the outcome of each."""
    checker = _Checker(report, level, repair)
    original: UserModel = torch.onnx.export
    save: UserModel = torch.onnx.ONNXProgram.save

    @functools.wraps(original)
    def export(*args: UserModel, **kwargs: UserModel) -> UserModel:
        return checker.export(original, args, kwargs)

    @functools.wraps(save)
    def save_program(program: UserModel, destination: UserModel, *args: UserModel, **kwargs: UserModel) -> UserModel:
        saved = save(program, destination, *args, **kwargs)
        checker.check_saved(program, destination)
        return saved

    with patch_attribute(torch.onnx, "export", export), patch_attribute(torch.onnx.ONNXProgram, "save", save_program):
        yield


class _Checker:
    def __init__(self, report: Report, level: str, repair: bool) -> None:
        self._report, self._level, self._repair = report, level, repair
        self._is_busy = False
        """True while torch.onnx or Fairway itself is running: calls from there are not the script's."""
        self._calls: weakref.WeakKeyDictionary[UserModel, ExportCall] = weakref.WeakKeyDictionary()
        """The calls whose program was returned and not saved yet."""

    def export(self, original: UserModel, args: tuple[UserModel, ...], kwargs: dict[str, UserModel]) -> UserModel:
        if self._is_busy:
            return original(*args, **kwargs)
        call = _read_call(original, args, kwargs)
        target = None if call is None else call.options.get("f")
        self._is_busy = True
        try:
            program = original(*args, **kwargs)
        except Exception:
            if call is not None and isinstance(target, str | os.PathLike):
                self._offer(call, Path(target))
            raise
        finally:
            self._is_busy = False
        if call is not None and isinstance(target, str | os.PathLike):
            self._check(call, Path(target))
        elif call is not None and program is not None:
            self._calls[program] = call
        return program

    def check_saved(self, program: UserModel, destination: UserModel) -> None:
        call = None if self._is_busy else self._calls.get(program)
        if call is not None and isinstance(destination, str | os.PathLike):
            self._check(call, Path(destination))

    def _check(self, call: ExportCall, path: Path) -> None:
        """Judge the file and write its record. Nothing that fails here reaches the script."""
        with self._work(path):
            subject = _describe_file(call, path)
            settings = make_judging_settings(self._level, Limits(JUDGING_SECONDS))
            result = verify_subject(subject, path, settings)
            write_record(get_record_path(path), result.record)
            outcome = CheckedExport(path, result)
            if outcome.is_wrong and self._repair:
                outcome = CheckedExport(path, result, repaired=self._export_again(subject, path, call))
            self._report(outcome)

    def _offer(self, call: ExportCall, path: Path) -> None:
        """Export a model that torch.onnx.export refused."""
        if self._repair:
            with self._work(path):
                subject = _describe_call(call, None)
                self._report(CheckedExport(None, repaired=self._export_again(subject, path, call)))

    def _export_again(self, subject: Subject, path: Path, call: ExportCall) -> Result:
        settings = make_settings(self._level, (), call.options.get("opset_version"), True, Limits(JUDGING_SECONDS))
        return export_subject(subject, path.with_suffix(REPAIRED_SUFFIX), settings, overwrite=True)

    @contextmanager
    def _work(self, path: Path) -> Iterator[None]:
        self._is_busy = True
        try:
            yield
        except UserError as error:
            self._report(CheckedExport(path, problem=error.finding))
        except Exception as error:
            self._report(CheckedExport(path, problem=Finding(Code.BUG, f"{type(error).__name__}: {error}")))
        finally:
            self._is_busy = False


def _read_call(original: UserModel, args: tuple[UserModel, ...], kwargs: dict[str, UserModel]) -> ExportCall | None:
    """Return the call's arguments by name, or None if torch will refuse them."""
    try:
        bound = inspect.signature(original).bind(*args, **kwargs).arguments
    except TypeError:
        return None
    options = {name: value for name, value in bound.items() if name not in ("model", "args", "kwargs")}
    given = bound.get("args", ())
    given = (given,) if isinstance(given, torch.Tensor) else tuple(given)
    named = dict(bound.get("kwargs") or {})
    if given and isinstance(given[-1], dict):  # torch takes a dict at the end for keyword arguments
        named, given = {**given[-1], **named}, given[:-1]
    return ExportCall(bound["model"], given, named, options)


def _describe_file(call: ExportCall, path: Path) -> Subject:
    """Return the subject of a call, with the inputs and outputs named as in the file."""
    header = open_header(path)
    names = [value.name for value in header.inputs]
    plain = _describe_call(call, None)
    if len(names) == len(plain.spec):
        plain = _describe_call(call, names)
    return plain


def _describe_call(call: ExportCall, names: list[str] | None) -> Subject:
    """Return the subject of a call: its dims, and bounds that include all sizes that were observed."""
    options = call.options
    axes, shapes = options.get("dynamic_axes"), options.get("dynamic_shapes")
    dims = shapes
    if axes is not None:
        dims = DynamicAxes(axes, options.get("input_names"), options.get("output_names"))
    inputs = (
        None
        if isinstance(call.model, torch.export.ExportedProgram) and not call.args
        else (call.args, dict(call.kwargs))
    )
    subject = build_subject(call.model, inputs, dims=dims, input_names=names)
    seen = find_observation(call.model)
    if seen is None:
        return subject
    bounds = _widen_bounds(subject, seen.dims, seen.bounds)
    return build_subject(call.model, inputs, dims=dims, input_names=names, bounds=bounds)


def _widen_bounds(
    subject: Subject, observed: Mapping[str, list[str]], sizes: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """Return bounds for the dims that have none, which reach to the largest size that was observed."""
    bounds: dict[str, tuple[int, int]] = {}
    for spec, names in zip(subject.spec, observed.values(), strict=False):
        for size, name in zip(spec.shape, names, strict=False):
            label = size.text
            if size.names == (label,) and not subject.domain[label].declared:
                low, high = sizes.get(name) or (int(name), int(name))
                before = bounds.get(label, (subject.domain[label].low, subject.domain[label].high))
                bounds[label] = (min(low, before[0]), max(high, before[1]))
    return bounds
