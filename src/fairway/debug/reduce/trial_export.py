"""Export one program by the stock exporter, as users call it, and compare the file with PyTorch."""

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
import torch

from fairway.convert.ladder.translation_tables import use_built_tables
from fairway.debug.reduce.program import Program
from fairway.debug.reduce.program_replay import replay
from fairway.debug.reduce.suspect_calls import Line, list_exception_lines, list_node_lines
from fairway.diagnostics import Code
from fairway.diagnostics.signatures import recognize_error
from fairway.judge.judge import tidy_runtime_message
from fairway.judge.runtimes.eager import to_array
from fairway.judge.yardstick import Array
from fairway.model.ort_session import open_session
from fairway.model.signatures import read_forward_signature
from fairway.workers.attempt import Limits, Outcome, Workers

WRONG_SHARE = 1e-3
"""A difference of this share of the largest value counts as wrong: upstream should need no yardstick to see it."""

EXPORTERS = ("dynamo", "trace")


@dataclass(frozen=True)
class FailureSignature:
    """The features by which a failure is recognized."""

    stage: str
    """export, load, run, compare; time, memory, crash; or check, if a command decides."""
    code: str
    """The code of the finding."""
    detail: str
    """The exception and its message without numbers and names, the operator, or the kind of difference."""

    def __str__(self) -> str:
        return f"{self.code} at {self.stage}: {self.detail}"


@dataclass(frozen=True)
class TrialOutcome:
    """The end of a trial. Without a signature, the file is right at the sizes tried."""

    signature: FailureSignature | None
    message: str = ""
    other: int | None = None
    """The other input at which it failed; None for the example, or if it failed before any input."""
    lines: tuple[Line, ...] = ()
    """Lines of code that the failure points at, likeliest first."""
    output: int | None = None
    """The index of the wrong output."""


def list_dynamic_axes(program: Program, values: Sequence[torch.Tensor]) -> list[dict[int, str]]:
    """Return the names of the open axes, by input.

    Without them, what is cut off would fix the sizes, and a failure that needs an open size would disappear or change.
    """
    sized = zip(program.inputs, values, strict=True)
    return [
        {axis: program.dims.get(value.shape[axis], f"x{i}_{axis}") for axis in program.list_open_axes(ref)}
        for i, (ref, value) in enumerate(sized)
    ]


def get_inputs(program: Program, other: int | None = None) -> list[torch.Tensor]:
    """Return the inputs at the example, or at one of the other inputs."""
    table = program.seen if other is None else program.others[other]
    return [table[ref] for ref in program.inputs]


@dataclass(frozen=True)
class TrialCase:
    """A model that takes plain tensors, its inputs at the example and elsewhere, and the open axes."""

    model: torch.nn.Module
    points: tuple[Sequence[torch.Tensor], ...]
    axes: Sequence[dict[int, str]]

    @classmethod
    def of(cls, program: Program) -> TrialCase:
        points = tuple(get_inputs(program, other) for other in (None, *range(len(program.others))))
        return cls(replay(program).eval(), points, list_dynamic_axes(program, points[0]))


def export_case(case: TrialCase, exporter: str, path: Path) -> None:
    """Export as the final script does."""
    values = tuple(case.points[0])
    names = [f"x{i}" for i in range(len(values))]
    with warnings.catch_warnings(), use_built_tables():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            shapes: Any = tuple(dict.fromkeys(axes_of_input, torch.export.Dim.DYNAMIC) for axes_of_input in case.axes)
            kinds = {parameter.kind for parameter in read_forward_signature(case.model).parameters.values()}
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


