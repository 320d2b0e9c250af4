"""nn.TransformerEncoder and nn.TransformerDecoder take their mask as given, and do not ask if it is causal.

Given a mask and no hint, both compare the mask's values with a causal one, only to choose a faster kernel.
torch.export cannot decide that while it captures; the tracer decides it for the example and, if the
example's mask was causal, writes a file without the mask. Answering "not causal" uses the mask that is
given, which computes the same. A hint that the caller passes is kept.

Refuses under the script capture, which would have to compile the replacement, and where neither stack is in
the model: a single layer does not ask.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import torch

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Where

STACKS = (torch.nn.TransformerEncoder, torch.nn.TransformerDecoder)


def only_if_told(mask: torch.Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Stands in for torch's `_detect_is_causal_mask`: the caller's hint, and no look at the mask."""
    return is_causal is True


def detect(case: Case) -> Match | Refusal:
    if case.route.capture == "script":
        return Refusal("the script capture would have to compile the replacement")
    found = [(name, m) for name, m in case.model.named_modules() if isinstance(m, STACKS)]
    if not found:
        return Refusal("the model has no nn.TransformerEncoder or -Decoder; single layers do not ask")
    places = tuple(Where(module=name or type(module).__name__) for name, module in found)
    return Match(f"masks of {len(found)} Transformer stack(s) used as given, not compared", places)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    stacks: Any = torch.nn.modules.transformer
    original = stacks._detect_is_causal_mask
    stacks._detect_is_causal_mask = only_if_told
    try:
        yield
    finally:
        stacks._detect_is_causal_mask = original


REMEDY = Remedy(
    name="causal_undecided",
    cures="FW314",
    title="Uses a Transformer stack's mask as given",
    stage="library",
    affected={"torch": "==2.13.*"},
    upstream=("pytorch/pytorch#110255",),
    safety="A causal mask, added, gives what the causal kernel gives; the hint only chooses the kernel.",
    detect=detect,
    apply=apply,
)
