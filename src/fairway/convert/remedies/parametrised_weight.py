"""Weights under a parametrisation are computed once, before the capture.

`torch.nn.utils.parametrize` (weight norm, spectral norm, orthogonal and users' own) computes the weight anew in every
call. Exporters write that computation into the file, where it costs time in every run, and fail where it has no
translation, as `matrix_exp`. In eval mode the result is always the same, so the file gets the result.

Refuses in training mode, where spectral norm moves with each call, and under strict and script capture, which
read the property that is replaced rather than asking it.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.utils import parametrize

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Where


def detect(case: Case) -> Match | Refusal:
    found = [
        (f"{path}.{name}" if path else name) for path, module in case.model.named_modules() for name in _names(module)
    ]
    if not found:
        return Refusal("no weight is parametrised")
    if case.route.capture in ("strict", "script"):
        return Refusal(f"{case.route.capture} capture reads the property that would be replaced")
    if any(module.training for module in case.model.modules() if _names(module)):
        return Refusal("in training mode a parametrised weight may move with each call")
    shown = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
    return Match(f"parametrised weights computed once: {shown}", tuple(Where(module=name) for name in found))


def _names(module: Any) -> list[str]:
    return list(module.parametrizations) if parametrize.is_parametrized(module) else []


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    with ExitStack() as stack, torch.no_grad():
        for module in case.model.modules():
            for name in _names(module):
                stack.enter_context(_computed(module, name))
        yield


@contextmanager
def _computed(module: torch.nn.Module, name: str) -> Applied:
    """The property answers with one tensor for this module. Copies of a module share its class, so it asks which."""
    kind: Any = type(module)
    original: property = getattr(kind, name)
    value = getattr(module, name).detach().clone()
    assert original.fget is not None
    ask = original.fget
    setattr(kind, name, property(lambda self: value if self is module else ask(self), original.fset))
    try:
        yield
    finally:
        setattr(kind, name, original)


REMEDY = Remedy(
    name="parametrised_weight",
    cures="FW323",
    title="Computes parametrised weights once",
    stage="model",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="The weight is the one that the module answers with in eval mode; the file is judged.",
    detect=detect,
    apply=apply,
)
