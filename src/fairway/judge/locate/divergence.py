"""A file that is right at one size and wrong at another: the lines at which PyTorch's own runs there part.

An exporter follows the run at its example. Where the model's code asks for a size, goes another way at another size,
takes another number of steps, or makes a tensor of a Python list as long as a size, the file keeps what the example
did. So these lines are the cause, whosever code they stand in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fairway.diagnostics import Finding
from fairway.judge.branch_trace import TraceSite, Ways, position, ways_of
from fairway.judge.conditions import ConditionSource, header_of, place_of
from fairway.judge.runtimes.eager import run_eager
from fairway.model.subject import Subject

MOST = 4
"""Further lines that a finding lists in words."""

Seen = frozenset[Any]
Place = tuple[str | None, int | None]


@dataclass(frozen=True)
class Side:
    """Inputs of one size, with different values, and that size in words."""

    said: str
    inputs: Sequence[Sequence[torch.Tensor]]


def parting(subject: Subject, right: Side, wrong: Side) -> list[Finding]:
    """The lines that do one thing at every input of the one side and another at every input of the other."""
    run_eager(subject, right.inputs[0])  # what is done once and remembered, such as a warning, parts no runs
    rights = [ways_of(partial(run_eager, subject, one)) for one in right.inputs]
    wrongs = [ways_of(partial(run_eager, subject, one)) for one in wrong.inputs]
    found: dict[str, dict[Place, Finding]] = {}
    for site in _in_order(rights[0], wrongs[0]):
        header = header_of(site)
        looked = _counted if header is not None and header.kind == "while" else _taken
        here, there = (_agreed([looked(ways, site) for ways in side]) for side in (rights, wrongs))
        if header is not None and here and there and here != there:
            finding, where = _finding(header, site, (right.said, here), (wrong.said, there)), place_of(site, header)
            found.setdefault(finding.code, {}).setdefault((where.file, where.line), finding)
    return [_gathered(list(places.values())) for places in found.values()]


def _in_order(right: Ways, wrong: Ways) -> list[TraceSite]:
    """The sites of the wrong run, those first that first did what the right run did not: they lead to the others."""
    new = [site for site, answer in wrong.when if answer is None or answer not in right.taken.get(site, ())]
    return list(dict.fromkeys([*new, *wrong.taken]))


def _gathered(alike: list[Finding]) -> Finding:
    """One finding for all lines that do the same: the first that is met, which often leads to the others."""
    first, others = alike[0], [one.where for one in alike[1:] if one.where is not None]
    if not others:
        return first
    lines = [f"{Path(w.file or '').name}:{w.line} `{w.source}`" for w in others[:MOST]]
    more = f" and {len(others) - MOST} more" if len(others) > MOST else ""
    seen = f"{first.seen}; likewise {', '.join(lines)}{more}"
    return replace(first, seen=seen, data={"likewise": list(map(str, others))})


def _taken(ways: Ways, site: TraceSite) -> Seen:
    return frozenset(ways.taken.get(site, ()))


def _counted(ways: Ways, site: TraceSite) -> Seen:
    return frozenset(ways.counts.get((site.code, position(site)), ()))


def _agreed(seen: Sequence[Seen]) -> Seen:
    """What all runs of a side did; nothing where they differ, since then it hangs on values and not on the size."""
    return seen[0] if all(one == seen[0] for one in seen) else frozenset()


def _finding(header: ConditionSource, site: TraceSite, right: tuple[str, Seen], wrong: tuple[str, Seen]) -> Finding:
    where = place_of(site, header)
    say = partial(_say, header.kind, header.single and site.kind != "none")
    said = f"{say(right[1])} at {right[0]}, where the file is right, and {say(wrong[1])} at {wrong[0]}"
    if header.kind == "list":
        return Finding("FW217", f"the list {said}", where)
    return Finding("FW206" if header.kind in ("for", "while") else "FW207", f"`{header.text}` {said}", where)


def _either(seen: Seen) -> str:
    return " or ".join("x".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in sorted(seen))


def _say(kind: str, whole: bool, seen: Seen) -> str:
    """What was done at a site. A part of a condition says nothing of the whole but that it was decided otherwise."""
    if kind in ("for", "while"):
        return f"takes {_either(seen)} step" + "s" * (seen != {1})
    if kind == "list":
        return f"has {_either(seen)} elements"
    if len(seen) > 1:
        return "goes both ways"
    if whole:
        return "is true" if True in seen else "is false"
    return "goes one way" if True in seen else "goes the other way"
