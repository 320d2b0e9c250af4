"""One program through the stock exporter, as its users call it, and what came of it."""

from __future__ import annotations

import inspect
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from fairway.convert.ladder.tables import built_tables
from fairway.debug.reduce.program import Program
from fairway.debug.reduce.program_replay import replay
from fairway.debug.reduce.suspect_calls import Line, by_exceptions, by_node
from fairway.diagnostics.signatures import recognise
from fairway.judge.judge import tidy
from fairway.judge.runtimes.eager import to_array
from fairway.judge.yardstick import Array
from fairway.workers.attempt import Limits, Outcome, Workers

WRONG = 1e-3
"""Of the largest value: how far off counts as another answer. What is reported upstream should need no yardstick."""

EXPORTERS = ("dynamo", "trace")


@dataclass(frozen=True)
class FailureSignature:
    """By what a failure is known again."""

    stage: str
    """export, load, run, compare; time, memory, crash; or check, where a command decides."""
    code: str
    """The finding that it is."""
    detail: str
    """The exception and its words without numbers and names, the operator, or what differs."""

    def __str__(self) -> str:
        return f"{self.code} at {self.stage}: {self.detail}"


@dataclass(frozen=True)
class Seen:
    """How a trial ended. No signature: it is right at the sizes tried."""

    signature: FailureSignature | None
    said: str = ""
    other: int | None = None
    """At which of the other inputs; None for the example, and where the failure comes before any input."""
    lines: tuple[Line, ...] = ()
    """Lines of code that the failure points at, the likeliest first."""
    output: int | None = None
    """Which output was wrong."""


def dynamic(program: Program, values: Sequence[torch.Tensor]) -> list[dict[int, str]]:
    """By input, the names of the axes that vary.

    Else what is cut off would fix them, and a failure that takes an open size would be gone, or be another.
    """
    sized = zip(program.inputs, values, strict=True)
    return [
        {axis: program.dims.get(value.shape[axis], f"x{i}_{axis}") for axis in program.open_axes(ref)}
        for i, (ref, value) in enumerate(sized)
    ]


def values_at(program: Program, other: int | None = None) -> list[torch.Tensor]:
    """The inputs at the example, or at one of the other inputs."""
    table = program.seen if other is None else program.others[other]
    return [table[ref] for ref in program.inputs]


@dataclass(frozen=True)
class TrialCase:
    """A model that takes plain tensors, its inputs at the example and elsewhere, and the axes that vary."""

    model: torch.nn.Module
    points: tuple[Sequence[torch.Tensor], ...]
    axes: Sequence[dict[int, str]]

    @classmethod
    def of(cls, program: Program) -> TrialCase:
        points = tuple(values_at(program, other) for other in (None, *range(len(program.others))))
        return cls(replay(program).eval(), points, dynamic(program, points[0]))


def export(case: TrialCase, exporter: str, path: Path) -> None:
    """Plainly, as in the script that comes out."""
    values = tuple(case.points[0])
    names = [f"x{i}" for i in range(len(values))]
    with warnings.catch_warnings(), built_tables():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            shapes: Any = tuple(dict.fromkeys(one, torch.export.Dim.DYNAMIC) for one in case.axes)
            kinds = {parameter.kind for parameter in inspect.signature(case.model.forward).parameters.values()}
            shapes = (shapes,) if inspect.Parameter.VAR_POSITIONAL in kinds else shapes
            torch.onnx.export(
                case.model,
                values,
                path,
                dynamo=True,
                dynamic_shapes=shapes,
                input_names=names,
                external_data=False,
                verbose=False,
            )
        else:
            axes = dict(zip(names, case.axes, strict=True))
            torch.onnx.export(case.model, values, path, dynamo=False, input_names=names, dynamic_axes=axes)


