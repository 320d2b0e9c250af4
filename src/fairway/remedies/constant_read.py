"""A question about a value that no input reaches, such as `if torch.all(self.zeros)`, is answered with the value.

torch.export computes with tensors that have no values, parameters and buffers among them. So it stops at `.item()`, at
`if` on a tensor, at `.tolist()` and `.numpy()`, and at masks and `nonzero`, also where every number behind them is
fixed: a parameter, a buffer, or a tensor that `forward` creates from plain numbers. Here the calls on such tensors are
repeated on their real values beside the capture, and those answer. A tensor that an input reaches, in values or in
sizes, or that comes from random numbers, is never answered.

Of equal blocks only some may be captured. A value is read in one of them only if all blocks have the same.

Refuses under strict capture, which reads a mode's own code as part of the model, and for traces, which run with real
values.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager

import torch

from fairway.remedies.constants import Constants, Origin
from fairway.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.weights.repeats import Cut
from fairway.weights.stamp import Unlike


def detect(case: Case) -> Match | Refusal:
    if case.route.capture != "export":
        return Refusal("only non-strict torch.export computes without values and lets a mode answer")
    return Match("values that no input reaches are read as they are")


def same_in_all_blocks(model: torch.nn.Module, cut: Cut | None) -> Callable[[Origin], bool]:
    """Return how to tell whether a tensor of the model is the same in all blocks that its own is captured for."""
    places: dict[Origin, list[tuple[torch.nn.Module, str]]] = {}
    for repeat in cut.repeats if cut is not None else ():
        paths = [repeat.block(number) for number in range(repeat.count)]
        blocks = [cut.removed[p] if cut is not None and p in cut.removed else model.get_submodule(p) for p in paths]
        for block in blocks[: repeat.kept]:
            for path, module in block.named_modules():
                for name in (*module._parameters, *module._buffers, *vars(module)):
                    places[id(module), name] = [(other, f"{path}.{name}" if path else name) for other in blocks]

    def is_same(origin: Origin) -> bool:
        found = [_tensor_at(block, path) for block, path in places.get(origin, ())]
        return all(_equal(found[0], other) for other in found[1:])

    return is_same


def _tensor_at(block: torch.nn.Module, path: str) -> torch.Tensor:
    home, _, name = path.rpartition(".")
    tensor: torch.Tensor = getattr(block.get_submodule(home), name)
    return tensor


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    name = case.applying
    case.waiting.add(name)
    is_same = same_in_all_blocks(case.model, case.cut)

    def answered(origins: frozenset[Origin]) -> None:
        if not all(map(is_same, origins)):
            raise Unlike("a value that differs between equal blocks is read")
        case.used.add(name)

    with Constants(case.model, answered).following():
        yield


REMEDY = Remedy(
    name="constant_read",
    cures="FW303",
    title="Answers questions about values that no input reaches",
    stage="library",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="A value is read only if every call behind it had fixed arguments, and was repeated on them.",
    detect=detect,
    apply=apply,
)
