"""nn.MultiheadAttention and the Transformer layers keep their sequence lengths dynamic.

There are two defects. The inference fast path is one fused operator without a translation, which the tracer and strict
capture record. And if query, key and value share one projection, its result is taken apart with `unflatten` and
`squeeze`. The TorchScript exporter then treats the example's sizes as constants, and folds them into the Reshape that
splits the heads. So the fast path is switched off during capture, and the shared projection is computed as three: the
same matrix cut in rows.

Limit: with `src_key_padding_mask`, nn.TransformerEncoder's fast path writes zeros into padded rows, and with a float
mask it returns NaN. The file computes the documented path, as eager PyTorch does under
`torch.backends.mha.set_fastpath_enabled(False)`.

Refuses under non-strict torch.export, which has neither defect, under the script capture, which would have to compile
the patch, and if the projections are separate and there is no fast path.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager

import torch

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Code, Where
from fairway.torch_internals import Untyped, replace_internal, shares_projection

ATTENTION_LAYERS = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer)


def project_separately(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """Compute the projections of query, key and value with one linear map each."""
    weights = weight.chunk(3)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    parts = zip((query, key, value), weights, biases, strict=True)
    return [torch.nn.functional.linear(*part) for part in parts]


def _note_calls(note_use: Callable[[], None]) -> Callable[..., list[torch.Tensor]]:
    """Return the function that also notes its calls. Without the fast path every packed projection comes here."""

    def project(*args: Untyped, **kwargs: Untyped) -> list[torch.Tensor]:
        note_use()
        return project_separately(*args, **kwargs)

    return project


def detect(case: Case) -> Match | Refusal:
    if case.route.capture not in ("trace", "strict"):
        return Refusal(f"the defect is not known under the {case.route.capture} capture")
    layers = [(name, m) for name, m in case.model.named_modules() if isinstance(m, ATTENTION_LAYERS)]
    if not layers:
        return Refusal("the model has no nn.MultiheadAttention")
    places = tuple(Where(module=name or type(module).__name__) for name, module in layers)
    if all(isinstance(m, torch.nn.MultiheadAttention) and not shares_projection(m) for _, m in layers):
        return Refusal("query, key and value have separate projections, which the tracer follows", places)
    return Match(f"{len(layers)} attention layer(s) captured without the fast path, with separate projections", places)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    project = project_separately if case.route.capture == "strict" else _note_calls(case.list_if_used())
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with replace_internal("in_projection_packed", project):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_enabled)


REMEDY = Remedy(
    name="attention_length_baked",
    cures=Code.ATTENTION_LENGTH_BAKED,
    title="Captures attention without fast path and packed projection",
    stage="library",
    affected={"torch": "==2.13.*"},
    upstream=("pytorch/pytorch#122321", "pytorch/pytorch#117209", "pytorch/pytorch#143107"),
    safety="Products with three parts of a matrix equal one with all of it; the fast path is the same attention.",
    detect=detect,
    apply=apply,
    order=20,
)
