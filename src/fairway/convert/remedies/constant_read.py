"""A value that no input reaches, as in `if torch.all(self.zeros)`, is read for real during the capture.

torch.export computes with tensors without values, even for parameters and buffers. So it stops at `.item()`, at `if` on
a tensor, at `.tolist()` and `.numpy()`, and at masks and `nonzero`. It stops even if the value is fixed, because it
comes from a parameter, a buffer, or a tensor that `forward` creates from plain numbers. The remedy repeats the calls on
such tensors with their real values during the capture, and answers with the results. A tensor is never read if it
depends on an input's values, on an input's sizes, or on random numbers.

Of equal blocks in a row only some are captured. A value in such a block is read only if it is the same in all blocks.

Refuses under strict capture, which would capture the remedy's own code with the model, and for traces, which run with
real values anyway.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fairway.convert.blocks.repeats import ShortenedModel
from fairway.convert.blocks.stamp import BlocksDiffer
from fairway.convert.remedies.constants import NOT_HELD, Constants, Origin
from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Code
from fairway.model.source import is_model_source
from fairway.torch_internals import disable_current_modes, module_buffers, module_parameters


def detect(case: Case) -> Match | Refusal:
    if case.route.capture != "export":
        return Refusal("only non-strict torch.export computes without values and lets a mode answer")
    return Match("values that no input reaches are read as they are")


def make_block_comparison(model: torch.nn.Module, cut: ShortenedModel | None) -> Callable[[Origin], bool]:
    """Return a function that tells whether a tensor is the same in all blocks that one captured block represents."""
    alike: dict[Origin, list[object]] = {}
    for repeat in cut.repeats if cut is not None else ():
        paths = [repeat.block(number) for number in range(repeat.count)]
        blocks = [cut.removed[p] if cut is not None and p in cut.removed else model.get_submodule(p) for p in paths]
        for block in blocks[: repeat.kept]:
            for path, module in block.named_modules():
                for name in (*module_parameters(module), *module_buffers(module), *vars(module)):
                    alike[id(module), name] = [getattr(other.get_submodule(path), name, None) for other in blocks]

    def is_same(origin: Origin) -> bool:
        if origin == NOT_HELD:
            return not alike
        first, *others = alike.get(origin, [None])
        with disable_current_modes():
            return all(_is_equal(first, other) for other in others)

    return is_same


def _is_equal(first: object, other: object) -> bool:
    if not isinstance(first, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    return first.shape == other.shape and first.dtype == other.dtype and torch.equal(first, other)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    on_use = case.list_if_used()
    is_same = make_block_comparison(case.model, case.cut)

    def on_question(origins: frozenset[Origin] | None) -> None:
        if origins is None:
            case.unanswered.update(_running_lines())
            return
        if not all(map(is_same, origins)):
            raise BlocksDiffer("a value that differs between equal blocks is read")
        case.answered.update(_running_lines())
        on_use()

    with Constants(case.model, on_question).follow_calls():
        yield


def _running_lines() -> Iterator[tuple[str, int]]:
    """Yield the lines of the model's own code on the call stack."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if is_model_source(frame.f_code.co_filename):
            yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


REMEDY = Remedy(
    name="constant_read",
    cures=Code.DATA_DEPENDENT,
    title="Answers questions about values that no input reaches",
    stage="library",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="A value is read only if every call behind it had fixed arguments, and was repeated on them.",
    detect=detect,
    apply=apply,
    order=10,
)
