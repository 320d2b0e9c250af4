"""If a number from a tensor picks a module, all modules run, and the tensor selects from their results.

`.item()` leaves the graph, so the exporter freezes the choice that it saw for the example. The file is wrong for every
other choice, even at the example's shape. The index is kept as a tensor, and loops around the choice are rewritten with
it. The remedy refuses if the modules are not a list to pick from by number, or if a loop around the choice cannot be
rewritten.
"""

from __future__ import annotations

from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy
from fairway.convert.rewrite.offer import install_rewrite, offer_rewrites
from fairway.diagnostics import Code


def detect(case: Case) -> Match | Refusal:
    """Match if a number taken out of a tensor picks one of several modules."""
    return offer_rewrites(
        case, "choice", "no module in the model's own code is chosen by a number taken out of a tensor"
    )


REMEDY = Remedy(
    name="module_chosen_by_value",
    cures=Code.MODULE_CHOSEN_BY_VALUE,
    title="A module is chosen by a value taken out of a tensor",
    stage="source",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="The rewritten function is run beside the original in eager PyTorch; the original judges the file.",
    detect=detect,
    apply=install_rewrite,
    order=10,
)