def attempt(case: TrialCase, exporter: str) -> Seen:
    """Export, load, run and compare at the example and at the other inputs. Run inside a worker."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        wanted = _answers(case.model, case.points)
        if not hasattr(case.model, "program"):
            wanted = iter(list(wanted))  # a model may keep what an exporter left in it; a list of calls keeps nothing
        first = next(wanted)
        if first is None:
            return Seen(None, "PyTorch itself refuses this")
        try:
            export(case, exporter, path)
        except Exception as error:
            return failed_export(error)
        try:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            said = tidy(str(error))
            return Seen(FailureSignature("load", "FW407", plain(said)), said, lines=by_node(path, said))
        for other, answer in zip((None, *range(len(case.points) - 1)), chain([first], wanted), strict=True):
            seen = None if answer is None else _compare(session, *answer)
            if seen is not None:
                lines = by_node(path, seen.said) if seen.output is None else ()
                return replace(seen, other=other, lines=lines)
    return Seen(None, "right")


def _answers(model: torch.nn.Module, points: Sequence[Sequence[torch.Tensor]]) -> Iterator[Any]:
    """PyTorch's answers, None where it refuses or where they hang on memory that nobody has written to.

    Each when it is asked for: what is large takes long at seventeen inputs, and mostly fails before the second.
    """
    for values in points:
        try:
            with torch.no_grad():
                answers, again = ([to_array(t) for t in model(*(v.clone() for v in values))] for _ in _memories())
            found = (values, answers) if not any(map(_off, answers, again)) else None
        except Exception:
            found = None
        yield found


def _memories() -> Iterator[None]:
    """Twice: as it comes, and with `torch.empty` filled. Cutting easily leaves a tensor that nothing was written to."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(False)


def _off(ours: Array, theirs: Array) -> float:
    """How far two answers are apart, where that is too far: 0 if not, infinite where NaN or infinity is misplaced."""
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if not np.array_equal(np.isnan(a), np.isnan(b)) or not np.array_equal(np.isinf(a), np.isinf(b)):
        return float("inf")
    fine = np.isfinite(a)
    off = float(np.abs(a - b)[fine].max(initial=0.0))
    return off if off > WRONG * max(1.0, float(np.abs(a[fine]).max(initial=0.0))) else 0.0


def _compare(session: Any, values: Sequence[torch.Tensor], wanted: Sequence[Any]) -> Seen | None:
    taken = {i.name for i in session.get_inputs()}
    feeds = {f"x{i}": np.asarray(to_array(v), order="C") for i, v in enumerate(values) if f"x{i}" in taken}
    try:
        got = session.run(None, feeds)
    except Exception as error:
        said = tidy(str(error))
        node = re.search(r"running (\w+) node", said)
        return Seen(FailureSignature("run", "FW408", node[1] if node else plain(said)), said)
    if len(got) != len(wanted):
        said = f"{len(wanted)} outputs in PyTorch, {len(got)} in the file"
        return Seen(FailureSignature("compare", "FW404", "outputs"), said)
    for i, (ours, theirs) in enumerate(zip(wanted, got, strict=True)):
        if ours.shape != theirs.shape:
            said = f"output {i} is {list(ours.shape)} in PyTorch, {list(theirs.shape)} in the file"
            return Seen(FailureSignature("compare", "FW403", "shape"), said, output=i)
        off = _off(ours, theirs)
        if off:
            odd = off == float("inf")
            what = "NaN or infinity in other places" if odd else f"off by {off:.3g}"
            said = f"output {i}: {what}"
            return Seen(FailureSignature("compare", "FW405" if odd else "FW401", "numbers"), said, output=i)
    return None


def failed_export(error: BaseException) -> Seen:
    """Known again by the finding it is, the innermost exception, and its words."""
    errors = [error]
    while (inner := errors[-1].__cause__ or errors[-1].__context__) is not None and inner not in errors:
        errors.append(inner)
    text = "\n".join(f"{type(one).__name__}: {one}" for one in errors)
    code, operator = recognise(type(error).__name__, text) or ("FW301", None)
    last = errors[-1]
    words = operator or ("" if code in ("FW302", "FW303") else plain(str(last).split("\n")[0]))
    signature = FailureSignature("export", code, f"{type(last).__name__} {words}".strip())
    return Seen(signature, f"{type(last).__name__}: {last}", lines=by_exceptions(errors))


