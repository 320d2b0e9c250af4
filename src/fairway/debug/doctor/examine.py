"""Run the probes through every exporter and every engine, in separate processes.

A probe is exported in two ways: by torch.export and torch.onnx's dynamo exporter, and by the TorchScript exporter. Each
file is then checked and run. A step that crashes or hangs is a result: the process reports each step before it starts.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from fairway.debug.doctor.probe_steps import CAPTURE, CHECKER, DYNAMO, ORT, PYTORCH, TORCHSCRIPT, ProbeStep
from fairway.debug.doctor.probes import EXAMPLE_BATCH, OTHER_BATCH, Probe, ProbeModel, weigh
from fairway.judge.runtimes.eager import to_array
from fairway.judge.runtimes.second import ENGINES, list_installed_engines
from fairway.record.progress import EventSink, ItemsCounted
from fairway.workers.attempt import Outcome, WorkerJob, Workers

RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-4, 1e-5
"""The allowed difference from PyTorch in float32 for numbers of this size; a wrong result is off by far more."""

INPUT_NAME = "x"
"""The name of the one input that every probe has."""

MAX_LOST_PROCESSES = 3
"""Lost processes of one exporter after which the rest of its probes are skipped."""

Array: TypeAlias = npt.NDArray[Any]
MessageSink = Callable[[tuple[str, str, str, str]], None]


def list_tools() -> tuple[str, ...]:
    """List every tool here, in the order in which a model passes through them."""
    return (PYTORCH, CAPTURE, DYNAMO, TORCHSCRIPT, CHECKER, ORT, *list_installed_engines())


def run_probes(workers: Workers, probes: Sequence[Probe], folder: Path, on_event: EventSink) -> list[ProbeStep]:
    """Run every probe through both exporters, in parallel. One process runs all probes; if it is lost, another
    continues.

    A new process for each probe would cost three seconds every time: exporters load modules and build tables at first
    use.
    """
    runs = {exporter: _ExporterRun(exporter, list(probes)) for exporter in (DYNAMO, TORCHSCRIPT)}

    def report(text: str) -> None:
        left, total = sum(len(run.pending) for run in runs.values()), len(runs) * len(probes)
        on_event(ItemsCounted(total - left, total, "probes", text))

    for run in runs.values():
        run.start(workers, folder, report)
    for run in runs.values():
        while run.job is not None:
            run.finish(workers.wait(run.job))
            run.start(workers, folder, report)
    return [step for run in runs.values() for step in run.steps]


class _ExporterRun:
    """One exporter's run: the probes still to do, and the steps so far."""

    def __init__(self, exporter: str, probes: list[Probe]) -> None:
        self.exporter, self.pending, self.steps = exporter, probes, list[ProbeStep]()
        self.job: WorkerJob | None = None
        self.lost = 0
        self._begun: tuple[str, str] | None = None

    def start(self, workers: Workers, folder: Path, report: Callable[[str], None]) -> None:
        """Start a process for the pending probes, unless too many were lost already."""
        self.job, self._begun = None, None
        if self.pending and self.lost < MAX_LOST_PROCESSES:
            work = partial(_run_worker, tuple(self.pending), self.exporter, folder)
            self.job = workers.start(work, partial(self._on_message, report))

    def _on_message(self, report: Callable[[str], None], message: tuple[str, str, str, str]) -> None:
        kind, probe, tool, problem = message
        if kind == "begin":
            self._begun = probe, tool
            report(f"{probe}: {tool}")
        elif kind == "end":
            self._begun = None
            self.steps.append(ProbeStep(probe, tool, self.exporter, problem))
        else:
            self.pending = [pending for pending in self.pending if pending.name != probe]

    def finish(self, outcome: Outcome) -> None:
        """Handle the end of a process.

        If the process was lost, the problem is in the step that began and did not end.
        """
        if outcome.status == "done":
            self.pending = []
            return
        self.lost += 1
        problems = {
            "timeout": f"no answer within {outcome.seconds:.0f} s",
            "memory": f"stopped at {outcome.peak_bytes / 2**30:.1f} GiB",
            "died": f"its process died, {f'signal {outcome.signal}' if outcome.signal else 'without a message'}",
            "raised": outcome.failure.message if outcome.failure else "",
        }
        probe, tool = self._begun or (self.pending[0].name, PYTORCH)
        self.steps.append(ProbeStep(probe, tool, self.exporter, problems[outcome.status]))
        self.pending = [pending for pending in self.pending if pending.name != probe]


class _ProbeStopped(Exception):
    """Raised if a step failed, so that the following steps have no input."""


