"""A Python loop over a tensor's size or value becomes one operator of the graph.

The exporter runs the loop and records its steps, so the file repeats exactly as many as the example had. The user's
function is written anew, with the loop as `scan` or `while_loop` for torch.export, and compiled by TorchScript for the
traced routes. It refuses where the loop ends early, fills a list under a condition, or writes through another name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairway.remedies.contract import Case, Match, Refusal, Remedy
from fairway.rewrite.candidates import candidates, prepare
from fairway.rewrite.find import sites


def detect(case: Case) -> Match | Refusal:
    """Matches where a tensor's size or value bounds a loop in the user's own code."""
    found = tuple(site for site in sites(case.model, case.named) if site.suspect.kind != "branch")
    loops = [site.suspect for site in found if site.suspect.kind == "loop"]
    if not loops:
        return Refusal("no Python loop in the model's own code is bounded by a tensor's size or value")
    made = candidates(case.model, found, case.route.traced)
    if isinstance(made, Refusal):
        return made
    lines = ", ".join(f"{Path(loop.where.file or '').name}:{loop.where.line}" for loop in loops)
    note = f"loops rewritten ({', '.join(rewrite.strategy for rewrite in made)}): {lines}"
    return Match(note, tuple(loop.where for loop in loops), made)


@contextmanager
def apply(case: Case, match: Match) -> Iterator[None]:
    with match.data[0].install():
        prepare(case)
        yield


REMEDY = Remedy(
    name="loop_unrolled",
    cures="FW206",
    title="A Python loop is unrolled to the example's length",
    stage="source",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="The rewritten function is run beside the original in eager PyTorch over the lattice before it is used.",
    detect=detect,
    apply=apply,
)
