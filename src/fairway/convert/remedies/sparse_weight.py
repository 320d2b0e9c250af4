"""Sparse tensors that a module holds are captured as dense ones.

ONNX Runtime computes with dense tensors only, and torch.onnx cannot write a sparse one ("Cannot access storage of
SparseTensorImpl"). The dense tensor has the same numbers, but its zeros take space.

Refuses if no module holds a sparse tensor. Sparse inputs and sparse intermediate results are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Code, Where
from fairway.torch_internals import module_buffers, module_parameters, replace_internal


def detect(case: Case) -> Match | Refusal:
    names = [f"{path}.{name}" if path else name for path, _, name, _ in find_sparse_tensors(case.model)]
    if not names:
        return Refusal("no module holds a sparse tensor")
    places = tuple(Where(module=name) for name in names)
    return Match(f"sparse tensors made dense: {', '.join(names)}", places)


def find_sparse_tensors(model: torch.nn.Module) -> Iterator[tuple[str, dict[str, Any], str, torch.Tensor]]:
    """Yield each sparse tensor with its module's path, the table that holds it, and its name there."""
    for path, module in model.named_modules():
        for table in (module.__dict__, module_buffers(module), module_parameters(module)):
            for name, value in list(table.items()):
                if isinstance(value, torch.Tensor) and value.layout != torch.strided:
                    yield path, table, name, value


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    originals = list(find_sparse_tensors(case.model))
    try:
        for _, table, name, value in originals:
            dense = value.detach().to_dense()
            is_parameter = isinstance(value, torch.nn.Parameter)
            table[name] = torch.nn.Parameter(dense, requires_grad=False) if is_parameter else dense
        with replace_internal("sparse_matmul", torch.mm):
            yield
    finally:
        for _, table, name, value in originals:
            table[name] = value


REMEDY = Remedy(
    name="sparse_weight",
    cures=Code.SPARSE_WEIGHT,
    title="Makes the model's sparse tensors dense",
    stage="model",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="The dense tensor has the same numbers; the file is judged against the model as it is.",
    detect=detect,
    apply=apply,
    order=30,
)
