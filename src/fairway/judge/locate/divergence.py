"""Find the lines at which PyTorch's runs differ between a size where a file is right and one where it is wrong.

An exporter follows the run at its example. If the model's code branches on a size, takes a number of steps that depends
on it, or makes a tensor of a Python list as long as a size, the file keeps the behavior at the example. So these lines
are the cause, in the user's code or in a library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from fairway.diagnostics import Code, Finding
from fairway.judge.branch_trace import Answer, BranchTrace, TraceSite, find_site_span, trace_branches
from fairway.judge.conditions import ConditionSource, find_condition, locate_condition
from fairway.judge.runtimes.eager import run_eager
from fairway.model.subject import Subject

MAX_LISTED_LINES = 4
"""A finding lists at most this many further lines."""

Behavior = frozenset[Answer]
Place = tuple[str | None, int | None]


@dataclass(frozen=True)
class SizeSide:
    """Inputs of one size with different values, and a label for the size."""

    label: str
    inputs: Sequence[Sequence[torch.Tensor]]


def find_divergence(subject: Subject, right: SizeSide, wrong: SizeSide) -> list[Finding]:
    """Return findings for the lines that always behave one way on one side and differently on the other."""
    run_eager(subject, right.inputs[0])  # the first run may do things once, such as a warning
    rights = [trace_branches(partial(run_eager, subject, tensors)) for tensors in right.inputs]
    wrongs = [trace_branches(partial(run_eager, subject, tensors)) for tensors in wrong.inputs]
    findings: dict[str, dict[Place, Finding]] = {}
    for site in _order_sites(rights[0], wrongs[0]):
        header = find_condition(site)
        get_behavior = _get_steps if header is not None and header.kind == "while" else _get_answers
        here, there = (
            _find_common_behavior([get_behavior(trace, site) for trace in side]) for side in (rights, wrongs)
        )
        if header is not None and here and there and here != there:
            finding, where = (
                _make_finding(header, site, (right.label, here), (wrong.label, there)),
                locate_condition(site, header),
            )
            findings.setdefault(finding.code, {}).setdefault((where.file, where.line), finding)
    return [_merge_findings(list(places.values())) for places in findings.values()]


def _order_sites(right: BranchTrace, wrong: BranchTrace) -> list[TraceSite]:
    """Return the sites of the wrong run, starting with those that first differed from the right run."""
    new = [site for site, answer in wrong.when if answer is None or answer not in right.taken.get(site, ())]
    return list(dict.fromkeys([*new, *wrong.taken]))


def _merge_findings(alike: list[Finding]) -> Finding:
    """Return one finding for all lines with the same defect. The first line often causes the others."""
    first, others = alike[0], [finding.where for finding in alike[1:] if finding.where is not None]
    if not others:
        return first
    lines = [f"{Path(w.file or '').name}:{w.line} `{w.source}`" for w in others[:MAX_LISTED_LINES]]
    more = f" and {len(others) - MAX_LISTED_LINES} more" if len(others) > MAX_LISTED_LINES else ""
    message = f"{first.seen}; likewise {', '.join(lines)}{more}"
    return replace(first, seen=message, data={"likewise": list(map(str, others))})


def _get_answers(trace: BranchTrace, site: TraceSite) -> Behavior:
    return frozenset(trace.taken.get(site, ()))


def _get_steps(trace: BranchTrace, site: TraceSite) -> Behavior:
    return frozenset(trace.counts.get((site.code, find_site_span(site)), ()))


def _find_common_behavior(behaviors: Sequence[Behavior]) -> Behavior:
    """Return the behavior of all runs of a side, or nothing if they differ and so depend on values, not on the size."""
    return behaviors[0] if all(behavior == behaviors[0] for behavior in behaviors) else frozenset()


def _make_finding(
    header: ConditionSource, site: TraceSite, right: tuple[str, Behavior], wrong: tuple[str, Behavior]
) -> Finding:
    where = locate_condition(site, header)
    describe = partial(_describe_behavior, header.kind, header.is_single and site.kind != "none")
    message = f"{describe(right[1])} at {right[0]}, where the file is right, and {describe(wrong[1])} at {wrong[0]}"
    if header.kind == "list":
        return Finding(Code.LIST_FROZEN, f"the list {message}", where)
    return Finding(
        Code.LOOP_UNROLLED if header.kind in ("for", "while") else Code.BRANCH_FROZEN,
        f"`{header.text}` {message}",
        where,
    )


def _join_alternatives(behavior: Behavior) -> str:
    return " or ".join(
        "x".join(map(str, alternative)) if isinstance(alternative, tuple) else str(alternative)
        for alternative in sorted(behavior)
    )


def _describe_behavior(kind: str, is_whole_condition: bool, behavior: Behavior) -> str:
    """Describe the behavior at a site. Of a part of a condition, only the direction is known."""
    if kind in ("for", "while"):
        return f"takes {_join_alternatives(behavior)} step" + "s" * (behavior != {1})
    if kind == "list":
        return f"has {_join_alternatives(behavior)} elements"
    if len(behavior) > 1:
        return "goes both ways"
    if is_whole_condition:
        return "is true" if True in behavior else "is false"
    return "goes one way" if True in behavior else "goes the other way"
