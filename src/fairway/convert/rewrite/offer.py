"""Search for candidates and install them, for the three source remedies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairway.convert.remedies.contract import Case, Match, Refusal
from fairway.convert.rewrite.candidates import compile_blocks, make_candidates
from fairway.convert.rewrite.find import Kind, find_sites


def offer_rewrites(case: Case, kind: Kind, absent: str) -> Match | Refusal:
    """Match with complete rewrites if the user's code has a suspect of this kind.

    Each rewrite covers all loops, lists and choices together. `absent` is the reason for a refusal without suspects.
    """
    sites = tuple(
        site for site in find_sites(case.model, case.named_inputs, case.live) if site.suspect.kind != "branch"
    )
    suspects = [site.suspect for site in sites if site.suspect.kind == kind]
    if not suspects:
        return Refusal(absent)
    rewrites = make_candidates(case.model, sites, case.route.is_traced)
    if isinstance(rewrites, Refusal):
        return rewrites
    lines = ", ".join(f"{Path(suspect.where.file or '').name}:{suspect.where.line}" for suspect in suspects)
    note = f"{kind}s rewritten ({', '.join(rewrite.strategy for rewrite in rewrites)}): {lines}"
    return Match(note, tuple(suspect.where for suspect in suspects), rewrites)


@contextmanager
def install_rewrite(case: Case, match: Match) -> Iterator[None]:
    with match.data[0].install():
        compile_blocks(case)
        yield
