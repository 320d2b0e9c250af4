"""A loop over the positions that were hit, `for i in hit.nonzero()`, runs over all positions.

Their number depends on values, so torch.export cannot capture the loop. Each step picks its own rows. A step for a
position without hits picks no rows and adds nothing, as in mixtures of experts. The steps for all positions are
recorded one after another, in their order.

Refuses under strict capture, and under the TorchScript exporter, whose files fail at steps that pick no rows. A loop
over a row whose length varies is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Code
from fairway.torch_internals import Untyped

MAX_PLACES = 128
"""Positions up to which the loop is captured. Each is a step in the graph."""

_PLACES = "_fairway_places"
_FINDING_FUNCTIONS = (torch.nonzero, torch.Tensor.nonzero)
_ITERATING_FUNCTIONS = (torch.Tensor.unbind, torch.unbind)
"""A `for` over a tensor unbinds it."""


class LoopOverAllPlaces(TorchFunctionMode):
    """Inside this mode, a loop over the `nonzero` of a row of fixed length runs over all positions of the row."""

    def __init__(self, on_use: Callable[[], object]) -> None:
        super().__init__()
        self._on_use = on_use

    def __torch_function__(
        self, func: Untyped, types: Untyped, args: Sequence[Untyped] = (), kwargs: Untyped = None
    ) -> Untyped:
        kwargs = kwargs or {}
        places = getattr(args[0], _PLACES, 0) if func in _ITERATING_FUNCTIONS and args else 0
        if places and tuple(args[1:]) in ((), (0,)) and not kwargs:
            self._on_use()
            return tuple(torch.tensor([place], device=args[0].device) for place in range(places))
        if func is torch.Tensor.__format__ and args[0].dim() == 0:
            return format(args[0].item(), *args[1:])  # torch.export's tensors do not show their number by themselves
        answer = func(*args, **kwargs)
        if func in _FINDING_FUNCTIONS and not kwargs.get("as_tuple") and args[0].dim() == 1:
            length = args[0].shape[0]
            if isinstance(length, int) and length <= MAX_PLACES:
                setattr(answer, _PLACES, length)
        return answer


def detect(case: Case) -> Match | Refusal:
    if case.route.is_traced or case.route.capture == "strict":
        return Refusal("a trace fails at steps without rows; strict capture reads a mode's code as the model's")
    return Match("loops over the positions that were hit run over all positions")


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    with LoopOverAllPlaces(case.list_if_used()):
        yield


REMEDY = Remedy(
    name="hits_looped",
    cures=Code.HITS_LOOPED,
    title="Runs a loop over the positions that were hit over all positions",
    stage="library",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="A step that picks no rows adds nothing; the file is judged against the model as it is.",
    detect=detect,
    apply=apply,
    order=70,
)
