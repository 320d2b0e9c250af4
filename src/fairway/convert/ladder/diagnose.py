"""From an exporter's words to a finding: which defect it is, and whose line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import torch

from fairway.convert.ladder.questions import Question
from fairway.convert.rewrite.find import Suspect
from fairway.diagnostics import Finding, Where
from fairway.diagnostics.signatures import recognise
from fairway.model.source import is_foreign_library, is_users, user_frame
from fairway.workers.attempt import Failure, Outcome

_FRAME = re.compile(
    r'(?:File "|^[ \t]{0,80})([^"\s]{1,1000}?\.py)"?[:,] (?:line )?(\d{1,9}),? in (\w{1,200})', re.MULTILINE
)

_KINDS = {"choice": "FW205", "loop": "FW206", "list": "FW217", "branch": "FW207"}


def diagnose(outcome: Outcome, suspects: Sequence[Suspect]) -> list[Finding]:
    """The findings behind a rung that gave no file."""
    if outcome.status == "timeout":
        return [Finding("FW501", f"stopped after {outcome.seconds:.0f} s")]
    if outcome.status == "memory":
        return [Finding("FW502", f"stopped at {outcome.peak_bytes / 2**30:.1f} GiB")]
    if outcome.status == "died":
        how = f"signal {outcome.signal}" if outcome.signal else "no answer"
        last = outcome.log.strip().splitlines()[-1:] or [""]
        return [Finding("FW503", f"{how} after {outcome.seconds:.1f} s. {last[0]}".strip())]
    assert outcome.failure is not None
    return explain(outcome.failure, suspects)


def explain(failure: Failure, suspects: Sequence[Suspect]) -> list[Finding]:
    """What an exception of the exporter means."""
    if failure.finding is not None:
        return [failure.finding]
    text = f"{failure.kind}: {failure.message}\n{failure.cause}"
    where = _place(failure, text)
    first = _first_line(failure)
    code, operator = recognise(failure.kind, text) or ("FW301", None)
    match code:
        case "FW009":
            return [Finding(code, "no space left on device")]
        case "FW306" | "FW328":
            return [Finding(code, failure.message)]
        case "FW304":
            seen = (operator or first) + _in_library(failure, where)
            return [Finding(code, seen, where=where, data={"operator": operator})]
        case "FW303":
            return [*_caused(where, suspects), Finding(code, first + _in_library(failure, where), where=where)]
        case "FW302":
            asked: Question | None = next(iter(failure.questions), None)
            seen = _constraint(text) or first
            if asked is None:
                return [*_caused(where, suspects), Finding(code, seen, where=where)]
            return [*_caused(asked.where, suspects), Finding(code, f"{asked}; {seen}", where=asked.where)]
    return [Finding(code, first + _in_library(failure, where), where=where)]


def _in_library(failure: Failure, where: Where | None) -> str:
    """Return the library's line that raised the error, if the place named is the user's call of it."""
    frames = [f for f in failure.frames if f.file and is_foreign_library(f.file)]
    if where is None or not frames or not is_users(where.file or ""):
        return ""
    inner = frames[-1]
    return f"; in {'/'.join(Path(inner.file or '').parts[-3:])}:{inner.line} `{inner.source}`"


def blame(warned: Sequence[tuple[str, Where]], suspects: Sequence[Suspect]) -> list[Finding]:
    """The tracer's warnings in the user's code, as findings; used once the file is known to be wrong."""
    found: list[Finding] = []
    for message, where in warned:
        if not where.file or not is_users(where.file):
            continue
        causes = _caused(where, suspects)
        found += causes or [Finding("FW303", message.split(". ")[0], where=user_frame([where]))]
    return list({(f.code, str(f.where)): f for f in found}.values())


def accuse(suspects: Sequence[Suspect], by_size: bool) -> list[Finding]:
    """Where nothing was said by the exporter, the lines that it is known to freeze; used once the file is wrong.

    A branch is among them only if the file is right at some sizes: one on a value does not go without a word.
    """
    return [Finding(_KINDS[s.kind], s.detail, where=s.where) for s in suspects if by_size or s.kind != "branch"]


def _caused(where: Where | None, suspects: Sequence[Suspect]) -> list[Finding]:
    """Suspects in the function that the exporter stumbled in; the loop or choice rather than the line that fed it."""
    if where is None or where.file is None:
        return []
    near = [s for s in suspects if s.where.file == where.file and _same_function(s.where, where)]
    exact = [s for s in near if s.where.line == where.line]
    order = {"choice": 0, "loop": 1, "list": 1, "branch": 2}
    chosen = sorted(exact or near, key=lambda s: order[s.kind])
    return [Finding(_KINDS[s.kind], s.detail, where=s.where) for s in chosen]


def _same_function(suspect: Where, where: Where) -> bool:
    if where.function is None or suspect.function is None:
        return abs((suspect.line or 0) - (where.line or 0)) <= 30
    return suspect.function.rsplit(".", 1)[-1] == where.function.rsplit(".", 1)[-1]


def _place(failure: Failure, text: str) -> Where | None:
    """The user's line: from the frames of the exception, else from those the message quotes."""
    quoted = [Where(file=f, line=int(n), function=g) for f, n, g in _FRAME.findall(text)]
    for frames in (failure.frames, quoted):
        place = user_frame([f for f in frames if f.file and is_users(f.file)])
        if place is not None:
            return place
    return user_frame(failure.frames)


