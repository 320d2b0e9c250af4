"""`fairway.export_generation`: every graph over its shapes, then all of them together, token by token."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fairway.convert.export import Progress, export_subject, make_settings
from fairway.convert.generation.anatomy import Anatomy, examine
from fairway.convert.generation.configs import write_configs
from fairway.convert.generation.file_names import RECORD
from fairway.convert.generation.folder_delivery import check_folder, put_folder
from fairway.convert.generation.generation_result import GenerationResult
from fairway.convert.generation.graphs import Bounds, GeneratorGraph, graphs, subject_of
from fairway.convert.generation.greedy import Player, generate, make_prompts
from fairway.convert.generation.step_comparison import Run, compare_steps
from fairway.convert.ladder.climb import Settings, Verdict
from fairway.convert.ladder.diagnose import diagnose
from fairway.convert.result import Result
from fairway.diagnostics import Finding
from fairway.diagnostics.errors import UserError, complain
from fairway.judge.coverage_report import UNPROVEN_CODES
from fairway.judge.lattice import Level
from fairway.model.source import user_frame
from fairway.record.delivery import workshop
from fairway.record.files import FORMAT, hash_file, versions
from fairway.record.progress import Diary, both
from fairway.workers.attempt import Outcome, Workers

STEPS = 32
LONGEST = 12
"""Tokens in the longest prompt that is made up."""

_ORDER: tuple[Verdict, ...] = ("failed", "wrong", "unproven", "verified")


def export_generation(
    model: torch.nn.Module,
    folder: str | Path,
    *,
    bounds: Mapping[str, tuple[int, int]] | None = None,
    prompts: Sequence[Sequence[int]] | None = None,
    steps: int = STEPS,
    opset: int | None = None,
    level: Level = "standard",
    routes: Sequence[str] = (),
    remedies: bool = True,
    timeout: float = 600.0,
    memory: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> GenerationResult:
    """Takes a generator of transformers to a folder of ONNX graphs with a cache, proven one by one and step by step.

    `bounds` narrow or widen the dims batch, past, seq and source. `prompts` are token ids to generate from, random ones
    where there are none. `timeout` (seconds) and `memory` (bytes) limit each attempt.
    """
    settings = make_settings(level, routes, opset, remedies, timeout, memory, judging=True)
    return generate_folder(model, Path(folder), settings, bounds or {}, prompts, steps, overwrite, progress)


def generate_folder(
    model: torch.nn.Module,
    folder: Path,
    settings: Settings,
    bounds: Bounds,
    prompts: Sequence[Sequence[int]] | None = None,
    steps: int = STEPS,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> GenerationResult:
    """The whole road: look, export each graph, generate with all of them, deliver what may be delivered."""
    heard = progress or (lambda event: None)
    check_folder(folder, overwrite)
    if steps < 1:
        raise complain("FW006", f"{steps} steps; at least one is needed")
    with Workers(settings.limits) as workers, workshop(folder.absolute(), workers.janitor) as shop:
        heard = both(heard, Diary(shop, folder.name, type(model).__name__))
        workers.tick = partial(heard, ("tick",))
        heard(("stage", "looking at the model"))
        anatomy = _look(workers, model, settings)
        _check_prompts(prompts, anatomy)
        made = shop / "made"
        made.mkdir()
        results = _export_each(graphs(model, anatomy, bounds), type(model).__name__, made, settings, heard)
        runs: tuple[Run, ...] = ()
        findings: tuple[Finding, ...] = ()
        if all(result.path is not None for result in results.values()):
            runs, findings = _walk(workers, model, anatomy, made, settings, prompts, steps, heard)
        return _delivered(model, anatomy, folder, made, results, runs, findings, overwrite, workers)


def _export_each(
    parts: Sequence[GeneratorGraph], name: str, made: Path, settings: Settings, heard: Callable[[Any], None]
) -> dict[str, Result]:
    """Every graph's result, up to the first that gives no file."""
    results: dict[str, Result] = {}
    for graph in parts:
        heard(("part", graph.file))
        subject = subject_of(graph, f"{name}/{graph.file}")
        results[graph.file] = export_subject(subject, made / graph.file, settings, progress=heard)
        if results[graph.file].path is None:
            break
    return results


def _settled(model: torch.nn.Module, settings: Settings) -> torch.nn.Module:
    return model.eval() if settings.remedies else model


def _look(workers: Workers, model: torch.nn.Module, settings: Settings) -> Anatomy:
    """The model's anatomy. A model that cannot generate one token in PyTorch is not exported for it."""

    def work(tell: Callable[[Any], None]) -> Anatomy:
        anatomy = examine(_settled(model, settings))
        try:
            generate(model, make_prompts(anatomy, None, 1, 0)[0], 1)
        except Exception as error:
            raise complain("FW201", f"generate raised {type(error).__name__}: {error}") from error
        return anatomy

    outcome = workers.run(work)
    if outcome.status != "done":
        raise UserError(_said(outcome))
    anatomy: Anatomy = outcome.value
    return anatomy


