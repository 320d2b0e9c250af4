"""Parametrized weights are computed once, before the capture.

`torch.nn.utils.parametrize` (weight norm, spectral norm, orthogonal and custom ones) computes the weight in every call.
Exporters write that computation into the file, which costs time in every run, and fail if it has no translation, as for
`matrix_exp`. In eval mode the result is always the same, so the file gets the result.

Refuses in training mode, in which spectral norm changes with each call, and under strict and script capture, which read
the source of the property that is replaced instead of calling it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.utils import parametrize

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Code, Where
from fairway.torch_internals import patch_attribute


def detect(case: Case) -> Match | Refusal:
    weights = [
        f"{path}.{name}" if path else name
        for path, module in case.model.named_modules()
        for name in _list_parametrized(module)
    ]
    if not weights:
        return Refusal("no weight is parametrized")
    if case.route.capture in ("strict", "script"):
        return Refusal(f"{case.route.capture} capture reads the property that would be replaced")
    if any(module.training for module in case.model.modules() if _list_parametrized(module)):
        return Refusal("in training mode a parametrized weight may change with each call")
    shown = ", ".join(weights[:3]) + (", …" if len(weights) > 3 else "")
    return Match(f"parametrized weights computed once: {shown}", tuple(Where(module=name) for name in weights))


def _list_parametrized(module: Any) -> list[str]:
    return list(module.parametrizations) if parametrize.is_parametrized(module) else []


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    note_use = case.list_if_used()
    with ExitStack() as stack:
        for module in case.model.modules():
            for name in _list_parametrized(module):
                stack.enter_context(_compute_once(module, name, note_use))
        yield


def _compute_once(module: torch.nn.Module, name: str, note_use: Callable[[], None]) -> AbstractContextManager[None]:
    """Make the property return one tensor for this module. Copies of the module share its class and are unaffected."""
    kind = type(module)
    original: property = getattr(kind, name)
    with torch.no_grad():
        value = getattr(module, name).clone()
    assert original.fget is not None
    compute = original.fget

    def read(self: torch.nn.Module) -> object:
        if self is not module:
            return compute(self)
        note_use()
        return value

    return patch_attribute(kind, name, property(read, original.fset))


REMEDY = Remedy(
    name="parametrized_weight",
    cures=Code.PARAMETRIZED_WEIGHT,
    title="Computes parametrized weights once",
    stage="model",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="The weight is the one that the module computes in eval mode; the file is judged.",
    detect=detect,
    apply=apply,
    order=20,
)