def _run_worker(probes: Sequence[Probe], exporter: str, folder: Path, tell: MessageSink) -> None:
    """Run one exporter, probe after probe, in a separate process."""
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.ERROR)
    for probe in probes:
        with torch.no_grad(), suppress(_ProbeStopped):
            _probe_exporter(
                probe, exporter, folder / f"{probe.name}-{exporter}.onnx", partial(_run_step, probe.name, tell)
            )
        tell(("over", probe.name, "", ""))


def _run_step(probe: str, tell: MessageSink, tool: str, work: Callable[[], object]) -> object:
    """Run one tool, reported before and after. If it returns a string, this is the problem."""
    tell(("begin", probe, tool, ""))
    result, problem = None, ""
    try:
        result = work()
        problem = result if isinstance(result, str) else ""
    except Exception as error:
        problem = f"{type(error).__name__}: {_get_first_line(error)}"
    tell(("end", probe, tool, problem))
    if problem and tool in (PYTORCH, CAPTURE, DYNAMO, TORCHSCRIPT):
        raise _ProbeStopped
    return result


def _probe_exporter(probe: Probe, exporter: str, path: Path, step: Callable[[str, Callable[[], Any]], Any]) -> None:
    model, example, other = ProbeModel(probe), probe.inputs(EXAMPLE_BATCH), probe.inputs(OTHER_BATCH)
    step(PYTORCH, lambda: _check_answer(model(other), probe.answer))
    expected = [to_array(tensor) for tensor in model(other)]

    def judge(outputs: Sequence[object]) -> str:
        return find_mismatch(expected, [to_array(g) if isinstance(g, torch.Tensor) else np.asarray(g) for g in outputs])

    if exporter == DYNAMO:
        program = step(CAPTURE, lambda: _capture(model, example))
        step(CAPTURE, lambda: judge(program.module()(other)))
        step(DYNAMO, lambda: _export_by_dynamo(program, path))
    else:
        step(TORCHSCRIPT, lambda: _export_by_torchscript(model, example, path))
    step(CHECKER, lambda: _check_file(path))
    step(ORT, lambda: judge(_run_onnxruntime(path, other)))
    for engine in list_installed_engines():
        step(engine, lambda engine=engine: judge(ENGINES[engine](str(path))((INPUT_NAME,), (other,))))  # type: ignore[misc]


def _check_answer(outputs: Sequence[torch.Tensor], answer: float) -> str:
    total = weigh(tuple(outputs))
    is_right = abs(total - answer) <= RELATIVE_TOLERANCE * max(abs(answer), 1)
    return "" if is_right else f"returns {total!r} instead of {answer!r}"


def _capture(model: ProbeModel, example: torch.Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(model, (example,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))


def _export_by_dynamo(program: torch.export.ExportedProgram, path: Path) -> None:
    exported = torch.onnx.export(program, dynamo=True, input_names=[INPUT_NAME], verbose=False)
    assert exported is not None
    exported.save(path)


def _export_by_torchscript(model: ProbeModel, example: torch.Tensor, path: Path) -> None:
    axes = {INPUT_NAME: {0: "batch"}}
    torch.onnx.export(model, (example,), str(path), dynamo=False, input_names=[INPUT_NAME], dynamic_axes=axes)


def _check_file(path: Path) -> None:
    import onnx

    onnx.checker.check_model(str(path), full_check=True)


def _run_onnxruntime(path: Path, tensor: torch.Tensor) -> Sequence[Array]:
    from fairway.judge.runtimes.ort import OrtSession

    return OrtSession(path).run((INPUT_NAME,), (tensor,))


def find_mismatch(expected: Sequence[Array], outputs: Sequence[Array]) -> str:
    """Describe how an engine's outputs differ from PyTorch's; empty if they agree. NaN is always wrong."""
    if len(outputs) != len(expected):
        return f"gives {len(outputs)} outputs instead of {len(expected)}"
    for output, reference in zip(outputs, expected, strict=True):
        if output.dtype != reference.dtype or output.shape != reference.shape:
            return f"gives {output.dtype}{list(output.shape)} instead of {reference.dtype}{list(reference.shape)}"
        wrong = output != reference
        if reference.dtype.kind == "f":
            wrong = ~(np.abs(output - reference) <= ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * np.abs(reference))
        if wrong.any():
            index = tuple(int(i) for i in np.argwhere(wrong)[0])
            return f"gives {output[index]} instead of {reference[index]} at {list(index)}"
    return ""


def _get_first_line(error: Exception) -> str:
    """Return the first line of the innermost cause: wrappers only say that something failed."""
    inner: BaseException = error
    while inner.__cause__ is not None:
        inner = inner.__cause__
    lines = [line for line in str(inner).splitlines() if line.strip()]
    return lines[0].strip()[:300] if lines else type(inner).__name__
