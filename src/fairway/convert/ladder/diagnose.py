"""Turns an exporter's error into findings that name the defect and the line."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch

from fairway.convert.ladder.size_questions import Question
from fairway.convert.rewrite.find import Suspect
from fairway.diagnostics import Code, Finding, Where
from fairway.diagnostics.signatures import recognize_error
from fairway.model.source import find_user_frame, is_foreign_library, is_user_code
from fairway.workers.attempt import Failure, Outcome

_FRAME = re.compile(
    r'(?:File "|^[ \t]{0,80})([^"\s]{1,1000}?\.py)"?[:,] (?:line )?(\d{1,9}),? in (\w{1,200})', re.MULTILINE
)

_LACKS_KERNEL = re.compile(r"UnsupportedOperatorException|There was no fake impl registered")
"""An operator cannot be run on fake tensors, so no way of torch.export captures it."""

_KINDS = {
    "choice": Code.MODULE_CHOSEN_BY_VALUE,
    "loop": Code.LOOP_UNROLLED,
    "list": Code.LIST_FROZEN,
    "branch": Code.BRANCH_FROZEN,
}


def diagnose(outcome: Outcome, suspects: Sequence[Suspect]) -> list[Finding]:
    """Return the findings on a worker that returned nothing."""
    if outcome.status == "timeout":
        return [Finding(Code.TIME_LIMIT, f"stopped after {outcome.seconds:.0f} s")]
    if outcome.status == "memory":
        return [Finding(Code.MEMORY_LIMIT, f"stopped at {outcome.peak_bytes / 2**30:.1f} GiB")]
    if outcome.status == "died":
        how = f"signal {outcome.signal}" if outcome.signal else "no answer"
        last = outcome.log.strip().splitlines()[-1:] or [""]
        return [Finding(Code.PROCESS_DIED, f"{how} after {outcome.seconds:.1f} s. {last[0]}".strip())]
    assert outcome.failure is not None
    return explain(outcome.failure, suspects)


def explain(failure: Failure, suspects: Sequence[Suspect]) -> list[Finding]:
    """Return the findings on an exporter's exception."""
    if failure.finding is not None:
        return [failure.finding]
    text = f"{failure.kind}: {failure.message}\n{failure.cause}"
    where, library_line = _find_lines(failure, text)
    inside = _describe_library_line(library_line)
    first = _get_first_line(failure)
    code, operator = recognize_error(failure.kind, text) or (Code.CAPTURE_FAILED, None)
    match code:
        case Code.CANNOT_WRITE:
            return [Finding(code, "no space left on device")]
        case Code.OPSET_NOT_HONORED | Code.BLOCKS_DIFFER:
            return [Finding(code, failure.message)]
        case Code.NO_TRANSLATION:
            return [Finding(code, (operator or first) + inside, where=where, data={"operator": operator})]
        case Code.DATA_DEPENDENT:
            return [*_find_causes(where, suspects), Finding(code, first + inside, where=where)]
        case Code.DIM_SPECIALIZED:
            questions: Sequence[Question] = failure.questions
            question = next((question for question in questions if question.fixes), next(iter(questions), None))
            seen = _find_constraint(text) or first
            if question is None:
                return [*_find_causes(where, suspects), Finding(code, seen, where=where)]
            causes = _find_causes(question.where, suspects)
            return [*causes, Finding(code, f"{question}; {seen}", where=question.where)]
    lacks_kernel = _LACKS_KERNEL.search(text) is not None
    return [Finding(code, first + inside, where=where, data={"lacks_kernel": True} if lacks_kernel else {})]


def _describe_library_line(line: Where | None) -> str:
    if line is None or line.file is None:
        return ""
    source = line.source or linecache.getline(line.file, line.line or 0).strip()
    return f"; in {'/'.join(Path(line.file).parts[-3:])}:{line.line} `{source}`"


def blame_warnings(warnings: Sequence[tuple[str, Where]], suspects: Sequence[Suspect]) -> list[Finding]:
    """Return the tracer's warnings in the user's code as findings; used once the file is known to be wrong."""
    findings: list[Finding] = []
    for message, where in warnings:
        if not where.file or not is_user_code(where.file):
            continue
        causes = _find_causes(where, suspects)
        findings += causes or [Finding(Code.DATA_DEPENDENT, message.split(". ")[0], where=find_user_frame([where]))]
    return list({(f.code, str(f.where)): f for f in findings}.values())


