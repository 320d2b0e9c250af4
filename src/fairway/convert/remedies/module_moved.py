"""A module that moves one of its parts inside `forward`, as in `self.gate.to(torch.float32)`, leaves it in place.

torch.export replaces the weights by tensors that `Module.to` cannot swap. It ends in "_apply(): Couldn't swap
Linear.weight", even if the part has that type already. Then the call is skipped, since there is nothing to do.

Refuses under the TorchScript exporter, which runs the call as it is. A part that would really change its type is moved
as before, and fails as before.
"""

from __future__ import annotations

from contextlib import contextmanager

from torch import nn

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Code
from fairway.torch_internals import Untyped, parse_to_arguments, patch_attribute


def detect(case: Case) -> Match | Refusal:
    if case.route.is_traced:
        return Refusal("the TorchScript exporter runs the call as it is")
    return Match("parts that have the type already are not moved")


def is_in_place(module: nn.Module, args: Untyped, kwargs: Untyped) -> bool:
    """Return whether every tensor of the module already has the device and type that `to` was called with."""
    device, dtype, _, _ = parse_to_arguments(*args, **kwargs)
    tensors = (*module.parameters(), *module.buffers())
    is_on_device = device is None or all(tensor.device.type == device.type for tensor in tensors)
    return is_on_device and (dtype is None or all(t.dtype == dtype for t in tensors if t.is_floating_point()))


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    original, on_use = nn.Module.to, case.list_if_used()

    def to(self: nn.Module, *args: Untyped, **kwargs: Untyped) -> nn.Module:
        if not is_in_place(self, args, kwargs):
            return original(self, *args, **kwargs)
        on_use()
        return self

    with patch_attribute(nn.Module, "to", to):
        yield


REMEDY = Remedy(
    name="module_moved",
    cures=Code.MODULE_MOVED,
    title="Leaves a part of the model where it is",
    stage="library",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="Only a move that changes nothing is left out.",
    detect=detect,
    apply=apply,
    order=50,
)
