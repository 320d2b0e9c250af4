"""The probes through every exporter and every engine, in processes of their own.

A probe takes two ways: torch.export and then torch.onnx's dynamo exporter, and the TorchScript exporter. Each file is
then checked and run. A step that dies or hangs is a result: the process says what it is about to do before it does it.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairway.debug.doctor.probe_steps import CAPTURE, CHECKER, DYNAMO, ORT, PYTORCH, TORCHSCRIPT, ProbeStep
from fairway.debug.doctor.probes import EXAMPLE, OTHER, Line, Probe, weigh
from fairway.judge.runtimes.eager import to_array
from fairway.judge.runtimes.second import ENGINES, engines_here
from fairway.workers.attempt import Outcome, WorkerJob, Workers

RELATIVE, ABSOLUTE = 1e-4, 1e-5
"""How far an engine may be from PyTorch in float32 on numbers of this size; a wrong result is off by far more."""

NAME = "x"
"""Of the one input that every probe has."""

MOST_LOST = 3
"""Processes of one way that may be lost before the rest of its probes are left out."""

Tell = Callable[[Any], None]


def tools() -> tuple[str, ...]:
    """Every tool here, in the order in which a model meets them."""
    return (PYTORCH, CAPTURE, DYNAMO, TORCHSCRIPT, CHECKER, ORT, *engines_here())


def examine(workers: Workers, probes: Sequence[Probe], folder: Path, heard: Tell) -> list[ProbeStep]:
    """Every probe on both ways, side by side. A process walks from probe to probe; where it is lost, another goes on.

    Starting anew for each probe would cost three seconds every time: exporters load and build tables at the first call.
    """
    ways = {way: _Way(way, list(probes)) for way in (DYNAMO, TORCHSCRIPT)}

    def begun(text: str) -> None:
        left, total = sum(len(one.left) for one in ways.values()), len(ways) * len(probes)
        heard(("count", total - left, total, "probes", text))

    for one in ways.values():
        one.set_out(workers, folder, begun)
    for one in ways.values():
        while one.job is not None:
            one.arrive(workers.wait(one.job))
            one.set_out(workers, folder, begun)
    return [step for one in ways.values() for step in one.steps]


class _Way:
    """One exporter's way: the probes still to be walked, and what was seen so far."""

    def __init__(self, way: str, probes: list[Probe]) -> None:
        self.way, self.left, self.steps = way, probes, list[ProbeStep]()
        self.job: WorkerJob | None = None
        self.lost = 0
        self._begun: tuple[str, str] | None = None

    def set_out(self, workers: Workers, folder: Path, begun: Callable[[str], None]) -> None:
        """Starts a process for the probes that are left, unless too many were lost already."""
        self.job, self._begun = None, None
        if self.left and self.lost < MOST_LOST:
            work = partial(_walk, tuple(self.left), self.way, folder)
            self.job = workers.start(work, partial(self._hear, begun))

    def _hear(self, begun: Callable[[str], None], message: tuple[str, str, str, str]) -> None:
        kind, probe, tool, problem = message
        if kind == "begin":
            self._begun = probe, tool
            begun(f"{probe}: {tool}")
        elif kind == "end":
            self._begun = None
            self.steps.append(ProbeStep(probe, tool, self.way, problem))
        else:
            self.left = [one for one in self.left if one.name != probe]

    def arrive(self, outcome: Outcome) -> None:
        """What was begun and not ended is what the process was lost in; without such, the way is at its end."""
        if outcome.status == "done":
            self.left = []
            return
        self.lost += 1
        how = {
            "timeout": f"no answer within {outcome.seconds:.0f} s",
            "memory": f"stopped at {outcome.peak_bytes / 2**30:.1f} GiB",
            "died": f"its process died, {f'signal {outcome.signal}' if outcome.signal else 'without a word'}",
            "raised": outcome.failure.message if outcome.failure else "",
        }
        probe, tool = self._begun or (self.left[0].name, PYTORCH)
        self.steps.append(ProbeStep(probe, tool, self.way, how[outcome.status]))
        self.left = [one for one in self.left if one.name != probe]


class _Stop(Exception):
    """A step failed, so that the ones behind it have nothing to work on."""


