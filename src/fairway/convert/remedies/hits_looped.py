"""A loop over the places that were hit, `for i in hit.nonzero()`, goes over all places.

How many there are is known by value only: torch.export cannot capture the loop. Each step picks its own rows, so that
one for a place without hits picks none and adds nothing; mixtures of experts are written so. The steps over all places
are recorded one after another, in the places' order.

Refuses under strict capture, and under the TorchScript exporter, whose files stumble over steps that pick no rows. A
loop over a row whose length varies is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy

MOST = 128
"""Places; each is a step in the graph."""

_PLACES = "_fairway_places"
_FINDS = (torch.nonzero, torch.Tensor.nonzero)
_ITERATES = (torch.Tensor.unbind, torch.unbind)
"""A `for` over a tensor unbinds it."""


class EveryPlace(TorchFunctionMode):
    """While entered, iterating over what `nonzero` found in a row of fixed length goes over all of the row."""

    def __init__(self, met: Callable[[], None]) -> None:
        super().__init__()
        self._met = met

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        places = getattr(args[0], _PLACES, 0) if func in _ITERATES and args else 0
        if places and tuple(args[1:]) in ((), (0,)) and not kwargs:
            self._met()
            return tuple(torch.tensor([place], device=args[0].device) for place in range(places))
        if func is torch.Tensor.__format__ and args[0].dim() == 0:
            return format(args[0].item(), *args[1:])  # torch.export's tensors do not show their number by themselves
        answer = func(*args, **kwargs)
        if func in _FINDS and not kwargs.get("as_tuple") and args[0].dim() == 1:
            length = args[0].shape[0]
            if isinstance(length, int) and length <= MOST:
                setattr(answer, _PLACES, length)
        return answer


def detect(case: Case) -> Match | Refusal:
    if case.route.traced or case.route.capture == "strict":
        return Refusal("a trace stumbles over steps without rows; strict capture reads a mode's code as the model's")
    return Match("loops over the places that were hit go over all places")


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    name = case.applying
    case.waiting.add(name)
    with EveryPlace(lambda: case.used.add(name)):
        yield


REMEDY = Remedy(
    name="hits_looped",
    cures="FW214",
    title="A loop over the places that were hit goes over all",
    stage="library",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="A step that picks no rows adds nothing; the file is judged against the model as it is.",
    detect=detect,
    apply=apply,
)