def _first_line(failure: Failure) -> str:
    """The innermost cause says more than the wrapper around it."""
    lines = [line for line in (failure.cause or "").splitlines() if re.match(r"\w+(\.\w+)*: \S", line)]
    best = lines[-1] if lines and failure.kind in ("TranslationError", "TorchExportError") else ""
    own = failure.message.strip().splitlines() or [""]
    return (best or f"{failure.kind}: {own[0]}")[:400]


def _constraint(text: str) -> str | None:
    found = re.search(r"-\s{1,20}(.{0,300}?(?:specialized|not all values|inferred to be).{0,300})", text, re.IGNORECASE)
    return re.sub(r"\s+", " ", found[1])[:300] if found else None


def layer_sizes(error: Exception, model: torch.nn.Module) -> Finding | None:
    """Two layers that disagree on a size: both numbers, and the layer that was built for the other one."""
    text = str(error)
    found = re.search(r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)", text)
    if found is None:
        return None
    arrives, built, width = int(found[2]), int(found[3]), int(found[4])
    fitting = [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and (module.in_features, module.out_features) == (built, width)
    ]
    layer = _layer_in_traceback(error, model) or (fitting[0] if fitting else None)
    name = layer or "a linear layer"
    return Finding(
        "FW212",
        f"{arrives} features arrive at {name}, which was built for {built}",
        where=_with_module(error, layer),
        todo=(
            f"Build {name} with in_features={arrives}, or make what comes before it give {built}.",
            f"If it is an input that arrives here, declare it with {built}.",
        ),
        data={"arrives": arrives, "built": built, "layer": layer},
    )


def _layer_in_traceback(error: Exception, model: torch.nn.Module) -> str | None:
    names = {id(module): name for name, module in model.named_modules()}
    layer, trace = None, error.__traceback__
    while trace is not None:
        inner = trace.tb_frame.f_locals.get("self")
        layer = names.get(id(inner)) or layer
        trace = trace.tb_next
    return layer


def _with_module(error: Exception, layer: str | None) -> Where:
    import traceback

    frames = [
        Where(file=f.filename, line=f.lineno, function=f.name, source=f.line)
        for f in traceback.extract_tb(error.__traceback__)
    ]
    frame = user_frame(frames) or Where()
    return Where(frame.file, frame.line, frame.function, frame.source, layer)
