"""The result of `fairway.export_generation`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairway.convert.generation.step_comparison import PromptRun
from fairway.convert.result import Result
from fairway.convert.types import Verdict
from fairway.diagnostics import Finding
from fairway.diagnostics.render import render_finding
from fairway.record.schema import GenerationRecord


@dataclass(frozen=True)
class GenerationResult:
    """The verdict on a complete generator with its evidence: each graph's own result, and every step."""

    verdict: Verdict
    path: Path | None
    """The folder that was written, or None if no usable one was made."""
    files: tuple[str, ...]
    graphs: Mapping[str, Result]
    """The results of the graphs by file name, each with its evidence over the declared shapes."""
    runs: tuple[PromptRun, ...]
    """One prompt and a padded batch, step by step against `generate`."""
    findings: tuple[Finding, ...]
    record: GenerationRecord
    """Everything known about the folder. `record.as_dict()` is the JSON in it."""

    @property
    def verified(self) -> bool:
        return self.verdict == "verified"

    def __str__(self) -> str:
        return render_generation(self)


def render_generation(result: GenerationResult) -> str:
    """Return the result as text: verdict, graphs, steps, files, findings."""
    lines = [result.verdict + (f"  {os.path.relpath(result.path)}" if result.path else "")]
    width = max((len(name) for name in result.graphs), default=0)
    for number, (name, graph) in enumerate(result.graphs.items()):
        lines.append(f"  {'graphs' if number == 0 else '':<10}{name:<{width}}  {_describe_graph(graph)}")
    for number, run in enumerate(result.runs):
        label = "steps" if number == 0 else ""
        lines += [f"  {label:<10}{run.title}: {_describe_tokens(run)}", f"  {'':<10}{_describe_numbers(run)}"]
    if result.path is not None:
        lines.append(f"  {'files':<10}{', '.join(result.files)}")
    shown = [f for f in result.findings if result.verdict != "verified" or f.severity == "warning"]
    return "\n".join(lines) + "".join(f"\n\n{render_finding(f)}" for f in shown)


def _describe_graph(graph: Result) -> str:
    words: list[str] = [f"{graph.verdict:<9}"]
    if graph.evidence is not None:
        right, level = graph.evidence.points_right, graph.evidence.level
        words.append(f" {right} of {len(graph.evidence.tested)} samples right ({level}), {graph.evidence.domain}")
    return "".join(words).rstrip()


def _describe_tokens(run: PromptRun) -> str:
    rows = len(run.lengths)
    total, same = (
        rows * len(run.steps),
        sum(a == b for step in run.steps for a, b in zip(step.tokens, step.file_tokens, strict=True)),
    )
    open_steps = sum(step.choice == "undecided" for step in run.steps)
    undecided = f", {open_steps} steps depend on rounding" if open_steps else ""
    return f"{same} of {total} tokens the same, {run.distinct} different ones{undecided}"


def _describe_numbers(run: PromptRun) -> str:
    if not run.steps:
        return "nothing to compare"
    worst, margin = max(s.ratio for s in run.steps), min(s.margin for s in run.steps)
    return f"logits at most {worst:.2g} of what is allowed, least margin {margin:.2g}; {run.yardstick}"
