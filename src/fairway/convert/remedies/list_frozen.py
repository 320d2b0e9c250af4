"""A tensor made of a Python list that counts to a size, `torch.tensor(list(range(n)))`, becomes `torch.arange(n)`.

A list has one length while the model is captured. torch.export fixes the size at the example's or refuses, and the
tracer writes the list into the file. The function is rewritten. The remedy refuses on traced routes, and leaves lists
alone that do more than count. It can be removed once torch.export keeps the length of a list symbolic, which Python's
lists do not allow.
"""

from __future__ import annotations

from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy
from fairway.convert.rewrite.offer import install_rewrite, offer_rewrites
from fairway.diagnostics import Code


def detect(case: Case) -> Match | Refusal:
    """Match if a list that counts to a tensor's size is made a tensor."""
    return offer_rewrites(
        case, "list", "no Python list in the model's code counts to a tensor's size and is made a tensor"
    )


REMEDY = Remedy(
    name="list_frozen",
    cures=Code.LIST_FROZEN,
    title="A Python list as long as a size is made a tensor",
    stage="source",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="The rewritten function is run beside the original in eager PyTorch; the original judges the file.",
    detect=detect,
    apply=install_rewrite,
    order=30,
)
