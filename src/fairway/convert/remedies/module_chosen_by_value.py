"""A module picked by a number from a tensor becomes: run all of them, stack the results, gather by the tensor.

`.item()` leaves the graph, so the exporter freezes the choice it saw for the example, wrong even at the example's own
shape. The index is kept as a tensor; loops around the choice are rewritten along with it. It refuses where the modules
are not a list to pick from by number, or where a loop around the choice cannot be rewritten.
"""

from __future__ import annotations

from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy
from fairway.convert.rewrite.offer import installed, offer


def detect(case: Case) -> Match | Refusal:
    """Matches where a number taken out of a tensor picks one of several modules."""
    return offer(case, "choice", "no module in the model's own code is chosen by a number taken out of a tensor")


REMEDY = Remedy(
    name="module_chosen_by_value",
    cures="FW205",
    title="A module is chosen by a value taken out of a tensor",
    stage="source",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="The rewritten function is run beside the original in eager PyTorch; the original judges the file.",
    detect=detect,
    apply=installed,
)