def run_trial(case: TrialCase, exporter: str) -> TrialOutcome:
    """Export, load, run and compare at the example and at the other inputs. Runs inside a worker."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        expected = _compute_answers(case.model, case.points)
        if not hasattr(case.model, "program"):
            expected = iter(list(expected))  # exporting may change a model but not a list of calls
        first = next(expected)
        if first is None:
            return TrialOutcome(None, "PyTorch itself fails")
        try:
            export_case(case, exporter, path)
        except Exception as error:
            return describe_failed_export(error)
        try:
            session = open_session(path)
        except Exception as error:
            message = tidy_runtime_message(str(error))
            return TrialOutcome(
                FailureSignature("load", Code.RUNTIME_REFUSES, normalize_message(message)),
                message,
                lines=list_node_lines(path, message),
            )
        for other, outputs in zip((None, *range(len(case.points) - 1)), chain([first], expected), strict=True):
            seen = None if outputs is None else _compare_outputs(session, *outputs)
            if seen is not None:
                lines = list_node_lines(path, seen.message) if seen.output is None else ()
                return replace(seen, other=other, lines=lines)
    return TrialOutcome(None, "right")


def _compute_answers(model: torch.nn.Module, points: Sequence[Sequence[torch.Tensor]]) -> Iterator[Any]:
    """Yield the inputs and PyTorch's outputs for each point, or None if PyTorch fails or reads uninitialized memory.

    They are computed on demand, because a large model is slow and most trials end at the first point.
    """
    for values in points:
        try:
            with torch.no_grad():
                answers, answers_with_filled_memory = (
                    [to_array(t) for t in model(*(v.clone() for v in values))] for _ in _fill_memory_second_time()
                )
            answer = (values, answers) if not any(map(_measure_error, answers, answers_with_filled_memory)) else None
        except Exception:
            answer = None
        yield answer


def _fill_memory_second_time() -> Iterator[None]:
    """Yield twice, the second time with `torch.empty` filled. Cutting often leaves a tensor that nothing was written
    to.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(False)


def _measure_error(ours: Array, theirs: Array) -> float:
    """Return how far two arrays are apart, or 0 if that is tolerable; infinite for misplaced NaN or infinity."""
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if not np.array_equal(np.isnan(a), np.isnan(b)) or not np.array_equal(np.isinf(a), np.isinf(b)):
        return float("inf")
    fine = np.isfinite(a)
    off = float(np.abs(a - b)[fine].max(initial=0.0))
    return off if off > WRONG_SHARE * max(1.0, float(np.abs(a[fine]).max(initial=0.0))) else 0.0


def _compare_outputs(session: Any, values: Sequence[torch.Tensor], expected: Sequence[Any]) -> TrialOutcome | None:
    input_names = {i.name for i in session.get_inputs()}
    feeds = {f"x{i}": np.asarray(to_array(v), order="C") for i, v in enumerate(values) if f"x{i}" in input_names}
    try:
        outputs = session.run(None, feeds)
    except Exception as error:
        message = tidy_runtime_message(str(error))
        node = re.search(r"running (\w+) node", message)
        return TrialOutcome(
            FailureSignature("run", Code.RUNTIME_FAILS, node[1] if node else normalize_message(message)), message
        )
    if len(outputs) != len(expected):
        message = f"{len(expected)} outputs in PyTorch, {len(outputs)} in the file"
        return TrialOutcome(FailureSignature("compare", Code.OUTPUTS_DIFFER, "outputs"), message)
    for i, (ours, theirs) in enumerate(zip(expected, outputs, strict=True)):
        if ours.shape != theirs.shape:
            message = f"output {i} is {list(ours.shape)} in PyTorch, {list(theirs.shape)} in the file"
            return TrialOutcome(FailureSignature("compare", Code.SHAPE_DIFFERS, "shape"), message, output=i)
        off = _measure_error(ours, theirs)
        if off:
            is_misplaced = off == float("inf")
            difference = "NaN or infinity in different places" if is_misplaced else f"off by {off:.3g}"
            message = f"output {i}: {difference}"
            return TrialOutcome(
                FailureSignature("compare", Code.NONFINITE_DIFFERS if is_misplaced else Code.NUMBERS_DIFFER, "numbers"),
                message,
                output=i,
            )
    return None


def describe_failed_export(error: BaseException) -> TrialOutcome:
    """Describe it by its finding, the innermost exception and the message."""
    errors = [error]
    while (inner := errors[-1].__cause__ or errors[-1].__context__) is not None and inner not in errors:
        errors.append(inner)
    text = "\n".join(f"{type(exception).__name__}: {exception}" for exception in errors)
    code, operator = recognize_error(type(error).__name__, text) or (Code.CAPTURE_FAILED, None)
    last = errors[-1]
    words = operator or (
        "" if code in (Code.DIM_SPECIALIZED, Code.DATA_DEPENDENT) else normalize_message(str(last).split("\n")[0])
    )
    signature = FailureSignature("export", code, f"{type(last).__name__} {words}".strip())
    return TrialOutcome(signature, f"{type(last).__name__}: {last}", lines=list_exception_lines(errors))