def _said(outcome: Outcome) -> Finding:
    """What went wrong in a process apart. It exported nothing, so no exporter is to blame."""
    failure = outcome.failure
    if failure is None or failure.finding is not None:
        return diagnose(outcome, ())[0]
    return Finding("FW201", f"{failure.kind}: {failure.message}", where=user_frame(failure.frames))


def _walk(
    workers: Workers,
    model: torch.nn.Module,
    anatomy: Anatomy,
    made: Path,
    settings: Settings,
    prompts: Sequence[Sequence[int]] | None,
    steps: int,
    heard: Callable[[Any], None],
) -> tuple[tuple[Run, ...], tuple[Finding, ...]]:
    """Both prompts, step by step, in a process apart. What could not be looked at leaves the folder unproven."""
    longest = max(1, min(LONGEST, anatomy.context - steps))
    room = anatomy.context - (1 if anatomy.cross else max(map(len, prompts)) if prompts else longest)
    count = max(1, min(steps, room))

    def work(tell: Callable[[Any], None]) -> tuple[Run, ...]:
        known: Any = _settled(model, settings)
        player = Player(made, anatomy)
        padding = known.generation_config.pad_token_id or 0
        pair = make_prompts(anatomy, prompts, longest, padding)
        return tuple(compare_steps(known, player, prompt, count, tell) for prompt in pair)

    heard(("part", "generating step by step"))
    outcome = workers.run(work, heard)
    if outcome.status != "done":
        said = _said(outcome)
        return (), (said, Finding("FW504", f"generation was not compared: {said.seen}"))
    runs: tuple[Run, ...] = outcome.value
    short = (
        ()
        if count == steps
        else (
            Finding("FW504", f"{count} steps were compared, not {steps}: the context holds {anatomy.context} tokens"),
        )
    )
    return runs, (*(f for run in runs for f in run.findings), *short)


def _check_prompts(prompts: Sequence[Sequence[int]] | None, anatomy: Anatomy) -> None:
    if prompts is None:
        return
    if anatomy.features is not None or not prompts or not all(len(row) for row in prompts):
        raise complain("FW015", "prompts are lists of token ids, none of them empty; a model of speech takes none")
    for number, row in enumerate(prompts):
        outside = [token for token in row if not 0 <= token < anatomy.vocabulary]
        if outside:
            raise complain("FW015", f"prompt {number} holds token {outside[0]}; there are {anatomy.vocabulary}")


def _delivered(
    model: Any,
    anatomy: Anatomy,
    folder: Path,
    made: Path,
    results: Mapping[str, Result],
    runs: tuple[Run, ...],
    findings: tuple[Finding, ...],
    overwrite: bool,
    workers: Workers,
) -> GenerationResult:
    """Puts a verified or unproven folder in place; keeps a wrong one aside, under a name that nobody ships."""
    verdict = _verdict(results, findings)
    named = tuple(replace(f, seen=f"{file}: {f.seen}") for file, result in results.items() for f in result.findings)
    record = {
        "format": FORMAT,
        "verdict": verdict,
        "model": f"{type(model).__module__}.{type(model).__qualname__}",
        "versions": versions(),
        "graphs": {file: r.record for file, r in results.items()},
        "steps": [run.as_dict() for run in runs],
        "findings": [f.as_dict() for f in (*named, *findings)],
    }
    files: tuple[str, ...] = ()
    if verdict in ("verified", "unproven"):
        write_configs(model, anatomy, made)
        files = tuple(sorted([*(path.name for path in made.iterdir()), RECORD]))
        record["files"] = {path.name: hash_file(path) for path in sorted(made.iterdir())}
        (made / RECORD).write_text(json.dumps(record, indent=1, default=str) + "\n")
        put_folder(made, folder, overwrite, workers.janitor)
    elif verdict == "wrong":
        (made / RECORD).write_text(json.dumps(record, indent=1, default=str) + "\n")
        put_folder(made, folder.with_name(folder.name + ".wrong"), True, workers.janitor)
    moved = {
        file: replace(r, path=folder / file if files and r.path is not None else None) for file, r in results.items()
    }
    return GenerationResult(verdict, folder if files else None, files, moved, runs, (*named, *findings), record)


def _verdict(results: Mapping[str, Result], findings: Sequence[Finding]) -> Verdict:
    """The worst graph's, or what the steps make of it."""
    worst = min((r.verdict for r in results.values()), key=_ORDER.index)
    if any(f.code in UNPROVEN_CODES for f in findings):
        return min(worst, "unproven", key=_ORDER.index)
    return min(worst, "wrong", key=_ORDER.index) if any(f.severity == "error" for f in findings) else worst
