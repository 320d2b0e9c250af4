"""What `fairway.export_generation` answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.convert.generation.step_comparison import Run
from fairway.convert.ladder.climb import Verdict
from fairway.convert.result import Result
from fairway.diagnostics import Finding
from fairway.diagnostics.render import render_finding


@dataclass(frozen=True)
class GenerationResult:
    """A verdict on a whole generator with everything it stands on: each graph's own result, and every step."""

    verdict: Verdict
    path: Path | None
    """The folder that was written. None where nothing fit to use came out."""
    files: tuple[str, ...]
    graphs: Mapping[str, Result]
    """By file: each with its evidence over the declared shapes."""
    runs: tuple[Run, ...]
    """One prompt and a padded batch, step by step against `generate`."""
    findings: tuple[Finding, ...]
    record: dict[str, Any]

    @property
    def verified(self) -> bool:
        return self.verdict == "verified"

    def __str__(self) -> str:
        return render(self)


def render(result: GenerationResult) -> str:
    """Verdict, graphs, steps, files, findings."""
    lines = [result.verdict + (f"  {os.path.relpath(result.path)}" if result.path else "")]
    width = max((len(name) for name in result.graphs), default=0)
    for number, (name, graph) in enumerate(result.graphs.items()):
        lines.append(f"  {'graphs' if number == 0 else '':<10}{name:<{width}}  {_graph(graph)}")
    for number, run in enumerate(result.runs):
        label = "steps" if number == 0 else ""
        lines += [f"  {label:<10}{run.what}: {_tokens(run)}", f"  {'':<10}{_numbers(run)}"]
    if result.path is not None:
        lines.append(f"  {'files':<10}{', '.join(result.files)}")
    shown = [f for f in result.findings if result.verdict != "verified" or f.severity == "warning"]
    return "\n".join(lines) + "".join(f"\n\n{render_finding(f)}" for f in shown)


def _graph(graph: Result) -> str:
    words: list[str] = [f"{graph.verdict:<9}"]
    if graph.evidence is not None:
        right, level = graph.evidence.points_right, graph.evidence.level
        words.append(f" {right} of {len(graph.evidence.tested)} samples right ({level}), {graph.evidence.domain}")
    return "".join(words).rstrip()


def _tokens(run: Run) -> str:
    rows = len(run.lengths)
    total, same = (
        rows * len(run.steps),
        sum(a == b for step in run.steps for a, b in zip(step.tokens, step.file_tokens, strict=True)),
    )
    open_steps = sum(step.choice == "undecided" for step in run.steps)
    hang = f", {open_steps} steps hang on rounding" if open_steps else ""
    return f"{same} of {total} tokens the same, {run.distinct} different ones{hang}"


def _numbers(run: Run) -> str:
    if not run.steps:
        return "nothing to compare"
    worst, margin = max(s.ratio for s in run.steps), min(s.margin for s in run.steps)
    return f"logits at most {worst:.2g} of what is allowed, least margin {margin:.2g}; {run.yardstick}"
