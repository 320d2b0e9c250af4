"""A record as the page draws it: only what is drawn, in short form, every value of it checked."""

from __future__ import annotations

import linecache
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairway.diagnostics.excuses import count_samples
from fairway.record.page.sanitize import fields, items, name, number, objects, place, text, whole

Story = dict[str, Any]

RIGHT, WRONG, ILLEGAL = 0, 1, 2
_RECIPE = re.compile(r"^fairway_recipe_(\w+)_[0-9a-f]{12}\.")
"""What a recipe's file is called while it is imported."""

SAMPLES = 100_000

AROUND = 3
"""Lines of source shown on either side of one, where the file still has it."""


def tell(record: Mapping[str, Any], label: str) -> Story:
    """The story of one record. What is missing in it is empty here, never a reason to fail."""
    subject, evidence = fields(record.get("subject")), fields(record.get("evidence"))
    domain = fields(subject.get("domain"))
    dims = [_dim(key, fields(value)) for key, value in domain.items()]
    return {
        "label": name(label),
        "verdict": name(record.get("verdict") or "no record"),
        "route": name(record.get("route")),
        "opset": number(record.get("opset")),
        "subject": {
            "name": name(subject.get("name")),
            "class": _RECIPE.sub(r"\1.", name(subject.get("class"))),
            "sha256": name(subject.get("sha256")),
            "inputs": [name(one) for one in items(subject.get("inputs"))],
            "outputs": [name(one) for one in items(subject.get("outputs"))],
        },
        "dims": dims,
        "example": _point(subject.get("example"), list(domain)),
        "evidence": _evidence(evidence, list(domain), fields(subject.get("example"))) if evidence else None,
        "ladder": [_rung(one) for one in objects(record.get("ladder"), 100)],
        "remedies": [
            {key: text(one.get(key)) for key in ("name", "note", "cures", "title", "safety")}
            for one in objects(record.get("remedies"))
        ],
        "rewritten": [
            {key: text(one.get(key), 20_000) for key in ("functions", "before", "after")}
            for one in objects(record.get("rewritten"))
        ],
        "findings": [_finding(one) for one in objects(record.get("findings"), 100)],
        "versions": {name(key): name(value) for key, value in fields(record.get("versions")).items()},
        "machine": name(record.get("machine")),
        "settings": {name(key): name(value) for key, value in fields(record.get("settings")).items()},
        "reproduce": _reproduce(record, dims),
        "quantised": _quantised(fields(record.get("quantised"))),
        "sha256": name(fields(record.get("file")).get("sha256")),
    }


def _dim(key: str, value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name(key),
        "low": whole(value.get("low")),
        "high": whole(value.get("high")),
        "multiple": whole(value.get("multiple"), 1),
        "declared": bool(value.get("declared", True)),
    }


def _point(value: Any, dims: Sequence[str]) -> list[int | None]:
    """Sizes in the order of the dims."""
    sizes = fields(value)
    return [None if number(sizes.get(dim)) is None else whole(sizes[dim]) for dim in dims]


def _evidence(evidence: Mapping[str, Any], dims: Sequence[str], example: Mapping[str, Any]) -> dict[str, Any]:
    leg = fields(evidence.get("differential"))
    tested = [_tested(one, dims) for one in objects(evidence.get("tested"), SAMPLES)]
    sides = [pair for pair in map(items, items(evidence.get("sides"))) if len(pair) == 2]
    return {
        "level": name(evidence.get("level")),
        "yardstick": text(evidence.get("yardstick")),
        "factor": number(evidence.get("factor")),
        "seconds": number(evidence.get("seconds")),
        "spent": {name(key): number(value) for key, value in fields(evidence.get("spent")).items()},
        "outputs": [
            {
                "name": name(one.get("name")),
                "dtype": name(one.get("dtype")),
                **{key: number(one.get(key)) for key in ("ratio", "file_error", "own_error")},
            }
            for one in objects(evidence.get("outputs"))
        ],
        "tested": tested,
        "counts": [sum(one[1] == state for one in tested) for state in (RIGHT, WRONG, ILLEGAL)],
        "samples": count_samples([(one[1] == RIGHT, one[7]) for one in tested if one[1] != ILLEGAL]),
        "smallest": _point(evidence["smallest"], dims) if evidence.get("smallest") else None,
        "boundaries": [text(one) for one in items(evidence.get("boundaries"))],
        "sides": [[_point(end, dims) for end in pair] for pair in sides],
        "probed": [
            _point({**example, dim: size}, dims)
            for dim, sizes in fields(evidence.get("wrong_at")).items()
            for size in items(sizes)[:200]
        ],
        "undecided": whole(evidence.get("undecided")),
        "again": {
            **{key: bool(leg.get(key)) for key in ("done", "same", "harmless")},
            "note": text(leg.get("note")),
            "differences": [text(one) for one in items(leg.get("differences"))[:50]],
        },
        "second_runtime": text(evidence.get("second_runtime")),
    }


