"""Sparse tensors that a module holds are captured dense.

ONNX Runtime computes with dense tensors only, and torch.onnx cannot write a sparse one ("Cannot access storage of
SparseTensorImpl"). Made dense, the numbers are the same; the zeros take the space that they were to save.

Refuses where no module holds one. Sparse inputs and sparse results in between are not this remedy's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Where


def detect(case: Case) -> Match | Refusal:
    found = [f"{path}.{name}" if path else name for path, _, name, _ in held(case.model)]
    if not found:
        return Refusal("no module holds a sparse tensor")
    places = tuple(Where(module=name) for name in found)
    return Match(f"sparse tensors made dense: {', '.join(found)}", places)


def held(model: torch.nn.Module) -> Iterator[tuple[str, dict[str, Any], str, torch.Tensor]]:
    """Each sparse tensor with the module's path, the table that holds it, and its name there."""
    for path, module in model.named_modules():
        for table in (module.__dict__, module._buffers, module._parameters):
            for name, value in list(table.items()):
                if isinstance(value, torch.Tensor) and value.layout != torch.strided:
                    yield path, table, name, value


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    kept = list(held(case.model))
    multiply = torch.sparse.mm
    try:
        for _, table, name, value in kept:
            dense = value.detach().to_dense()
            is_parameter = isinstance(value, torch.nn.Parameter)
            table[name] = torch.nn.Parameter(dense, requires_grad=False) if is_parameter else dense
        torch.sparse.mm = torch.mm
        yield
    finally:
        torch.sparse.mm = multiply
        for _, table, name, value in kept:
            table[name] = value


REMEDY = Remedy(
    name="sparse_weight",
    cures="FW324",
    title="Makes the model's sparse tensors dense",
    stage="model",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="Dense, a tensor has the same numbers; the file is judged against the model as it is.",
    detect=detect,
    apply=apply,
)
