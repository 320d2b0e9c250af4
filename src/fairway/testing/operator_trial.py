"""Many functions in one export, each compared with eager PyTorch at every point.

An export costs seconds, so functions of the same inputs are captured together; each can be judged in a test of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch

from fairway.convert.ladder.tables import built_tables

Inputs = tuple[torch.Tensor, ...]
"""One point: the tensors that every function takes."""

Functions = Mapping[str, Callable[..., Any]]
"""Functions of the same inputs by name; each answers a tensor or a nest of them."""


class _Together(torch.nn.Module):
    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        return tuple(function(*inputs) for function in self.functions)


class Trial:
    """One export of many functions, with translations.

    The first of the points is the example that is exported. Dims that differ between the points are dynamic.
    """

    def __init__(self, functions: Functions, points: Sequence[Inputs], table: Mapping[Any, Callable[..., Any]]) -> None:
        self.functions, self.points, self.table = functions, points, table
        self._answers: dict[int, list[Any]] = {}
        self._failed: BaseException | None = None

    @cached_property
    def model(self) -> ir.Model:
        if self._failed is not None:
            raise self._failed  # tried once already, which took its time
        try:
            return self._export()
        except Exception as error:
            self._failed = error
            raise

    def _export(self) -> ir.Model:
        torch.set_num_threads(1)
        example, *others = self.points
        varying = tuple(
            {a: torch.export.Dim.DYNAMIC for a, n in enumerate(one.shape) if any(o[i].shape[a] != n for o in others)}
            for i, one in enumerate(example)
        )
        with warnings.catch_warnings(), torch.no_grad(), built_tables():
            warnings.simplefilter("ignore")
            module = _Together(list(self.functions.values()))
            program = torch.export.export(module, example, dynamic_shapes=(varying,), strict=False)
            exported = torch.onnx.export(program, dynamo=True, verbose=False, custom_translation_table=dict(self.table))
        assert exported is not None
        return exported.model

    @cached_property
    def session(self) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        return onnxruntime.InferenceSession(ir.to_proto(self.model).SerializeToString(), options)

    def answers(self, point: int) -> list[Any]:
        """What the file gives at a point, all functions in a row."""
        if point not in self._answers:
            names = [one.name for one in self.session.get_inputs()]
            feeds = {name: one.numpy() for name, one in zip(names, self.points[point], strict=True)}
            self._answers[point] = list(self.session.run(None, feeds))
        return self._answers[point]

    def check(self, name: str, tolerance: float) -> None:
        """Shapes, dtypes, and values within `tolerance` of PyTorch's, relative to 1 or to the value if larger."""
        for point, inputs in enumerate(self.points):
            first = sum(len(self._leaves(f, inputs)) for f in _before(self.functions, name))
            expected = self._leaves(self.functions[name], inputs)
            got = self.answers(point)[first : first + len(expected)]
            for one, truth in zip(got, expected, strict=True):
                place = f"{name} at {[tuple(i.shape) for i in inputs]}"
                seen, wanted = ((a.shape, a.dtype) for a in (one, truth))
                assert seen == wanted, f"{place}: {seen}, PyTorch has {wanted}"
                np.testing.assert_allclose(one, truth, rtol=tolerance, atol=tolerance, err_msg=place)

    @staticmethod
    def _leaves(function: Callable[..., Any], inputs: Inputs) -> list[Any]:
        with torch.no_grad():
            return [one.numpy() for one in torch.utils._pytree.tree_leaves(function(*inputs))]


def _before(functions: Functions, name: str) -> list[Callable[..., Any]]:
    names = list(functions)
    return [functions[one] for one in names[: names.index(name)]]
