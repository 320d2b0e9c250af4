"""The program of one arm: a process that opens one thing, runs it when told, and times itself.

It answers each line of JSON on standard input with one. What it opens is told in the first: ONNX Runtime and OpenVINO
are opened without torch, so that memory and loading time are those of a service that has none.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fairway.tune.bench.paired_timing import clock

Call = Callable[[], object]
Opened = Callable[[list[Any]], Call]
"""From the input tensors of one point to the call that is timed."""

LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
"""ONNX Runtime's optimisation levels by the names used here."""

BFLOAT16 = 16
"""Its number among ONNX's dtypes."""


def open_ort(job: dict[str, Any]) -> Opened:
    session = _session(job)
    return lambda arrays: _ort_call(session, job, arrays)


def _session(job: dict[str, Any], profile: str | None = None) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[job["level"]])
    options.intra_op_num_threads = job["threads"]
    options.inter_op_num_threads = 1
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = profile
        options.optimized_model_filepath = f"{profile}.onnx"
        external = "session.optimized_model_external_initializers_file_name"
        options.add_session_config_entry(external, f"{Path(profile).name}.data")
    return onnxruntime.InferenceSession(job["path"], options, providers=["CPUExecutionProvider"])


def _ort_call(session: Any, job: dict[str, Any], arrays: list[Any]) -> Call:
    if "bfloat16" not in job["dtypes"]:
        feeds = dict(zip(job["names"], arrays, strict=True))
        return lambda: session.run(None, feeds)

    from onnxruntime import OrtValue

    values = {
        name: OrtValue.ortvalue_from_numpy_with_onnx_type(array, BFLOAT16)
        if dtype == "bfloat16"
        else OrtValue.ortvalue_from_numpy(array)
        for name, array, dtype in zip(job["names"], arrays, job["dtypes"], strict=True)
    }
    return lambda: session.run_with_ort_values(None, values)


def open_openvino(job: dict[str, Any]) -> Opened:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": job["threads"], "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(job["path"], "CPU", settings)

    def ready(arrays: list[Any]) -> Call:
        if "bfloat16" in job["dtypes"]:
            raise NotImplementedError("bfloat16 inputs are not given to OpenVINO here")
        feeds = dict(zip(job["names"], arrays, strict=True))
        return lambda: compiled(feeds)

    return ready


def open_torch(job: dict[str, Any]) -> Opened:
    """PyTorch as its users run it: in eval mode, without gradients, with every fast path it has."""
    import torch

    from fairway.model.recipe import Overrides, load_subject

    torch.set_num_threads(job["threads"])
    said = job["overrides"]
    bounds = {name: (low, high) for name, (low, high) in said["bounds"].items()}
    checkpoint = None if said["checkpoint"] is None else Path(said["checkpoint"])
    overrides = Overrides(tuple(said["inputs"]), bounds, said["multiples"], checkpoint, said["trust"])
    subject = load_subject(job["recipe"], overrides)
    model: Any = subject.model.eval()
    if job["engine"] == "compile":
        model = torch.compile(model)

    def ready(arrays: list[Any]) -> Call:
        tensors = [
            torch.from_numpy(array).view(getattr(torch, dtype)) if dtype == "bfloat16" else torch.from_numpy(array)
            for array, dtype in zip(arrays, job["dtypes"], strict=True)
        ]
        args, kwargs = subject.call(tensors)

        def call() -> object:
            with torch.inference_mode():
                return model(*args, **kwargs)

        return call

    return ready


ENGINES: dict[str, Callable[[dict[str, Any]], Opened]] = {
    "eager": open_torch,
    "compile": open_torch,
    "ort": open_ort,
    "openvino": open_openvino,
}
_IMPORTS = {"eager": "torch", "compile": "torch", "ort": "onnxruntime", "openvino": "openvino"}


class Process:
    """What the process knows: its job, what it opened, and the calls it made ready."""

    def __init__(self) -> None:
        self.job: dict[str, Any] = {}
        self.opened: Opened | None = None
        self.calls: dict[int, Call] = {}

    def open(self, job: dict[str, Any]) -> dict[str, Any]:
        __import__(_IMPORTS[job["engine"]])  # the imports are the same for every file: they are not what is compared
        before = memory("VmRSS")
        started = time.perf_counter()
        self.job, self.opened = job, ENGINES[job["engine"]](job)
        return {"seconds": time.perf_counter() - started, "before_bytes": before}

    def time(self, point: int, times: int, calls: int) -> dict[str, Any]:
        assert self.opened is not None
        if point not in self.calls:
            self.calls = {point: self.opened(arrays_at(self.job, point))}  # one at a time: inputs may be large
        _move()
        return {"seconds": clock(self.calls[point], times, calls), "peak_bytes": memory("VmHWM")}

    def profile(self, job: dict[str, Any], point: int, calls: int, prefix: str) -> dict[str, Any]:
        """Runs with ONNX Runtime's profiler on; answers where it wrote."""
        session = _session(job, prefix)
        call = _ort_call(session, job, arrays_at(job, point))
        for _ in range(calls):
            call()
        return {"events": session.end_profiling()}


def _move() -> None:
    """Goes on from a core drawn at random, free to leave it: a process stays where it is, and two would each have the
    neighbours of its own core, round after round."""
    if hasattr(os, "sched_setaffinity"):  # Linux
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {random.choice(tuple(cores))})
        os.sched_setaffinity(0, cores)


def arrays_at(job: dict[str, Any], point: int) -> list[Any]:
    with np.load(Path(job["points"]) / f"{point}.npz") as held:
        return [held[str(i)] for i in range(len(job["names"]))]


def memory(what: str) -> int:
    """Bytes now (VmRSS) or at most so far (VmHWM). getrusage would count the parent's, as it was before exec."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def main() -> None:
    """Answers `{what: arguments}` until standard input ends. What libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    process = Process()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            what, arguments = next(iter(asked.items()))
            answer = getattr(process, what)(*arguments)
        except BaseException as error:
            answer = {"raised": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)  # some engines hang in their exit handlers


if __name__ == "__main__":
    main()
