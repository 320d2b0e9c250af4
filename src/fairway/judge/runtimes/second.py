"""Another engine on the same file, so that an exporter's bug and a runtime's bug are told apart."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence

import numpy as np
import torch

from fairway.diagnostics import Finding
from fairway.judge.judge import Judge, Runner, tidy
from fairway.judge.runtimes.eager import to_array
from fairway.judge.yardstick import Array
from fairway.model.sample import Sample

POINTS = 4
SLACK = 10.0
"""Engines differ in how they round; a second opinion gets this many times the first one's tolerance."""


def engines_here() -> tuple[str, ...]:
    """OpenVINO where it is installed, and onnx's own reference implementation."""
    return tuple(name for name in ENGINES if name != "openvino" or importlib.util.find_spec("openvino"))


def open_second(path: str) -> tuple[str, Runner]:
    """The first engine that is here."""
    name = engines_here()[0]
    return name, ENGINES[name](path)


def _openvino(path: str) -> Runner:
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def run(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[Array]:
        result = compiled({name: np.asarray(to_array(t), order="C") for name, t in zip(names, tensors, strict=True)})
        return [result[i] for i in range(len(compiled.outputs))]

    return run


def _reference(path: str) -> Runner:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(path)

    def run(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[Array]:
        feeds = {name: to_array(tensor) for name, tensor in zip(names, tensors, strict=True)}
        return list(evaluator.run(None, feeds))

    return run


ENGINES: dict[str, Callable[[str], Runner]] = {"openvino": _openvino, "onnx.reference": _reference}
"""Each opens a file. The first that is here gives the second opinion."""


def consult(judge: Judge, path: str, samples: Sequence[Sample]) -> tuple[str, list[Finding]]:
    """What the second engine says at the first few samples, in one line, and a finding where the engines disagree.

    Both engines are held to the same tolerance, and have the same excuses: a runtime is blamed only if its answer is
    outside the tolerance that the other engine keeps.
    """
    try:
        name, run = open_second(path)
    except Exception as error:
        return f"could not load the file: {tidy(str(error))[:200]}", []
    other = Judge(judge.subject, run, judge.output_names)
    other.yardsticks = judge.yardsticks
    chosen = [one for one in samples if one.data is None][:POINTS]
    disagree: list[str] = []
    for one in chosen:
        try:
            mine, theirs = _agrees(judge, one), _agrees(other, one)
        except Exception as error:
            return f"{name} could not run: {tidy(str(error))[:200]}", []
        if mine != theirs:
            right, wrong = ("ONNX Runtime", name) if mine else (name, "ONNX Runtime")
            disagree.append(f"at {one} {right} agrees with PyTorch and {wrong} does not")
    if disagree:
        return f"{name} disagrees at {len(disagree)} of {len(chosen)} samples", [Finding("FW409", disagree[0])]
    return f"{name} agrees at {len(chosen)} samples", []


def _agrees(judge: Judge, one: Sample) -> bool:
    """Whether an engine's answer is within the wider tolerance, or off for a reason that decides nothing."""
    trial = judge.measure(one)
    return judge.ratio(trial) <= SLACK or judge.excuse(trial)