def plain(text: str) -> str:
    """Words without what differs from one run or size to the next."""
    text = re.sub(r"0x[0-9a-f]+|\d+", "#", text)
    text = re.sub(r"'[^']{0,200}'|\"[^\"]{0,200}\"|\b[su]#\b", "…", text)
    while (shorter := re.sub(r"[(\[][^()\[\]]*[#…][^()\[\]]*[)\]]", "…", text)) != text:
        text = shorter  # sizes and what is computed from them, the innermost first
    return re.sub(r"\s+", " ", text)[:160].strip()


def settle(outcome: Outcome) -> Seen:
    """A trial's end as a signature, also where its process ended otherwise."""
    if outcome.status == "done":
        seen: Seen = outcome.value
        return seen
    if outcome.status == "timeout":
        return Seen(FailureSignature("time", "FW501", "does not end"), f"no end after {outcome.seconds:.0f} s")
    if outcome.status == "memory":
        return Seen(
            FailureSignature("memory", "FW502", "takes too much memory"), f"{outcome.peak_bytes / 2**30:.1f} GiB"
        )
    if outcome.status == "died":
        return Seen(
            FailureSignature("crash", "FW503", f"signal {outcome.signal}"), f"killed by signal {outcome.signal}"
        )
    said = outcome.failure.message if outcome.failure else outcome.status
    return Seen(None, f"the trial itself failed: {said}")


def failed_script(status: int, said: str, seen: Seen) -> bool:
    """Whether a script's end, by what it said on standard error, is the failure that was seen."""
    signature = seen.signature
    if signature is None or status == 0:
        return False
    match signature.stage:
        case "export":
            return _same_words(signature, said)
        case "load" | "run":
            nodes = re.findall(r"running (\w+) node", said)
            words = plain(tidy(said[max(0, said.rfind("[ONNXRuntimeError]")) :]))
            return signature.detail == (nodes[-1] if nodes else words)
        case "compare":
            return _assertion(said) == signature.code
        case "crash":
            return signature.detail == f"signal {-status}"
    return False


def _same_words(signature: FailureSignature, said: str) -> bool:
    """Whether a traceback has the exception, the finding and the words of a signature."""
    outer = re.findall(r"^(?:[\w.]+\.)?(\w+)(?:: .*)?$", said, re.MULTILINE)  # the last exception is the one raised
    code, operator = recognise(next((n for n in reversed(outer) if n.endswith("Error")), ""), said) or ("FW301", None)
    kind, _, words = signature.detail.partition(" ")
    lines = re.findall(rf"^(?:[\w.]+\.)?{re.escape(kind)}(?:: (.*))?$", said, re.MULTILINE)
    if code != signature.code or not lines:
        return False
    return not words or words == operator or any(plain(line) == words for line in lines)


def _assertion(said: str) -> str | None:
    """Which of the script's comparisons failed."""
    if "AssertionError" not in said:
        return None
    last = said[said.rindex("AssertionError") :]
    if "PyTorch gives" in last:
        return "FW404" if " outputs, the file" in last else "FW403"
    return "FW405" if "location mismatch" in last else "FW401"


class TrialRunner:
    """Tries programs, each in a process of its own."""

    def __init__(self, exporter: str, seconds: float, tick: Callable[[], None] = lambda: None) -> None:
        self.exporter = exporter
        self._limits, self._tick = Limits(seconds), tick
        self.tried = 0

    def __call__(self, program: Program) -> Seen:
        if self.exporter == "dynamo" and program.unsaid():
            return Seen(None, "an open size of one was cut off, which cannot be declared")
        return self.judge(TrialCase.of(program))

    def judge(self, case: TrialCase) -> Seen:
        self.tried += 1
        with Workers(self._limits) as workers:
            workers.tick = self._tick
            return settle(workers.run(lambda tell: attempt(case, self.exporter)))
