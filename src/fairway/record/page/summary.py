"""The summary of a record that a page draws: only what is drawn, in short form, with every text made safe to show."""

from __future__ import annotations

import linecache
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from fairway.diagnostics.excuses import count_samples
from fairway.record.page.sanitize import PageData, clean_name, clean_number, clean_text, shorten_path
from fairway.record.schema import Record
from fairway.record.schema_evidence import EvidenceRecord, SampleRecord
from fairway.record.schema_parts import FindingRecord, RungRecord, WhereRecord
from fairway.record.schema_tuning import QuantizedRecord

Summary: TypeAlias = PageData

RIGHT, WRONG, ILLEGAL = 0, 1, 2
"""The states of a sample."""

_RECIPE_MODULE = re.compile(r"^fairway_recipe_(\w+)_[0-9a-f]{12}\.")
"""The module of a recipe while it is imported."""

MAX_SAMPLES = 100_000
MAX_ITEMS = 500
MAX_RUNGS = 100
MAX_FINDINGS = 100
MAX_SOURCE_CHARACTERS = 20_000
SOURCE_LINES_AROUND = 3
"""Lines of source shown on either side of the line of a finding."""


def summarize(record: Record | None, label: str) -> Summary:
    """Return the summary of one record, or of a file without a record."""
    if record is None:
        return _summarize_nothing(label)
    subject = record.subject
    dims = [
        {
            "name": clean_name(name),
            "low": dim.low,
            "high": dim.high,
            "multiple": dim.multiple,
            "declared": dim.declared,
        }
        for name, dim in subject.domain.items()
    ]
    names = list(subject.domain)
    return {
        "label": clean_name(label),
        "verdict": record.verdict,
        "route": clean_name(record.route),
        "opset": clean_number(record.opset),
        "subject": {
            "name": clean_name(subject.name),
            "class": _RECIPE_MODULE.sub(r"\1.", clean_name(subject.class_name)),
            "sha256": subject.sha256,
            "inputs": [clean_name(line) for line in subject.inputs[:MAX_ITEMS]],
            "outputs": [clean_name(output) for output in subject.outputs[:MAX_ITEMS]],
        },
        "dims": dims,
        "example": _order_sizes(subject.example, names),
        "evidence": None if record.evidence is None else _summarize_evidence(record.evidence, names, subject.example),
        "ladder": [_summarize_rung(rung) for rung in record.ladder[:MAX_RUNGS]],
        "remedies": [
            {
                "name": remedy.name,
                "note": clean_text(remedy.note),
                "cures": clean_text(remedy.cures),
                "title": clean_text(remedy.title),
                "safety": clean_text(remedy.safety),
            }
            for remedy in record.remedies[:MAX_ITEMS]
        ],
        "rewritten": [
            {
                "functions": clean_text(change.functions),
                "before": clean_text(change.before, MAX_SOURCE_CHARACTERS),
                "after": clean_text(change.after, MAX_SOURCE_CHARACTERS),
            }
            for change in record.rewritten[:MAX_ITEMS]
        ],
        "findings": [_summarize_finding(finding) for finding in record.findings[:MAX_FINDINGS]],
        "versions": {clean_name(package): clean_name(version) for package, version in record.versions.items()},
        "machine": clean_name(record.machine),
        "settings": {key: clean_name(value) for key, value in record.settings.as_dict().items()},
        "reproduce": [shlex.join(words) for words in _list_commands(record)],
        "quantized": None if record.quantized is None else _summarize_quantization(record.quantized),
        "sha256": "" if record.file is None else record.file.sha256,
    }


def _summarize_nothing(label: str) -> Summary:
    lists = ("dims", "example", "ladder", "remedies", "rewritten", "findings", "reproduce")
    return {
        "label": clean_name(label),
        "verdict": "no record",
        "route": "",
        "opset": None,
        "subject": {"name": "", "class": "", "sha256": "", "inputs": [], "outputs": []},
        **{key: [] for key in lists},
        "evidence": None,
        "versions": {},
        "machine": "",
        "settings": {},
        "quantized": None,
        "sha256": "",
    }


