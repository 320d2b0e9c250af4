"""A Python loop over a tensor's size or value becomes one operator of the graph.

The exporter runs the loop and records its steps, so the file always repeats the example's number of steps. The remedy
rewrites the user's function. For torch.export the loop becomes a `scan` or a `while_loop`, and for the traced routes
TorchScript compiles it. A loop that ends on a value, by `break`, `return` or `while`, becomes a `while_loop`.
Attributes that modules change inside the loop, as spiking layers do, are carried by it. The remedy refuses, for
example, a `while` that fills a list, a `return` in a loop that is not at the top of its function, a list that is read
while every step fills it, and writes through another name.
"""

from __future__ import annotations

from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy
from fairway.convert.rewrite.offer import install_rewrite, offer_rewrites
from fairway.diagnostics import Code


def detect(case: Case) -> Match | Refusal:
    """Match if a tensor's size or value bounds a loop in the user's own code."""
    return offer_rewrites(case, "loop", "no Python loop in the model's own code is bounded by a tensor's size or value")


REMEDY = Remedy(
    name="loop_unrolled",
    cures=Code.LOOP_UNROLLED,
    title="A Python loop is unrolled to the example's length",
    stage="source",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="The rewritten function is run beside the original in eager PyTorch; the original judges the file.",
    detect=detect,
    apply=install_rewrite,
    order=20,
)
