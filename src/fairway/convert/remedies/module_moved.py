"""A module that moves one of its parts inside `forward`, as in `self.gate.to(torch.float32)`, leaves it in place.

torch.export holds the weights as tensors of its own, which `Module.to` cannot swap: it ends in "_apply(): Couldn't swap
Linear.weight", also where the part has that type already. Then there is nothing to do, and nothing is done.

Refuses under the TorchScript exporter, which runs the call as it is. A part that would really change its type is moved
as before, and fails as before.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy


def detect(case: Case) -> Match | Refusal:
    if case.route.traced:
        return Refusal("the TorchScript exporter runs the call as it is")
    return Match("parts that have the type already are not moved")


def stays(module: nn.Module, args: Any, kwargs: Any) -> bool:
    """Whether every tensor of the module is there already, in that type."""
    device, dtype, _, _ = torch._C._nn._parse_to(*args, **kwargs)
    tensors = (*module.parameters(), *module.buffers())
    there = device is None or all(one.device.type == device.type for one in tensors)
    return there and (dtype is None or all(one.dtype == dtype for one in tensors if one.is_floating_point()))


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    original, name = nn.Module.to, case.applying
    case.waiting.add(name)

    def to(self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        if not stays(self, args, kwargs):
            return original(self, *args, **kwargs)
        case.used.add(name)
        return self

    nn.Module.to = to  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        nn.Module.to = original  # type: ignore[method-assign]


REMEDY = Remedy(
    name="module_moved",
    cures="FW325",
    title="Leaves a part of the model where it is",
    stage="library",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="Only a move that changes nothing is left out.",
    detect=detect,
    apply=apply,
)
