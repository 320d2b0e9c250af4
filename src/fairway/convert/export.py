"""`fairway.export` and `fairway.verify`: the product in two functions."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from fairway.convert.ladder.climb import Climb, Rung, Settings, climb, judge_file, rank
from fairway.convert.ladder.pinpoint import pinpoint
from fairway.convert.ladder.plan import TRACE_OPSETS
from fairway.convert.ladder.route import ROUTES, parse_route
from fairway.convert.ladder.study_worker import study_subject
from fairway.convert.ladder.tables import build_tables
from fairway.convert.record_writer import write_record
from fairway.convert.remedies.catalogue import CATALOGUE
from fairway.convert.remedies.plugin_remedies import plugged_translations
from fairway.convert.result import Result
from fairway.diagnostics import Finding
from fairway.diagnostics.errors import UserError, complain
from fairway.diagnostics.extras import require
from fairway.diagnostics.plugins import refused
from fairway.judge.answers import is_large
from fairway.judge.lattice import LEVELS, Level
from fairway.model.cpu import made_elsewhere, this_cpu
from fairway.model.data import read_data
from fairway.model.onnx_file import check_room, check_signature, open_header
from fairway.model.subject import Subject, build_subject
from fairway.model.weight_mappings import let_go
from fairway.model.weight_storage import MODES, Mode, check_disk, check_linkable
from fairway.record.delivery import check_target, deliver, keep_aside, workshop
from fairway.record.files import hash_file
from fairway.record.progress import Diary, both
from fairway.record.reader import StoredRecord, compare_with_record
from fairway.workers.attempt import Limits, Workers
from fairway.workers.garbage import seldom

Progress = Callable[[Any], None]

_NEEDED = (
    "onnx_ir.passes.common",
    "onnxruntime",
    "onnxscript.optimizer",
    "torch._dynamo",
    "torch.export",
    "torch.fx.experimental.symbolic_shapes",
    "torch.onnx._internal.exporter._core",
)


def export(
    model: torch.nn.Module,
    inputs: Any,
    path: str | Path,
    *,
    dims: Any = None,
    bounds: Mapping[str, tuple[int, int]] | None = None,
    multiples: Mapping[str, int] | None = None,
    example: Mapping[str, int] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    patches: Mapping[Any, Callable[..., Any]] | None = None,
    translations: Mapping[Any, Callable[..., Any]] | None = None,
    opset: int | None = None,
    level: Level = "standard",
    routes: Sequence[str] = (),
    remedies: bool = True,
    timeout: float = 600.0,
    memory: int = 0,
    data: str | Path | None = None,
    weights: Mode | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Takes `model` to an ONNX file that agrees with PyTorch over every shape declared, or says what is wrong.

    `inputs` is a tuple of example args, a dict of kwargs, an (args, kwargs) pair, a function `(seed, **dims)` that
    makes such a pair, or a list of spec lines. `timeout` (seconds) and `memory` (bytes) limit each attempt.
    `translations` maps operators (`torch.ops.mine.op.default`) to functions that call ONNX operators. `weights` says
    where they go: "embed" into the file, "copy" into one beside it, "link" leaves them in the checkpoint that they are
    mapped from; unless told, into the file where it can hold them, else beside it.
    """
    subject = build_subject(
        model,
        inputs,
        dims=dims,
        bounds=bounds,
        multiples=multiples,
        example=example,
        input_names=input_names,
        output_names=output_names,
        patches=patches,
        translations=translations,
    )
    settings = make_settings(level, routes, opset, remedies, timeout, memory, weights)
    return export_subject(subject, Path(path), settings, data, overwrite, progress)


