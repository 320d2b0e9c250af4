"""torch.export's program on its way to torch.onnx."""

from __future__ import annotations

import pytest
import torch
from torch.export import _unlift

from fairway.convert.ladder.capture_export import _drop_misnamed_guards


class Sum(torch.nn.Module):
    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return tensors[0] + tensors[1]


def test_guards_are_dropped_where_torch_would_misname_them_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    example = (torch.ones(3, 2), torch.ones(3, 2))
    axes = {0: torch.export.Dim.DYNAMIC}
    program = torch.export.export(Sum(), example, dynamic_shapes=((axes, axes),))
    guards = list(program._guards_code)
    assert guards
    _drop_misnamed_guards(program)
    assert program._guards_code == guards
    monkeypatch.delattr(_unlift, "_force_ep_signature_match")  # as in torch 2.9
    _drop_misnamed_guards(program)
    assert program._guards_code == []
