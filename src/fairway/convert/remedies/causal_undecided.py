"""nn.TransformerEncoder and nn.TransformerDecoder use their mask as given, and do not check whether it is causal.

With a mask and no hint, both compare the mask's values with a causal one, only to choose a faster kernel. torch.export
cannot decide that while it captures. The tracer decides it for the example and writes a file without the mask if the
example's mask was causal. The answer "not causal" uses the mask that is given, which computes the same. A hint that the
caller passes is kept.

Refuses under the script capture, which would have to compile the replacement, and if the model has neither stack: a
single layer does not ask.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Code, Where
from fairway.torch_internals import replace_internal

TRANSFORMER_STACKS = (torch.nn.TransformerEncoder, torch.nn.TransformerDecoder)


def use_hint(mask: torch.Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Replace torch's `_detect_is_causal_mask`: return the caller's hint without looking at the mask."""
    return is_causal is True


def detect(case: Case) -> Match | Refusal:
    if case.route.capture == "script":
        return Refusal("the script capture would have to compile the replacement")
    stacks = [(name, m) for name, m in case.model.named_modules() if isinstance(m, TRANSFORMER_STACKS)]
    if not stacks:
        return Refusal("the model has no nn.TransformerEncoder or -Decoder; single layers do not ask")
    places = tuple(Where(module=name or type(module).__name__) for name, module in stacks)
    return Match(f"masks of {len(stacks)} Transformer stack(s) used as given, not compared", places)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    note_use = None if case.route.capture == "strict" else case.list_if_used()

    def use_hint_and_note(mask: torch.Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
        if note_use is not None and mask is not None and is_causal is None:
            note_use()
        return use_hint(mask, is_causal, size)

    with replace_internal("detect_is_causal_mask", use_hint if note_use is None else use_hint_and_note):
        yield


REMEDY = Remedy(
    name="causal_undecided",
    cures=Code.CAUSAL_UNDECIDED,
    title="Uses a Transformer stack's mask as given",
    stage="library",
    affected={"torch": "==2.13.*"},
    upstream=("pytorch/pytorch#110255",),
    safety="A causal mask, added, gives what the causal kernel gives; the hint only chooses the kernel.",
    detect=detect,
    apply=apply,
    order=30,
)