def _order_sizes(sizes: Mapping[str, int], names: Sequence[str]) -> list[int | None]:
    """Return the sizes in the order of the dims."""
    return [None if name not in sizes else int(clean_number(sizes[name]) or 0) for name in names]


def _summarize_evidence(evidence: EvidenceRecord, names: Sequence[str], example: Mapping[str, int]) -> Summary:
    again = evidence.differential
    tested = [_summarize_sample(sample, names) for sample in evidence.tested[:MAX_SAMPLES]]
    return {
        "level": clean_name(evidence.level),
        "yardstick": clean_text(evidence.yardstick),
        "factor": clean_number(evidence.factor),
        "seconds": clean_number(evidence.seconds),
        "spent": {clean_name(what): clean_number(seconds) for what, seconds in evidence.spent.items()},
        "outputs": [
            {
                "name": clean_name(output.name),
                "dtype": clean_name(output.dtype),
                "ratio": clean_number(output.ratio),
                "file_error": clean_number(output.file_error),
                "own_error": clean_number(output.own_error),
            }
            for output in evidence.outputs[:MAX_ITEMS]
        ],
        "tested": tested,
        "counts": [sum(row[1] == state for row in tested) for state in (RIGHT, WRONG, ILLEGAL)],
        "samples": count_samples([(row[1] == RIGHT, row[7]) for row in tested if row[1] != ILLEGAL]),
        "smallest": _order_sizes(evidence.smallest, names) if evidence.smallest else None,
        "boundaries": [clean_text(boundary) for boundary in evidence.boundaries[:MAX_ITEMS]],
        "sides": [
            [_order_sizes(right, names), _order_sizes(wrong, names)] for right, wrong in evidence.sides[:MAX_ITEMS]
        ],
        "probed": [
            _order_sizes({**example, dim: size}, names)
            for dim, sizes in evidence.wrong_at.items()
            for size in sizes[:MAX_ITEMS]
        ],
        "undecided": clean_number(evidence.undecided) or 0,
        "again": {
            "done": again.done,
            "same": again.same,
            "harmless": again.harmless,
            "note": clean_text(again.note),
            "differences": [clean_text(difference) for difference in again.differences[:MAX_ITEMS]],
        },
        "second_runtime": clean_text(evidence.second_runtime),
    }


def _summarize_sample(sample: SampleRecord, names: Sequence[str]) -> list[Any]:
    """Return a row: sizes, state, ratio, ratios by output, kind of values, seed, note, excuse.

    There may be thousands, so a row has no keys.
    """
    state = ILLEGAL if not sample.is_legal else RIGHT if sample.right else WRONG
    return [
        _order_sizes(sample.point, names),
        state,
        clean_number(sample.ratio),
        [clean_number(ratio) for ratio in sample.ratios[:MAX_ITEMS]],
        "your data" if sample.data is not None else clean_name(sample.flavor),
        clean_number(sample.seed) or 0,
        clean_text(sample.note, 500),
        clean_text(sample.excused, 100) if state == RIGHT else "",
    ]


def _summarize_rung(rung: RungRecord) -> Summary:
    return {
        "route": clean_name(rung.route),
        "verdict": clean_name(rung.verdict),
        "seconds": clean_number(rung.seconds) or 0,
        "export_seconds": clean_number(rung.export_seconds) or 0,
        "peak_mb": clean_number(rung.peak_mb) or 0,
        "samples": None if rung.samples is None else [clean_number(count) or 0 for count in rung.samples],
        "evidence": clean_text(rung.evidence),
        "remedies": [clean_name(remedy) for remedy in rung.remedies[:MAX_ITEMS]],
        "refused": [
            {"remedy": clean_text(refusal.remedy), "reason": clean_text(refusal.reason)}
            for refusal in rung.refused[:MAX_ITEMS]
        ],
        "findings": [
            {"code": clean_name(finding.code), "seen": clean_text(finding.seen), "where": _shorten_place(finding.where)}
            for finding in rung.findings[:MAX_ITEMS]
        ],
    }