def _walk(probes: Sequence[Probe], way: str, folder: Path, tell: Tell) -> None:
    """One way, probe after probe, in a process of its own."""
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.ERROR)
    for probe in probes:
        with torch.no_grad(), suppress(_Stop):
            _take(probe, way, folder / f"{probe.name}-{way}.onnx", partial(_step, probe.name, tell))
        tell(("over", probe.name, "", ""))


def _step(probe: str, tell: Tell, tool: str, work: Callable[[], Any]) -> Any:
    """One tool's turn, announced before and reported after. A string that it answers is what is wrong."""
    tell(("begin", probe, tool, ""))
    result, problem = None, ""
    try:
        result = work()
        problem = result if isinstance(result, str) else ""
    except Exception as error:
        problem = f"{type(error).__name__}: {_first(error)}"
    tell(("end", probe, tool, problem))
    if problem and tool in (PYTORCH, CAPTURE, DYNAMO, TORCHSCRIPT):
        raise _Stop
    return result


def _take(probe: Probe, way: str, path: Path, step: Callable[[str, Callable[[], Any]], Any]) -> None:
    model, example, other = Line(probe), probe.inputs(EXAMPLE), probe.inputs(OTHER)
    step(PYTORCH, lambda: _answered(model(other), probe.answer))
    wanted = [to_array(tensor) for tensor in model(other)]

    def judge(got: Sequence[Any]) -> str:
        return compare(wanted, [to_array(g) if isinstance(g, torch.Tensor) else np.asarray(g) for g in got])

    if way == DYNAMO:
        program = step(CAPTURE, lambda: _captured(model, example))
        step(CAPTURE, lambda: judge(program.module()(other)))
        step(DYNAMO, lambda: _by_dynamo(program, path))
    else:
        step(TORCHSCRIPT, lambda: _by_torchscript(model, example, path))
    step(CHECKER, lambda: _checked(path))
    step(ORT, lambda: judge(_by_onnxruntime(path, other)))
    for engine in engines_here():
        step(engine, lambda engine=engine: judge(ENGINES[engine](str(path))((NAME,), (other,))))  # type: ignore[misc]


def _answered(outputs: Sequence[torch.Tensor], answer: float) -> str:
    got = weigh(tuple(outputs))
    return "" if abs(got - answer) <= RELATIVE * max(abs(answer), 1) else f"answers {got!r}, where {answer!r} is known"


def _captured(model: Line, example: torch.Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(model, (example,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))


def _by_dynamo(program: torch.export.ExportedProgram, path: Path) -> None:
    exported = torch.onnx.export(program, dynamo=True, input_names=[NAME], verbose=False)
    assert exported is not None
    exported.save(path)


def _by_torchscript(model: Line, example: torch.Tensor, path: Path) -> None:
    axes = {NAME: {0: "batch"}}
    torch.onnx.export(model, (example,), str(path), dynamo=False, input_names=[NAME], dynamic_axes=axes)


def _checked(path: Path) -> None:
    import onnx

    onnx.checker.check_model(str(path), full_check=True)


def _by_onnxruntime(path: Path, tensor: torch.Tensor) -> Sequence[Any]:
    from fairway.judge.runtimes.ort import OrtSession

    return OrtSession(path).run((NAME,), (tensor,))


def compare(wanted: Sequence[Any], got: Sequence[Any]) -> str:
    """Where an engine's answer is not PyTorch's, or nothing. NaN is never right: no probe has one."""
    if len(got) != len(wanted):
        return f"gives {len(got)} outputs instead of {len(wanted)}"
    for mine, theirs in zip(got, wanted, strict=True):
        if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
            return f"gives {mine.dtype}{list(mine.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
        exact = theirs.dtype.kind != "f"
        off = mine != theirs if exact else ~(np.abs(mine - theirs) <= ABSOLUTE + RELATIVE * np.abs(theirs))
        if off.any():
            place = tuple(int(i) for i in np.argwhere(off)[0])
            return f"gives {mine[place]} instead of {theirs[place]} at {list(place)}"
    return ""


def _first(error: Exception) -> str:
    """The first line of the innermost cause: wrappers say only that something failed."""
    inner: BaseException = error
    while inner.__cause__ is not None:
        inner = inner.__cause__
    lines = [line for line in str(inner).splitlines() if line.strip()]
    return lines[0].strip()[:300] if lines else type(inner).__name__