def blame_suspects(suspects: Sequence[Suspect], by_size: bool) -> list[Finding]:
    """Return the lines that exporters silently freeze; used for a wrong file if the exporter gave no warning.

    A branch is among them only if the file is right at some sizes, because exporters report branches on values.
    """
    return [Finding(_KINDS[s.kind], s.detail, where=s.where) for s in suspects if by_size or s.kind != "branch"]


def _find_causes(where: Where | None, suspects: Sequence[Suspect]) -> list[Finding]:
    """Return the suspects in the function in which the exporter failed, loops and choices before other lines."""
    if where is None or where.file is None:
        return []
    near = [s for s in suspects if s.where.file == where.file and _is_same_function(s.where, where)]
    exact = [s for s in near if s.where.line == where.line]
    order = {"choice": 0, "loop": 1, "list": 1, "branch": 2}
    chosen = sorted(exact or near, key=lambda s: order[s.kind])
    return [Finding(_KINDS[s.kind], s.detail, where=s.where) for s in chosen]


def _is_same_function(suspect: Where, where: Where) -> bool:
    if where.function is None or suspect.function is None:
        return abs((suspect.line or 0) - (where.line or 0)) <= 30
    return suspect.function.rsplit(".", 1)[-1] == where.function.rsplit(".", 1)[-1]


def _find_lines(failure: Failure, text: str) -> tuple[Where | None, Where | None]:
    """Return the user's line, and the line of the library that it calls, if the error comes from there.

    They are taken from the frames of the exception, or else from the frames that its message quotes. Without a user's
    line, a library's takes its place.
    """
    quoted = [Where(file=f, line=int(n), function=g) for f, n, g in _FRAME.findall(text)]
    for frames in (failure.frames, quoted):
        users = [i for i, f in enumerate(frames) if f.file and is_user_code(f.file)]
        for first, following in reversed(list(zip(users, [*users[1:], len(frames)], strict=False))):
            called = [f for f in frames[first + 1 : following] if f.file and is_foreign_library(f.file)]
            if called:
                return find_user_frame([frames[first]]), called[-1]
        if users:
            return find_user_frame([frames[users[-1]]]), None
    return find_user_frame(failure.frames) or find_user_frame(quoted), None


def _get_first_line(failure: Failure) -> str:
    """Return the error's first line, or the innermost cause behind an error that only wraps it."""
    lines = [line for line in (failure.cause or "").splitlines() if re.match(r"\w+(\.\w+)*: \S", line)]
    best = lines[-1] if lines and failure.kind in ("TranslationError", "TorchExportError") else ""
    own = failure.message.strip().splitlines() or [""]
    return (best or f"{failure.kind}: {own[0]}")[:400]


def _find_constraint(text: str) -> str | None:
    match = re.search(r"-\s{1,20}(.{0,300}?(?:specialized|not all values|inferred to be).{0,300})", text, re.IGNORECASE)
    return re.sub(r"\s+", " ", match[1])[:300] if match else None


def find_layer_mismatch(error: Exception, model: torch.nn.Module) -> Finding | None:
    """Return the finding on two layers that disagree on a size, with both sizes and the layer built for the other."""
    text = str(error)
    match = re.search(r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)", text)
    if match is None:
        return None
    arrives, built, width = int(match[2]), int(match[3]), int(match[4])
    fitting = [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and (module.in_features, module.out_features) == (built, width)
    ]
    layer = _find_layer_in_traceback(error, model) or (fitting[0] if fitting else None)
    name = layer or "a linear layer"
    return Finding(
        Code.LAYER_SIZES_DISAGREE,
        f"{arrives} features arrive at {name}, which was built for {built}",
        where=_find_place_in_module(error, layer),
        todo=(
            f"Build {name} with in_features={arrives}, or make what comes before it give {built}.",
            f"If it is an input that arrives here, declare it with {built}.",
        ),
        data={"arrives": arrives, "built": built, "layer": layer},
    )


def _find_layer_in_traceback(error: Exception, model: torch.nn.Module) -> str | None:
    names = {id(module): name for name, module in model.named_modules()}
    layer, trace = None, error.__traceback__
    while trace is not None:
        inner = trace.tb_frame.f_locals.get("self")
        layer = names.get(id(inner)) or layer
        trace = trace.tb_next
    return layer


def _find_place_in_module(error: Exception, layer: str | None) -> Where:
    frames = [
        Where(file=f.filename, line=f.lineno, function=f.name, source=f.line)
        for f in traceback.extract_tb(error.__traceback__)
    ]
    frame = find_user_frame(frames) or Where()
    return Where(frame.file, frame.line, frame.function, frame.source, layer)