def _shorten_place(where: str | None) -> str:
    """Return the text of a place with its path cut."""
    file, colon, rest = clean_text(where).partition(":")
    return shorten_path(file) + colon + rest if colon and file.startswith("/") else clean_text(where)


def _summarize_finding(finding: FindingRecord) -> Summary:
    where = finding.where or WhereRecord()
    return {
        "code": clean_text(finding.code),
        "title": clean_text(finding.title),
        "severity": clean_text(finding.severity),
        "kind": clean_text(finding.kind),
        "seen": clean_text(finding.seen),
        "why": clean_text(finding.why),
        "where": {
            "function": clean_text(where.function),
            "source": clean_text(where.source),
            "module": clean_text(where.module),
            "node": clean_text(where.node),
            "file": shorten_path(where.file) if where.file else "",
            "line": clean_number(where.line) or 0,
            "around": _read_lines_around(where),
        },
        "todo": [clean_text(step) for step in finding.todo[:MAX_ITEMS]],
        "upstream": [clean_text(issue) for issue in finding.upstream[:MAX_ITEMS]],
        "at": {key: clean_text(finding.data[key]) for key in ("node", "value") if key in finding.data},
    }


def _read_lines_around(where: WhereRecord) -> list[list[int | str]]:
    """Return the lines near the one of a finding, if the file on this machine still has it there."""
    file, line, source = where.file, where.line, where.source
    if file is None or source is None or not source.strip() or line is None or not 1 <= line < 2**31:
        return []
    if Path(file).suffix != ".py" or linecache.getline(file, line).strip() != source.strip():
        return []
    near = range(max(1, line - SOURCE_LINES_AROUND), line + SOURCE_LINES_AROUND + 1)
    lines = [(number, linecache.getline(file, number)) for number in near]
    return [[number, clean_text(text.rstrip("\n"), 400)] for number, text in lines if text]


def _list_commands(record: Record) -> Iterator[list[str]]:
    """Yield the commands that do the same again. The path of the recipe is not in a record."""
    pins = [f"{name}=={version.partition('+')[0]}" for name, version in record.versions.items()]
    pins = [pin for pin in pins if not pin.startswith(("python==", "fairway=="))]
    if pins:
        yield ["pip", "install", *pins]
    settings, dims = record.settings, record.subject.domain
    if settings.level is None:
        return
    bounds = [f"{name}={dim.low}..{dim.high}" for name, dim in dims.items() if dim.declared]
    bounds += [f"{name}%{dim.multiple}" for name, dim in dims.items() if dim.multiple > 1]
    domain = [word for bound in bounds for word in ("--dim", clean_name(bound))]
    domain += ["--level", clean_name(settings.level)]
    options = [] if settings.opset is None else ["--opset", str(settings.opset)]
    options += [] if settings.remedies else ["--no-remedies"]
    options += [word for route in settings.routes for word in ("--route", clean_name(route))]
    name = "MODEL.onnx" if record.file is None else record.file.name
    yield ["fairway", "export", "RECIPE.py", "-o", name.replace(".wrong.onnx", ".onnx"), *domain, *options]
    if settings.level != "none":
        yield ["fairway", "verify", name, "RECIPE.py", *domain]


def _summarize_quantization(made: QuantizedRecord) -> Summary:
    shipped = None if made.shipped is None else made.shipped.sha256
    return {
        "from": clean_name(made.source.name),
        "scheme": clean_name(made.scheme),
        "metric": clean_name(made.metric),
        "said": clean_text(made.said),
        "tried": [
            {
                "scheme": clean_name(variant.scheme),
                "bytes": clean_number(variant.bytes),
                "size_share": clean_number(variant.size_share),
                "drop": clean_number(variant.drop),
                "speed": "not taken" if variant.speed is None else clean_text(variant.speed.said) or "not taken",
                "shipped": variant.sha256 == shipped,
            }
            for variant in made.tried[:MAX_ITEMS]
        ],
    }
