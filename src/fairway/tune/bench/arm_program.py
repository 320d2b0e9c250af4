"""The program of one arm: a process that opens one thing, runs it on request, and times itself.

It answers each line of JSON on standard input with one line. ONNX Runtime and OpenVINO are opened without torch, so
that memory and loading time are those of a service without torch.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fairway.model.ort_session import SessionSettings, open_session
from fairway.tune.bench.paired_timing import time_calls

Job: TypeAlias = dict[str, Any]
"""A line of JSON: the settings of an arm, or an answer."""

Array: TypeAlias = npt.NDArray[np.generic]
Call = Callable[[], object]
CallMaker = Callable[[list[Array]], Call]
"""Turns the input tensors of one point into the call that is timed."""

LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
"""ONNX Runtime's optimization levels by the names used here."""

BFLOAT16_NUMBER = 16
"""The number of bfloat16 among ONNX's dtypes."""


def open_ort(job: Job) -> CallMaker:
    session = _open_session(job)
    return lambda arrays: _make_ort_call(session, job, arrays)


def _open_session(job: Job, profile: str | None = None) -> Any:
    settings = SessionSettings(job["threads"], LEVELS[job["level"]])
    if profile is not None:
        key = "session.optimized_model_external_initializers_file_name"
        settings = replace(
            settings,
            profile_prefix=profile,
            optimized_model_path=f"{profile}.onnx",
            config_entries={key: f"{Path(profile).name}.data"},
        )
    return open_session(job["path"], settings)


def _make_ort_call(session: Any, job: Job, arrays: list[Array]) -> Call:
    if "bfloat16" not in job["dtypes"]:
        feeds = dict(zip(job["names"], arrays, strict=True))
        return lambda: session.run(None, feeds)

    from onnxruntime import OrtValue

    values = {
        name: OrtValue.ortvalue_from_numpy_with_onnx_type(array, BFLOAT16_NUMBER)
        if dtype == "bfloat16"
        else OrtValue.ortvalue_from_numpy(array)
        for name, array, dtype in zip(job["names"], arrays, job["dtypes"], strict=True)
    }
    return lambda: session.run_with_ort_values(None, values)


def open_openvino(job: Job) -> CallMaker:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": job["threads"], "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(job["path"], "CPU", settings)

    def make_call(arrays: list[Array]) -> Call:
        if "bfloat16" in job["dtypes"]:
            raise NotImplementedError("OpenVINO cannot be given bfloat16 inputs here")
        feeds = dict(zip(job["names"], arrays, strict=True))
        return lambda: compiled(feeds)

    return make_call


def open_torch(job: Job) -> CallMaker:
    """Open PyTorch as its users run it: in eval mode, without gradients, with all fast paths."""
    import torch

    from fairway.model.recipe import Overrides, load_subject

    torch.set_num_threads(job["threads"])
    options = job["overrides"]
    bounds = {name: (low, high) for name, (low, high) in options["bounds"].items()}
    checkpoint = None if options["checkpoint"] is None else Path(options["checkpoint"])
    inputs, trust, key = tuple(options["inputs"]), options["trust"], options["checkpoint_key"]
    overrides = Overrides(inputs, bounds, options["multiples"], checkpoint, trust, key)
    subject = load_subject(job["recipe"], overrides)
    model: Any = subject.model.eval()
    if job["engine"] == "compile":
        model = torch.compile(model)

    def make_call(arrays: list[Array]) -> Call:
        tensors = [
            torch.from_numpy(array).view(getattr(torch, dtype)) if dtype == "bfloat16" else torch.from_numpy(array)
            for array, dtype in zip(arrays, job["dtypes"], strict=True)
        ]
        args, kwargs = subject.call(tensors)

        def call() -> object:
            with torch.inference_mode():
                return model(*args, **kwargs)

        return call

    return make_call


ENGINES: dict[str, Callable[[Job], CallMaker]] = {
    "eager": open_torch,
    "compile": open_torch,
    "ort": open_ort,
    "openvino": open_openvino,
}
_IMPORTS = {"eager": "torch", "compile": "torch", "ort": "onnxruntime", "openvino": "openvino"}


class ArmServer:
    """The state of the process: its job, the opened model, and the prepared call."""

    def __init__(self) -> None:
        self.job: Job = {}
        self.make_call: CallMaker | None = None
        self.calls: dict[int, Call] = {}

    def open(self, job: Job) -> Job:
        __import__(_IMPORTS[job["engine"]])  # imports are not part of the comparison
        before = read_memory("VmRSS")
        started = time.perf_counter()
        self.job, self.make_call = job, ENGINES[job["engine"]](job)
        return {"seconds": time.perf_counter() - started, "before_bytes": before}

    def time(self, point: int, times: int, calls: int) -> Job:
        assert self.make_call is not None
        if point not in self.calls:
            self.calls = {point: self.make_call(load_arrays(self.job, point))}  # one at a time: inputs may be large
        _change_core()
        return {"seconds": time_calls(self.calls[point], times, calls), "peak_bytes": read_memory("VmHWM")}

    def profile(self, job: Job, point: int, calls: int, prefix: str) -> Job:
        """Run with ONNX Runtime's profiler on and return the path of its output."""
        session = _open_session(job, prefix)
        call = _make_ort_call(session, job, load_arrays(job, point))
        for _ in range(calls):
            call()
        return {"events": session.end_profiling()}


def _change_core() -> None:
    """Move to a random core and stay free to leave it.

    A process tends to stay where it is, and each arm would share its core with the same neighbors in all rounds.
    """
    if hasattr(os, "sched_setaffinity"):  # Linux
        all_cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {random.choice(tuple(all_cores))})
        os.sched_setaffinity(0, all_cores)


def load_arrays(job: Job, point: int) -> list[Array]:
    """Load the inputs of one point."""
    with np.load(Path(job["points"]) / f"{point}.npz") as file:
        return [file[str(i)] for i in range(len(job["names"]))]


def read_memory(field: str) -> int:
    """Read bytes in use now (VmRSS) or at most so far (VmHWM). getrusage would include the parent's memory before
    exec.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def main() -> None:
    """Answer `{method: arguments}` until standard input ends. Everything that libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = ArmServer()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            method, arguments = next(iter(request.items()))
            answer = getattr(server, method)(*arguments)
        except BaseException as error:
            answer = {"raised": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)  # some engines hang in their exit handlers


if __name__ == "__main__":
    main()
