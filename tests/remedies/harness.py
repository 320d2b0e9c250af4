"""Exports once at the example's sizes and compares with eager at others. The ladder takes this over later."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch

from fairway.convert.ladder.route import Route
from fairway.convert.remedies.contract import Case, Match, Remedy

EXPORT, TRACE, STRICT = Route("export"), Route("trace"), Route("strict")
Dims = Sequence[dict[int, Any]]


class Flat(torch.nn.Module):
    """The thin module that the ladder captures: flat tensors in, whatever the model gives out."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        # The TorchScript exporter sets its root to eval mode, and afterwards everything to the root's mode.
        self.training = model.training

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.model(*tensors)


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
    """Applies those remedies, each of which must match."""
    with contextlib.ExitStack() as stack:
        for remedy in remedies:
            match = remedy.detect(case)
            assert isinstance(match, Match), match
            stack.enter_context(remedy.apply(case, match))
        yield


def export(case: Case, dims: Dims, *remedies: Remedy, dim: Any = torch.export.Dim.DYNAMIC) -> ir.Model:
    """The captured, translated and repaired graph; `dims[i]` names the dims of input i that vary."""
    torch.set_num_threads(1)
    with applied(case, *remedies), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        capture = _traced if case.route.traced else _exported
        model = capture(case, dims, dim)
        for value, named in zip(model.graph.inputs, dims, strict=False):
            if value.shape is not None:
                value.shape = ir.Shape([named.get(axis, size) for axis, size in enumerate(value.shape)])
        for run in case.passes:
            run(model)
    return model


def _exported(case: Case, dims: Dims, dim: Any) -> ir.Model:
    shapes = tuple(dict.fromkeys(named, dim) for named in dims)
    program = torch.export.export(
        Flat(case.model), case.args, dynamic_shapes=(shapes,), strict=case.route.capture == "strict"
    )
    for repair in case.repairs:
        repair(program)
    onnx_program = torch.onnx.export(
        program,
        dynamo=True,
        verbose=False,
        opset_version=case.route.opset or 18,
        custom_translation_table=case.translations,
        input_names=list(case.input_names) or None,
        output_names=list(case.output_names) or None,
    )
    assert onnx_program is not None
    return onnx_program.model


def _traced(case: Case, dims: Dims, _: Any) -> ir.Model:
    names = list(case.input_names) or [f"input_{i}" for i in range(len(case.args))]
    axes = {name: {a: str(d) for a, d in named.items()} for name, named in zip(names, dims, strict=True)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traced.onnx"
        torch.onnx.export(
            Flat(case.model),
            case.args,
            str(path),
            dynamo=False,
            opset_version=case.route.opset or 17,
            input_names=names,
            output_names=list(case.output_names) or None,
            dynamic_axes=axes,
        )
        model = ir.load(path)
        ir.external_data.load_to_model(model)
    return model


def run(model: ir.Model, args: Sequence[torch.Tensor]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    feeds = {i.name: t.numpy() for i, t in zip(session.get_inputs(), args, strict=True)}
    return list(session.run(None, feeds))


def assert_parity(model: ir.Model, eager: torch.nn.Module, *points: tuple[torch.Tensor, ...], atol: float) -> None:
    """Same number of outputs, same shapes and dtypes, NaN in the same places, values within `atol`."""
    for args in points:
        with torch.no_grad():
            expected = [t.numpy() for t in torch.utils._pytree.tree_leaves(_documented(eager, args))]
        got = run(model, args)
        assert len(got) == len(expected)
        for one, truth in zip(got, expected, strict=True):
            assert (one.shape, one.dtype) == (truth.shape, truth.dtype)
            np.testing.assert_allclose(one, truth, rtol=0, atol=atol)


def _documented(eager: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> Any:
    """PyTorch without attention's fused fast path, which answers otherwise in padded and fully masked rows."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        return eager(*args)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph.all_nodes()]