def _tested(one: Mapping[str, Any], dims: Sequence[str]) -> list[Any]:
    """A row: sizes, state, ratio, ratios by output, kind of values, seed, note, excuse. There may be thousands."""
    note = text(one.get("note"), 500)
    state = ILLEGAL if note.startswith("not legal") else RIGHT if one.get("right") is True else WRONG
    kind = "your data" if one.get("data") is not None else name(one.get("flavour"))
    ratios = [number(ratio) for ratio in items(one.get("ratios"))]
    excuse = text(one.get("excused"), 100) if state == RIGHT else ""
    ratio, seed = number(one.get("ratio")), whole(one.get("seed"))
    return [_point(one.get("point"), dims), state, ratio, ratios, kind, seed, note, excuse]


def _rung(one: Mapping[str, Any]) -> dict[str, Any]:
    samples = [whole(count) for count in items(one.get("samples"))]
    return {
        "route": name(one.get("route")),
        "verdict": name(one.get("verdict")),
        **{key: number(one.get(key)) or 0 for key in ("seconds", "export_seconds", "peak_mb")},
        "samples": samples if len(samples) == 2 else None,
        "evidence": text(one.get("evidence")),
        "remedies": [name(remedy) for remedy in items(one.get("remedies"))],
        "refused": [{key: text(row.get(key)) for key in ("remedy", "reason")} for row in objects(one.get("refused"))],
        "findings": [
            {"code": name(row.get("code")), "seen": text(row.get("seen")), "where": _shorter(row.get("where"))}
            for row in objects(one.get("findings"))
        ],
    }


def _shorter(where: Any) -> str:
    """The text of a place, which begins with a path."""
    file, colon, rest = text(where).partition(":")
    return place(file) + colon + rest if colon and file.startswith("/") else text(where)


def _finding(one: Mapping[str, Any]) -> dict[str, Any]:
    where = fields(one.get("where"))
    line = whole(where.get("line"))
    return {
        **{key: text(one.get(key)) for key in ("code", "title", "severity", "kind", "seen", "why")},
        "where": {
            **{key: text(where.get(key)) for key in ("function", "source", "module", "node")},
            "file": place(where.get("file")) if where.get("file") else "",
            "line": line,
            "around": _around(where.get("file"), line, where.get("source")),
        },
        "todo": [text(step) for step in items(one.get("todo"))],
        "upstream": [text(issue) for issue in items(one.get("upstream"))],
        "at": {key: text(value) for key, value in fields(one.get("data")).items() if key in ("node", "value")},
    }


def _around(file: Any, line: int, source: Any) -> list[list[Any]]:
    """The lines near the one that is named, only where the file on this machine still has it there."""
    if not isinstance(file, str) or not isinstance(source, str) or not source.strip() or line < 1:
        return []
    if Path(file).suffix != ".py" or linecache.getline(file, line).strip() != source.strip():
        return []
    near = range(max(1, line - AROUND), line + AROUND + 1)
    return [[n, text(linecache.getline(file, n).rstrip("\n"), 400)] for n in near if linecache.getline(file, n)]


def _reproduce(record: Mapping[str, Any], dims: Sequence[Mapping[str, Any]]) -> list[str]:
    """Commands that do the same again, quoted for a shell. The recipe's own path is not in a record."""
    settings, versions = fields(record.get("settings")), fields(record.get("versions"))
    known = name(fields(record.get("file")).get("name") or "MODEL.onnx")
    pins = [f"{name(key)}=={name(value).partition('+')[0]}" for key, value in versions.items()]
    pins = [one for one in pins if not one.startswith(("python==", "fairway=="))]
    found = [["pip", "install", *pins]] if pins else []
    level = settings.get("level")
    if level is not None:
        words = [f"{dim['name']}={dim['low']}..{dim['high']}" for dim in dims if dim["declared"]]
        words += [f"{dim['name']}%{dim['multiple']}" for dim in dims if dim["multiple"] > 1]
        domain = [one for word in words for one in ("--dim", word)]
        how = ["--level", name(level)]
        options = [] if number(settings.get("opset")) is None else ["--opset", str(whole(settings["opset"]))]
        options += [] if settings.get("remedies", True) else ["--no-remedies"]
        options += [one for route in items(settings.get("routes")) for one in ("--route", name(route))]
        target = known.replace(".wrong.onnx", ".onnx")
        found.append(["fairway", "export", "RECIPE.py", "-o", target, *domain, *how, *options])
        found += [["fairway", "verify", known, "RECIPE.py", *domain, *how]] if level != "none" else []
    return [shlex.join(words) for words in found]


def _quantised(made: Mapping[str, Any]) -> dict[str, Any] | None:
    if not made:
        return None
    source = fields(made.get("from"))
    return {
        "from": name(source.get("name")),
        "scheme": name(made.get("scheme")),
        "metric": name(made.get("metric")),
        "said": text(made.get("said")),
        "tried": [
            {
                "scheme": name(one.get("scheme")),
                **{key: number(one.get(key)) for key in ("bytes", "size_share", "drop")},
                "speed": text(fields(one.get("speed")).get("said")) or "not taken",
                "shipped": one.get("sha256") == fields(made.get("shipped")).get("sha256"),
            }
            for one in objects(made.get("tried"))
        ],
    }