def verify(
    path: str | Path,
    model: torch.nn.Module,
    inputs: Any,
    *,
    dims: Any = None,
    bounds: Mapping[str, tuple[int, int]] | None = None,
    multiples: Mapping[str, int] | None = None,
    example: Mapping[str, int] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    level: Level = "standard",
    timeout: float = 600.0,
    memory: int = 0,
    data: str | Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Judges any ONNX file against `model`, whoever made it. The file is only read."""
    subject = build_subject(
        model,
        inputs,
        dims=dims,
        bounds=bounds,
        multiples=multiples,
        example=example,
        input_names=input_names,
        output_names=output_names,
    )
    settings = make_settings(level, (), None, True, timeout, memory, judging=True)
    return verify_subject(subject, Path(path), settings, data, progress)


def make_settings(
    level: str,
    routes: Sequence[str],
    opset: int | None,
    remedies: bool,
    timeout: float,
    memory: int,
    weights: str | None = None,
    judging: bool = False,
) -> Settings:
    """Settings that were checked against what is known; for `judging` a file, some level there must be."""
    import onnx

    levels = LEVELS[1:] if judging else LEVELS
    if level not in levels:
        raise complain("FW006", f"level {level!r}; the levels are {', '.join(levels)}")
    if weights is not None and weights not in MODES:
        raise complain("FW006", f"weights {weights!r}; there are {', '.join(MODES)}")
    if level == "deep":
        require("deep", "the level deep", "hypothesis")
    for route in routes:
        if route not in ROUTES:
            raise complain("FW006", f"route {route!r}; the routes are {', '.join(ROUTES)}")
    newest = onnx.defs.onnx_opset_version()
    if opset is not None and not 7 <= opset <= newest:
        raise complain("FW007", f"opset {opset}; opsets 7..{newest} are known here")
    traced = [name for name in routes if parse_route(name).traced]
    if opset is not None and opset not in TRACE_OPSETS and traced and len(traced) == len(routes):
        span = f"{TRACE_OPSETS[0]}..{TRACE_OPSETS[-1]}"
        raise complain("FW007", f"opset {opset}; {' and '.join(traced)} can write {span}")
    return Settings(level, tuple(routes), opset, remedies, Limits(timeout, memory), weights)


@seldom()
def export_subject(
    subject: Subject,
    path: Path,
    settings: Settings,
    data: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Result:
    """The whole road for one subject: climb, then deliver what may be delivered."""
    check_target(path, overwrite)
    check_disk(subject.model, path, settings.weights)
    if settings.weights == "link":
        check_linkable(subject.model, path)
    warm_up()
    build_tables()
    left_out = load_plugins() if settings.remedies else ()
    tensors = read_data(subject, Path(data)) if data is not None else []
    if is_large(subject.model):
        let_go()  # pages of its weights that loading happened to read: they would count as long as we run
    with Workers(settings.limits) as workers, workshop(path, workers.janitor) as folder:
        heard = both(progress or (lambda event: None), Diary(folder, path.name, subject.name))
        workers.tick = partial(heard, ("tick",))
        subject = study_subject(workers, subject, settings.level, settings.remedies)
        climbed = climb(workers, subject, settings, folder, tensors, heard)
        begins = pinpoint(workers, subject, settings, climbed, tensors, heard)
        climbed = replace(climbed, findings=(*sorted((*climbed.findings, *begins), key=rank), *left_out))
        record = write_record(subject, settings, climbed)
        best = climbed.best
        written = None
        if best is not None and best.captured is not None:
            record["opset"] = best.captured.opset
            if climbed.verdict in ("verified", "unproven"):
                record = deliver(folder, Path(best.captured.path), path, record, best.captured.stored, overwrite)
                written = path
            elif climbed.verdict == "wrong":
                aside = path.with_suffix(".wrong.onnx")
                record = keep_aside(folder, Path(best.captured.path), aside, record, best.captured.stored)
    return _result(climbed, written, record)


def verify_subject(
    subject: Subject,
    path: Path,
    settings: Settings,
    data: str | Path | None = None,
    progress: Progress | None = None,
    against: Callable[[], Sequence[str]] = tuple,
) -> Result:
    """The judge alone, on a file that is there already. A record beside it that is about other bytes is a warning.

    `against` is asked only for a wrong file: which files are right, to tell where this one is not.
    """
    heard = progress or (lambda event: None)
    header = open_header(path)
    check_room(header)
    check_signature(header, subject)
    stored, changed = compare_with_record(path)
    if changed is not None and changed.code == "FW119":
        raise UserError(changed)
    warm_up()
    tensors = read_data(subject, Path(data)) if data is not None else []
    with Workers(settings.limits) as workers, TemporaryDirectory(prefix="fairway-") as folder:
        workers.tick = partial(heard, ("tick",))
        subject = study_subject(workers, subject, settings.level, settings.remedies)
        climbed = judge_file(workers, subject, settings, str(path), header, tensors, Path(folder), heard)
        right = against() if climbed.verdict == "wrong" else ()
        begins = pinpoint(workers, subject, settings, climbed, tensors, heard, right)
    told = (changed, *_about_quantised(stored))
    findings = (*sorted((*climbed.findings, *begins), key=rank), *(one for one in told if one is not None))
    climbed = replace(climbed, findings=findings)
    record = write_record(subject, settings, climbed)
    record["opset"] = header.opset
    record["file"] = {"name": path.name, "sha256": hash_file(path)}
    return _result(climbed, path, record)


def _about_quantised(stored: StoredRecord | None) -> Sequence[Finding | None]:
    """A quantised file is not held to PyTorch's numbers, and may be made for another CPU."""
    if stored is None or stored.proven.quantised is None:
        return ()
    return Finding("FW707", stored.proven.quantised), made_elsewhere(stored.whole, this_cpu())


def _result(climbed: Climb, path: Path | None, record: dict[str, Any]) -> Result:
    best: Rung | None = climbed.best
    return Result(
        verdict=climbed.verdict,
        path=path,
        route=None if best is None else best.route.name,
        remedies=() if best is None else tuple(name for name, _ in best.remedies),
        findings=climbed.findings,
        evidence=None if best is None else best.evidence,
        record=record,
    )


def load_plugins() -> Sequence[Finding]:
    """Loads the plug-ins before the first fork, so that attempts have them; answers what had to be left out."""
    len(CATALOGUE)
    plugged_translations()
    return refused()


def warm_up() -> None:
    """Imports what every attempt needs, once, here: attempts are forked from this process and start with it."""
    for name in _NEEDED:
        # Private ones among them (seen in torch 2.9–2.13) only save time: what is missing is imported later.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