def normalize_message(text: str) -> str:
    """Remove everything from a message that differs from one run or size to the next."""
    text = re.sub(r"0x[0-9a-f]+|\d+", "#", text)
    text = re.sub(r"'[^']{0,200}'|\"[^\"]{0,200}\"|\b[su]#\b", "…", text)
    while (shorter := re.sub(r"[(\[][^()\[\]]*[#…][^()\[\]]*[)\]]", "…", text)) != text:
        text = shorter  # sizes and expressions of sizes, innermost first
    return re.sub(r"\s+", " ", text)[:160].strip()


def read_outcome(outcome: Outcome) -> TrialOutcome:
    """Return the outcome of a worker, even if its process crashed."""
    if outcome.status == "done":
        seen: TrialOutcome = outcome.value
        return seen
    if outcome.status == "timeout":
        return TrialOutcome(
            FailureSignature("time", Code.TIME_LIMIT, "does not end"), f"no end after {outcome.seconds:.0f} s"
        )
    if outcome.status == "memory":
        return TrialOutcome(
            FailureSignature("memory", Code.MEMORY_LIMIT, "takes too much memory"),
            f"{outcome.peak_bytes / 2**30:.1f} GiB",
        )
    if outcome.status == "died":
        return TrialOutcome(
            FailureSignature("crash", Code.PROCESS_DIED, f"signal {outcome.signal}"),
            f"killed by signal {outcome.signal}",
        )
    message = outcome.failure.message if outcome.failure else outcome.status
    return TrialOutcome(None, f"the trial itself failed: {message}")


def is_same_failure(status: int, stderr: str, seen: TrialOutcome) -> bool:
    """Return whether a script's exit code and standard error show the failure that was seen."""
    signature = seen.signature
    if signature is None or status == 0:
        return False
    match signature.stage:
        case "export":
            return _has_signature(signature, stderr)
        case "load" | "run":
            nodes = re.findall(r"running (\w+) node", stderr)
            words = normalize_message(tidy_runtime_message(stderr[max(0, stderr.rfind("[ONNXRuntimeError]")) :]))
            return signature.detail == (nodes[-1] if nodes else words)
        case "compare":
            return _read_assertion(stderr) == signature.code
        case "crash":
            return signature.detail == f"signal {-status}"
    return False


def _has_signature(signature: FailureSignature, stderr: str) -> bool:
    """Return whether a traceback has the exception, the finding and the message of a signature."""
    outer = re.findall(r"^(?:[\w.]+\.)?(\w+)(?:: .*)?$", stderr, re.MULTILINE)  # the last exception is the one raised
    code, operator = recognize_error(next((n for n in reversed(outer) if n.endswith("Error")), ""), stderr) or (
        Code.CAPTURE_FAILED,
        None,
    )
    kind, _, words = signature.detail.partition(" ")
    lines = re.findall(rf"^(?:[\w.]+\.)?{re.escape(kind)}(?:: (.*))?$", stderr, re.MULTILINE)
    if code != signature.code or not lines:
        return False
    return not words or words == operator or any(normalize_message(line) == words for line in lines)


def _read_assertion(stderr: str) -> str | None:
    """Return the code of the script's comparison that failed."""
    if "AssertionError" not in stderr:
        return None
    last = stderr[stderr.rindex("AssertionError") :]
    if "PyTorch gives" in last:
        return Code.OUTPUTS_DIFFER if " outputs, the file" in last else Code.SHAPE_DIFFERS
    return Code.NONFINITE_DIFFERS if "location mismatch" in last else Code.NUMBERS_DIFFER


class TrialRunner:
    """Tries programs, each in a separate process."""

    def __init__(self, exporter: str, seconds: float, tick: Callable[[], None] = lambda: None) -> None:
        self.exporter = exporter
        self._limits, self._tick = Limits(seconds), tick
        self.trials = 0

    def __call__(self, program: Program) -> TrialOutcome:
        if self.exporter == "dynamo" and program.list_undeclarable_inputs():
            return TrialOutcome(None, "an open size of one was cut off, which cannot be declared")
        return self.judge(TrialCase.of(program))

    def judge(self, case: TrialCase) -> TrialOutcome:
        self.trials += 1
        with Workers(self._limits) as workers:
            workers.tick = self._tick
            return read_outcome(workers.run(lambda tell: run_trial(case, self.exporter)))
