"""Exports one subject to a judged file, or judges a file that exists already."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from fairway.convert.ladder.climb import climb
from fairway.convert.ladder.judge_file import judge_file
from fairway.convert.ladder.pinpoint_error import pinpoint_error
from fairway.convert.ladder.plan import TRACE_OPSETS
from fairway.convert.ladder.route import ROUTES, parse_route
from fairway.convert.ladder.session import ExportSession
from fairway.convert.ladder.study_worker import study_subject
from fairway.convert.ladder.translation_tables import build_tables
from fairway.convert.ladder.weigh_evidence import rank_finding
from fairway.convert.record_writer import build_record
from fairway.convert.remedies.catalogue import CATALOGUE
from fairway.convert.remedies.plugin_remedies import load_plugin_translations
from fairway.convert.result import Result
from fairway.convert.types import Climb, Settings
from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import UserError, complain
from fairway.diagnostics.extras import require_extra
from fairway.diagnostics.plugins import list_refusals
from fairway.judge.answers import is_large
from fairway.judge.lattice import LEVELS, Level
from fairway.model.data import read_data
from fairway.model.onnx_file import open_model
from fairway.model.subject import Subject
from fairway.model.weight_mappings import release_mapped_memory
from fairway.model.weight_storage import WEIGHT_MODES, check_disk, check_linkable
from fairway.record.delivery import check_target, deliver, keep_aside, make_workshop
from fairway.record.files import hash_file
from fairway.record.progress import EventSink, ProgressFile, StillWorking, ignore_event, send_to_both
from fairway.record.reader import compare_with_record, compare_with_this_cpu
from fairway.record.schema import Record
from fairway.record.schema_parts import FileRecord
from fairway.torch_internals import PRELOADED_MODULES
from fairway.workers.attempt import Limits, Workers
from fairway.workers.garbage import collect_garbage_rarely

_PRELOADED_MODULES = (
    "onnx_ir.passes.common",
    "onnxruntime",
    "onnxscript.optimizer",
    *PRELOADED_MODULES,
    "torch.export",
    "torch.fx.experimental.symbolic_shapes",
)


def make_settings(
    level: str,
    routes: Sequence[str],
    opset: int | None,
    remedies: bool,
    limits: Limits,
    weights: str | None = None,
) -> Settings:
    """Return checked settings of an export."""
    import onnx

    checked_level = check_level(level, LEVELS)
    if weights is not None and weights not in WEIGHT_MODES:
        raise complain(Code.UNKNOWN_OPTION, f"weights: expected one of {', '.join(WEIGHT_MODES)}, got {weights!r:.80}")
    if checked_level == "deep":
        require_extra("deep", "the level deep", "hypothesis")
    for route in routes:
        if route not in ROUTES:
            raise complain(Code.UNKNOWN_OPTION, f"route: expected one of {', '.join(ROUTES)}, got {route!r:.80}")
    newest = onnx.defs.onnx_opset_version()
    if opset is not None and not 7 <= opset <= newest:
        raise complain(Code.OPSET_UNSUPPORTED, f"opset: expected 7..{newest}, got {opset}")
    traced = [name for name in routes if parse_route(name).is_traced]
    if opset is not None and opset not in TRACE_OPSETS and traced and len(traced) == len(routes):
        span = f"{TRACE_OPSETS[0]}..{TRACE_OPSETS[-1]}"
        raise complain(Code.OPSET_UNSUPPORTED, f"opset: {' and '.join(traced)} can write {span}, got {opset}")
    return Settings(checked_level, tuple(routes), opset, remedies, limits, weights)


def make_judging_settings(level: str, limits: Limits) -> Settings:
    """Return checked settings to judge an existing file, for which the level must not be none."""
    check_level(level, LEVELS[1:])
    return make_settings(level, (), None, True, limits)


def check_level(level: str, levels: Sequence[Level] = LEVELS[1:]) -> Level:
    """Return the level if it is one of `levels`, else refuse it. By default these are the levels of judging."""
    for known in levels:
        if level == known:
            return known
    raise complain(Code.UNKNOWN_OPTION, f"level: expected one of {', '.join(levels)}, got {level!r:.80}")


@collect_garbage_rarely()
def export_subject(
    subject: Subject,
    path: Path,
    settings: Settings,
    data: str | Path | None = None,
    overwrite: bool = False,
    progress: EventSink | None = None,
) -> Result:
    """Export one subject: try routes until a file is verified, then deliver the best file."""
    check_target(path, overwrite)
    check_disk(subject.model, path, settings.weights)
    if settings.weights == "link":
        check_linkable(subject.model, path)
    preload_modules()
    build_tables()
    refusals = load_plugins() if settings.remedies else ()
    tensors = read_data(subject, Path(data)) if data is not None else []
    if is_large(subject.model):
        release_mapped_memory()  # pages of weights that were read while loading would count as this process's memory
    with Workers(settings.limits) as workers, make_workshop(path, workers.janitor) as folder:
        on_event = send_to_both(progress or ignore_event, ProgressFile(folder, path.name, subject.name))
        workers.tick = partial(on_event, StillWorking())
        session = ExportSession(workers, subject, settings, folder, tensors, on_event)
        session = replace(session, subject=study_subject(session))
        climbed = climb(session)
        findings = sorted((*climbed.findings, *pinpoint_error(session, climbed)), key=rank_finding)
        climbed = replace(climbed, findings=(*findings, *subject.remarks, *refusals))
        record = build_record(session.subject, settings, climbed)
        candidate = None if climbed.best is None else climbed.best.candidate
        written = None
        if candidate is not None:
            record = record.model_copy(update={"opset": candidate.opset})
            if climbed.verdict in ("verified", "unproven"):
                record = deliver(folder, Path(candidate.path), path, record, candidate.stored, overwrite)
                written = path
            elif climbed.verdict == "wrong":
                aside = path.with_suffix(".wrong.onnx")
                record = keep_aside(folder, Path(candidate.path), aside, record, candidate.stored)
    return _make_result(climbed, written, record)


def verify_subject(
    subject: Subject,
    path: Path,
    settings: Settings,
    data: str | Path | None = None,
    progress: EventSink | None = None,
    list_right_files: Callable[[], Sequence[str]] = tuple,
) -> Result:
    """Judge a file that exists already. A record beside it that describes other bytes gives a warning.

    `list_right_files` is called only for a wrong file. Right files help to locate its error.
    """
    on_event = progress or ignore_event
    header = open_model(path, subject)
    stored, changed = compare_with_record(path)
    if changed is not None and changed.code == Code.LINKED_CHECKPOINT_CHANGED:
        raise UserError(changed)
    preload_modules()
    tensors = read_data(subject, Path(data)) if data is not None else []
    with Workers(settings.limits) as workers, TemporaryDirectory(prefix="fairway-") as folder:
        workers.tick = partial(on_event, StillWorking())
        session = ExportSession(workers, subject, settings, Path(folder), tensors, on_event)
        session = replace(session, subject=study_subject(session))
        climbed = judge_file(session, path, header)
        right_files = list_right_files() if climbed.verdict == "wrong" else ()
        located = pinpoint_error(session, climbed, right_files)
    others = [finding for finding in (*subject.remarks, changed, *_check_quantized(stored)) if finding is not None]
    findings = (*sorted((*climbed.findings, *located), key=rank_finding), *others)
    climbed = replace(climbed, findings=findings)
    file = FileRecord(name=path.name, sha256=hash_file(path))
    record = build_record(session.subject, settings, climbed).model_copy(update={"opset": header.opset, "file": file})
    return _make_result(climbed, path, record)


def _check_quantized(record: Record | None) -> Sequence[Finding | None]:
    """A quantized file is not expected to have PyTorch's numbers, and it may be made for another CPU."""
    if record is None or record.verdict != "quantized" or record.quantized is None:
        return ()
    return Finding(Code.QUANTIZED_BY_DESIGN, record.quantized.said or ""), compare_with_this_cpu(record)


def _make_result(climbed: Climb, path: Path | None, record: Record) -> Result:
    best = climbed.best
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
    """Load the plug-ins before the first fork, so that attempts have them. Return findings on refused plug-ins."""
    len(CATALOGUE)
    load_plugin_translations()
    return list_refusals()


def preload_modules() -> None:
    """Import the modules that every attempt needs. Attempts are forked from this process and start with them."""
    for name in _PRELOADED_MODULES:
        # The private modules (seen in torch 2.9–2.13) only save time; without them, torch imports its own later.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
