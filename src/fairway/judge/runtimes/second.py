"""Run the same file in another engine, to distinguish an exporter's bug from a runtime's bug."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence

import numpy as np
import torch

from fairway.diagnostics import Code, Finding
from fairway.judge.judge import Judge, Runner, tidy_runtime_message
from fairway.judge.runtimes.eager import to_array
from fairway.judge.yardstick import Array
from fairway.model.sample import Sample

MAX_COMPARED_SAMPLES = 4
SLACK_FACTOR = 10.0
"""Engines round differently, so both get this many times the tolerance."""


def list_installed_engines() -> tuple[str, ...]:
    """Return OpenVINO if it is installed, and onnx's own reference implementation."""
    return tuple(name for name in ENGINES if name != "openvino" or importlib.util.find_spec("openvino"))


def open_second_runtime(path: str) -> tuple[str, Runner]:
    """Open a file in the first installed engine. Return its name too."""
    name = list_installed_engines()[0]
    return name, ENGINES[name](path)


def _open_openvino(path: str) -> Runner:
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def run(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[Array]:
        result = compiled({name: np.asarray(to_array(t), order="C") for name, t in zip(names, tensors, strict=True)})
        return [result[i] for i in range(len(compiled.outputs))]

    return run


def _open_reference(path: str) -> Runner:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(path)

    def run(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[Array]:
        feeds = {name: to_array(tensor) for name, tensor in zip(names, tensors, strict=True)}
        return list(evaluator.run(None, feeds))

    return run


ENGINES: dict[str, Callable[[str], Runner]] = {"openvino": _open_openvino, "onnx.reference": _open_reference}
"""Functions that open a file. The first installed engine gives the second opinion."""


def consult_second_runtime(judge: Judge, path: str, samples: Sequence[Sample]) -> tuple[str, list[Finding]]:
    """Describe the second engine's answers at the first few samples, with a finding if the engines disagree.

    Both engines have the same tolerance and the same excuses: a runtime is blamed only if its answer is outside the
    tolerance and the other engine's is inside.
    """
    try:
        name, run = open_second_runtime(path)
    except Exception as error:
        return f"could not load the file: {tidy_runtime_message(str(error))[:200]}", []
    other = Judge(judge.subject, run, judge.output_names)
    other.yardsticks = judge.yardsticks
    compared = [sample for sample in samples if sample.data is None][:MAX_COMPARED_SAMPLES]
    disagree: list[str] = []
    for sample in compared:
        try:
            mine, theirs = _is_in_agreement(judge, sample), _is_in_agreement(other, sample)
        except Exception as error:
            return f"{name} could not run: {tidy_runtime_message(str(error))[:200]}", []
        if mine != theirs:
            right, wrong = ("ONNX Runtime", name) if mine else (name, "ONNX Runtime")
            disagree.append(f"at {sample} {right} agrees with PyTorch and {wrong} does not")
    if disagree:
        return f"{name} disagrees at {len(disagree)} of {len(compared)} samples", [
            Finding(Code.RUNTIMES_DISAGREE, disagree[0])
        ]
    return f"{name} agrees at {len(compared)} samples", []


def _is_in_agreement(judge: Judge, sample: Sample) -> bool:
    """Return whether an engine's answer is within the wider tolerance or has an excuse."""
    trial = judge.measure(sample)
    return judge.compute_ratio(trial) <= SLACK_FACTOR or judge.excuse(trial)
