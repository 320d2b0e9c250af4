"""What the three source remedies have in common: the search for candidates, and their installation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairway.convert.remedies.contract import Case, Match, Refusal
from fairway.convert.rewrite.candidates import candidates, prepare
from fairway.convert.rewrite.find import Kind, sites


def offer(case: Case, kind: Kind, absent: str) -> Match | Refusal:
    """Complete rewrites where the user's code has a suspect of this kind. All its loops, lists and choices go
    together."""
    found = tuple(site for site in sites(case.model, case.named, case.live) if site.suspect.kind != "branch")
    wanted = [site.suspect for site in found if site.suspect.kind == kind]
    if not wanted:
        return Refusal(absent)
    made = candidates(case.model, found, case.route.traced)
    if isinstance(made, Refusal):
        return made
    lines = ", ".join(f"{Path(one.where.file or '').name}:{one.where.line}" for one in wanted)
    note = f"{kind}s rewritten ({', '.join(rewrite.strategy for rewrite in made)}): {lines}"
    return Match(note, tuple(one.where for one in wanted), made)


@contextmanager
def installed(case: Case, match: Match) -> Iterator[None]:
    with match.data[0].install():
        prepare(case)
        yield
