"""Export many functions together, and compare each with eager PyTorch at every point.

An export takes seconds, so functions of the same inputs are captured together. Each can have a separate test.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch

from fairway.convert.ladder.translation_tables import use_built_tables
from fairway.model.ort_session import SessionSettings, open_session
from fairway.torch_internals import tree_leaves

Inputs = tuple[torch.Tensor, ...]
"""One point: the tensors that every function takes."""

Array = npt.NDArray[Any]
Function = Callable[..., Any]
TranslationTable = Mapping[Any, Function]

Functions = Mapping[str, Function]
"""Functions of the same inputs by name. Each returns a tensor or a nested structure of tensors."""


class _CombinedModel(torch.nn.Module):
    def __init__(self, functions: Sequence[Function]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *inputs: torch.Tensor) -> tuple[object, ...]:
        return tuple(function(*inputs) for function in self.functions)


class Trial:
    """One export of many functions, with translations.

    The first point is the example of the export. Dims that differ between the points are dynamic.
    """

    def __init__(self, functions: Functions, points: Sequence[Inputs], table: TranslationTable) -> None:
        self.functions, self.points, self.table = functions, points, table
        self._answers: dict[int, list[Array]] = {}
        self._failed: BaseException | None = None

    @cached_property
    def model(self) -> ir.Model:
        if self._failed is not None:
            raise self._failed  # do not spend the time again
        try:
            return self._export()
        except Exception as error:
            self._failed = error
            raise

    def _export(self) -> ir.Model:
        torch.set_num_threads(1)
        example, *others = self.points
        varying = tuple(
            {a: torch.export.Dim.DYNAMIC for a, n in enumerate(tensor.shape) if any(o[i].shape[a] != n for o in others)}
            for i, tensor in enumerate(example)
        )
        with warnings.catch_warnings(), torch.no_grad(), use_built_tables():
            warnings.simplefilter("ignore")
            module = _CombinedModel(list(self.functions.values()))
            program = torch.export.export(module, example, dynamic_shapes=(varying,), strict=False)
            exported = torch.onnx.export(program, dynamo=True, verbose=False, custom_translation_table=dict(self.table))
        assert exported is not None
        return exported.model

    @cached_property
    def session(self) -> Any:
        return open_session(ir.to_proto(self.model).SerializeToString(), SessionSettings(threads=1))

    def answers(self, point: int) -> list[Array]:
        """Return the outputs of the file at a point, of all functions in order."""
        if point not in self._answers:
            names = [value.name for value in self.session.get_inputs()]
            feeds = {name: tensor.numpy() for name, tensor in zip(names, self.points[point], strict=True)}
            self._answers[point] = list(self.session.run(None, feeds))
        return self._answers[point]

    def check(self, name: str, tolerance: float) -> None:
        """Compare shapes, dtypes and values with PyTorch. `tolerance` is relative to 1 or to a larger value."""
        for point, inputs in enumerate(self.points):
            first = sum(len(self._leaves(f, inputs)) for f in _list_before(self.functions, name))
            expected = self._leaves(self.functions[name], inputs)
            got = self.answers(point)[first : first + len(expected)]
            for output, truth in zip(got, expected, strict=True):
                place = f"{name} at {[tuple(i.shape) for i in inputs]}"
                ours, theirs = ((a.shape, a.dtype) for a in (output, truth))
                assert ours == theirs, f"{place}: {ours}, PyTorch has {theirs}"
                np.testing.assert_allclose(output, truth, rtol=tolerance, atol=tolerance, err_msg=place)

    @staticmethod
    def _leaves(function: Function, inputs: Inputs) -> list[Array]:
        with torch.no_grad():
            return [leaf.numpy() for leaf in tree_leaves(function(*inputs))]


def _list_before(functions: Functions, name: str) -> list[Function]:
    names = list(functions)
    return [functions[earlier] for earlier in names[: names.index(name)]]
