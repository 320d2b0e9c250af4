"""Capture a model with the code of the ladder, with chosen remedies, and compare the file with eager PyTorch."""

from __future__ import annotations

import contextlib
import inspect
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch

from fairway.convert.ladder.capture import capture
from fairway.convert.ladder.route import Route
from fairway.convert.remedies.contract import Case, Match, Remedy
from fairway.model.subject import Subject, build_subject

EXPORT, TRACE, STRICT = Route("export"), Route("trace"), Route("strict")
DEFAULT_OPSET, DEFAULT_TRACE_OPSET = 18, 17

Dims = Sequence[dict[int, str]]
"""For each input the names of its axes that vary."""


def make_case(
    model: torch.nn.Module,
    args: tuple[torch.Tensor, ...],
    route: Route = EXPORT,
    inputs: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
) -> Case:
    return Case(model, args, {}, route, input_names=inputs, output_names=outputs)


@contextlib.contextmanager
def applied(case: Case, *remedies: Remedy) -> Iterator[None]:
    """Apply those remedies, each of which must match."""
    with contextlib.ExitStack() as stack:
        for remedy in remedies:
            match = _detect(remedy, case)
            case.applying = remedy.name
            stack.enter_context(remedy.apply(case, match))
        yield


def export(case: Case, dims: Dims, *remedies: Remedy) -> ir.Model:
    """Return the file that an attempt makes with those remedies, each of which must match."""
    torch.set_num_threads(1)
    subject = _build_subject(case, dims)
    case.input_names = subject.input_names
    case.output_names = case.output_names or _name_outputs(case)
    default_opset = DEFAULT_TRACE_OPSET if case.route.is_traced else DEFAULT_OPSET
    case.route = replace(case.route, opset=case.route.opset or default_opset)
    matches = [(remedy.name, _detect(remedy, case)) for remedy in remedies]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        capture(subject, case, matches, [*case.args], path, None)
        model = ir.load(path)
        ir.external_data.load_to_model(model)
    return model


def _detect(remedy: Remedy, case: Case) -> Match:
    match = remedy.detect(case)
    assert isinstance(match, Match), match
    return match


def _build_subject(case: Case, dims: Dims) -> Subject:
    parameters = inspect.signature(case.model.forward).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
    names += [f"input_{position}" for position in range(len(names), len(case.args))]
    lines = []
    for name, tensor, varying in zip(names[: len(case.args)], case.args, dims, strict=True):
        sizes = ", ".join(varying.get(axis, str(size)) for axis, size in enumerate(tensor.shape))
        lines.append(f"{name}: {str(tensor.dtype).removeprefix('torch.')}[{sizes}]")
    bounds = {dim: (1, 64) for varying in dims for dim in varying.values()}
    return build_subject(case.model, lines, bounds=bounds, input_names=case.input_names or None)


def _name_outputs(case: Case) -> tuple[str, ...]:
    modes = [(module, module.training) for module in case.model.modules()]
    for module, _ in modes:
        module.training = False  # a run in training mode would change statistics
    with torch.no_grad():
        outputs = torch.utils._pytree.tree_leaves(case.model(*case.args))
    for module, is_training in modes:
        module.training = is_training
    return tuple(f"output_{i}" for i in range(len(outputs)))


def run(model: ir.Model, args: Sequence[torch.Tensor]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    feeds = {i.name: t.numpy() for i, t in zip(session.get_inputs(), args, strict=True)}
    return list(session.run(None, feeds))


def assert_parity(model: ir.Model, eager: torch.nn.Module, *points: tuple[torch.Tensor, ...], atol: float) -> None:
    """Check the number of outputs, shapes, dtypes, positions of NaN, and that values are within `atol`."""
    for args in points:
        with torch.no_grad():
            expected = [t.numpy() for t in torch.utils._pytree.tree_leaves(_run_without_fast_path(eager, args))]
        results = run(model, args)
        assert len(results) == len(expected)
        for result, truth in zip(results, expected, strict=True):
            assert (result.shape, result.dtype) == (truth.shape, truth.dtype)
            np.testing.assert_allclose(result, truth, rtol=0, atol=atol)


def _run_without_fast_path(eager: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> Any:
    """Run PyTorch without attention's fused fast path, which differs in padded and fully masked rows."""
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        return eager(*args)
    finally:
        torch.backends.mha.set_fastpath_enabled(was_enabled)


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph.all_nodes()]
