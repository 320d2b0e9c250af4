"""nn.MultiheadAttention and the Transformer layers keep their lengths, and come as operators ONNX knows.

Two things stand in the way. The inference fast path is one fused operator without a translation; the tracer
and strict capture run into it. And where query, key and value share one projection, its result is taken
apart with `unflatten` and `squeeze`, after which the TorchScript exporter believes the example's sizes and
folds them into the Reshape that splits the heads. So the fast path is switched off during capture, and the
shared projection is computed as three, which is the same matrix cut in rows.

Limit: with `src_key_padding_mask`, nn.TransformerEncoder's fast path writes zeros into padded rows, and
with a float mask it answers NaN; the file computes what the documented path does, as eager PyTorch does
under `torch.backends.mha.set_fastpath_enabled(False)`.

Refuses under non-strict torch.export, which has neither defect; under the script capture, which would have
to compile the patch; and where the projections are apart and there is no fast path.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import torch

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Where

KINDS = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer)


def project_apart(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """What `F._in_projection_packed` computes, one linear map each."""
    weights = weight.chunk(3)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    parts = zip((query, key, value), weights, biases, strict=True)
    return [torch.nn.functional.linear(*part) for part in parts]


def detect(case: Case) -> Match | Refusal:
    if case.route.capture not in ("trace", "strict"):
        return Refusal(f"the defect is not known under the {case.route.capture} capture")
    found = [(name, m) for name, m in case.model.named_modules() if isinstance(m, KINDS)]
    if not found:
        return Refusal("the model has no nn.MultiheadAttention")
    places = tuple(Where(module=name or type(module).__name__) for name, module in found)
    if all(isinstance(m, torch.nn.MultiheadAttention) and not m._qkv_same_embed_dim for _, m in found):
        return Refusal("query, key and value are projected apart, which the tracer follows", places)
    return Match(f"{len(found)} attention layer(s) captured without the fast path, projections apart", places)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    functional: Any = torch.nn.functional
    packed, fast = functional._in_projection_packed, torch.backends.mha.get_fastpath_enabled()
    functional._in_projection_packed = project_apart
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        functional._in_projection_packed = packed
        torch.backends.mha.set_fastpath_enabled(fast)


REMEDY = Remedy(
    name="attention_length_baked",
    cures="FW312",
    title="Captures attention without fast path and packed projection",
    stage="library",
    affected={"torch": "==2.13.*"},
    upstream=("pytorch/pytorch#122321", "pytorch/pytorch#117209", "pytorch/pytorch#143107"),
    safety="One matrix product is done as three, by rows; the fast path is the same attention, fused.",
    detect=detect,
    apply=apply,
)
