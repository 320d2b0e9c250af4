"""`fairway.export_generation`: exports the graphs of a generator, and compares generated tokens step by step."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from fairway.convert.export import export_subject
from fairway.convert.generation.anatomy import Anatomy, examine_generator
from fairway.convert.generation.configs import write_configs
from fairway.convert.generation.file_names import RECORD
from fairway.convert.generation.folder_delivery import check_folder, deliver_folder
from fairway.convert.generation.generation_result import GenerationResult
from fairway.convert.generation.graphs import Bounds, GeneratorGraph, build_graph_subject, plan_graphs
from fairway.convert.generation.greedy import Player, generate_tokens, make_prompts
from fairway.convert.generation.step_comparison import PromptRun, compare_steps
from fairway.convert.generation.wrappers import TransformersModel
from fairway.convert.ladder.diagnose import diagnose
from fairway.convert.result import Result
from fairway.convert.types import VERDICT_ORDER, Settings, Verdict
from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import UserError, complain
from fairway.judge.coverage_report import UNPROVEN_CODES
from fairway.model.source import find_user_frame
from fairway.record.delivery import make_workshop
from fairway.record.files import hash_file, read_versions
from fairway.record.progress import (
    EventSink,
    PartStarted,
    ProgressFile,
    StageStarted,
    StillWorking,
    ignore_event,
    send_to_both,
)
from fairway.record.schema import RECORD_FORMAT, GenerationRecord
from fairway.record.writer import describe_finding, to_plain, write_record
from fairway.workers.attempt import Outcome, Workers

DEFAULT_STEPS = 32
MAX_PROMPT_TOKENS = 12
"""Tokens in the longest random prompt."""


@dataclass(frozen=True)
class GenerationOptions:
    """The options of one export: bounds of dims, prompts to generate from, and the number of steps."""

    bounds: Bounds = field(default_factory=dict)
    prompts: Sequence[Sequence[int]] | None = None
    """Token ids; None for random prompts."""
    steps: int = DEFAULT_STEPS
    overwrite: bool = False
    companions: Sequence[Path] = ()
    """Files of the tokenizer, which are copied into the folder."""


@dataclass(frozen=True)
class GenerationJob:
    """One export of a generator: the model, the target folder, and everything its steps share."""

    model: TransformersModel
    folder: Path
    settings: Settings
    options: GenerationOptions
    workers: Workers
    on_event: EventSink

    def prepare_model(self) -> TransformersModel:
        """Return the model, in eval mode if remedies are allowed."""
        return self.model.eval() if self.settings.remedies else self.model


def generate_folder(
    model: torch.nn.Module,
    folder: Path,
    settings: Settings,
    options: GenerationOptions,
    progress: EventSink | None = None,
) -> GenerationResult:
    """Examine the model, export each graph, generate with all of them, and deliver the folder unless it is wrong."""
    check_folder(folder, options.overwrite)
    if options.steps < 1:
        raise complain(Code.UNKNOWN_OPTION, f"steps: expected at least 1, got {options.steps}")
    with Workers(settings.limits) as workers, make_workshop(folder.absolute(), workers.janitor) as shop:
        on_event = send_to_both(progress or ignore_event, ProgressFile(shop, folder.name, type(model).__name__))
        job = GenerationJob(model, folder, settings, options, workers, on_event)
        workers.tick = partial(on_event, StillWorking())
        on_event(StageStarted("looking at the model"))
        anatomy = _examine_in_worker(job)
        _check_prompts(options.prompts, anatomy)
        made = shop / "made"
        made.mkdir()
        parts = plan_graphs(model, anatomy, options.bounds)
        results = _export_each(parts, type(model).__name__, made, settings, on_event)
        runs: tuple[PromptRun, ...] = ()
        findings: tuple[Finding, ...] = ()
        if all(result.path is not None for result in results.values()):
            runs, findings = _compare_all_steps(job, anatomy, made)
        return _deliver(job, anatomy, made, results, runs, findings)


def _export_each(
    parts: Sequence[GeneratorGraph], name: str, made: Path, settings: Settings, on_event: EventSink
) -> dict[str, Result]:
    """Return every graph's result, up to the first that gives no file."""
    results: dict[str, Result] = {}
    for graph in parts:
        on_event(PartStarted(graph.file))
        subject = build_graph_subject(graph, f"{name}/{graph.file}")
        results[graph.file] = export_subject(subject, made / graph.file, settings, progress=on_event)
        if results[graph.file].path is None:
            break
    return results


def _examine_in_worker(job: GenerationJob) -> Anatomy:
    """Return the model's anatomy; refuse a model that cannot generate one token in PyTorch."""

    def work(on_event: EventSink) -> Anatomy:
        anatomy = examine_generator(job.prepare_model())
        try:
            generate_tokens(job.model, make_prompts(anatomy, None, 1, 0)[0], 1)
        except Exception as error:
            raise complain(Code.FORWARD_FAILS, f"generate raised {type(error).__name__}: {error}") from error
        return anatomy

    outcome = job.workers.run(work)
    if outcome.status != "done":
        raise UserError(_describe_failure(outcome))
    anatomy: Anatomy = outcome.value
    return anatomy


def _describe_failure(outcome: Outcome) -> Finding:
    """Return a finding about a failed worker. It exported nothing, so the exporter is not the cause."""
    failure = outcome.failure
    if failure is None or failure.finding is not None:
        return diagnose(outcome, ())[0]
    return Finding(Code.FORWARD_FAILS, f"{failure.kind}: {failure.message}", where=find_user_frame(failure.frames))


def _compare_all_steps(
    job: GenerationJob, anatomy: Anatomy, made: Path
) -> tuple[tuple[PromptRun, ...], tuple[Finding, ...]]:
    """Compare both prompts step by step, in a worker process. If that fails, a finding makes the folder unproven."""
    prompts, steps = job.options.prompts, job.options.steps
    longest = max(1, min(MAX_PROMPT_TOKENS, anatomy.context - steps))
    room = anatomy.context - (1 if anatomy.cross else max(map(len, prompts)) if prompts else longest)
    count = max(1, min(steps, room))

    def work(on_event: EventSink) -> tuple[PromptRun, ...]:
        model = job.prepare_model()
        player = Player(made, anatomy)
        padding = model.generation_config.pad_token_id or 0
        pair = make_prompts(anatomy, prompts, longest, padding)
        return tuple(compare_steps(model, player, prompt, count, on_event) for prompt in pair)

    job.on_event(PartStarted("generating step by step"))
    outcome = job.workers.run(work, job.on_event)
    if outcome.status != "done":
        failure = _describe_failure(outcome)
        return (), (failure, Finding(Code.EVIDENCE_INCOMPLETE, f"generation was not compared: {failure.seen}"))
    runs: tuple[PromptRun, ...] = outcome.value
    findings = [finding for run in runs for finding in run.findings]
    if count < steps:
        seen = f"{count} steps were compared, not {steps}: the context holds {anatomy.context} tokens"
        findings.append(Finding(Code.EVIDENCE_INCOMPLETE, seen))
    return runs, tuple(findings)


def _check_prompts(prompts: Sequence[Sequence[int]] | None, anatomy: Anatomy) -> None:
    if prompts is None:
        return
    if anatomy.features is not None or not prompts or not all(len(row) for row in prompts):
        raise complain(
            Code.BAD_INPUTS,
            "prompts: expected lists of token ids, none of them empty, and no prompts for a speech model",
        )
    for number, row in enumerate(prompts):
        outside = [token for token in row if not 0 <= token < anatomy.vocabulary]
        if outside:
            raise complain(
                Code.BAD_INPUTS, f"prompt {number} contains token {outside[0]}; expected 0..{anatomy.vocabulary - 1}"
            )


def _deliver(
    job: GenerationJob,
    anatomy: Anatomy,
    made: Path,
    results: Mapping[str, Result],
    runs: tuple[PromptRun, ...],
    findings: tuple[Finding, ...],
) -> GenerationResult:
    """Put a verified or unproven folder in place. Keep a wrong one aside, under a name that is not used by accident."""
    model, folder, janitor = job.model, job.folder, job.workers.janitor
    verdict = _find_verdict(results, findings)
    named = tuple(replace(f, seen=f"{file}: {f.seen}") for file, result in results.items() for f in result.findings)
    record = GenerationRecord(
        format=RECORD_FORMAT,
        verdict=verdict,
        model=f"{type(model).__module__}.{type(model).__qualname__}",
        versions=read_versions(),
        graphs={file: result.record for file, result in results.items()},
        steps=tuple(json.loads(to_plain(run.as_dict())) for run in runs),
        findings=tuple(map(describe_finding, (*named, *findings))),
    )
    files: tuple[str, ...] = ()
    if verdict in ("verified", "unproven"):
        write_configs(model, anatomy, made)
        for path in job.options.companions:
            shutil.copyfile(path, made / path.name)
        files = tuple(sorted([*(path.name for path in made.iterdir()), RECORD]))
        record = record.model_copy(update={"files": {path.name: hash_file(path) for path in sorted(made.iterdir())}})
        write_record(made / RECORD, record)
        deliver_folder(made, folder, job.options.overwrite, janitor)
    elif verdict == "wrong":
        write_record(made / RECORD, record)
        deliver_folder(made, folder.with_name(folder.name + ".wrong"), True, janitor)
    moved = {
        file: replace(r, path=folder / file if files and r.path is not None else None) for file, r in results.items()
    }
    return GenerationResult(verdict, folder if files else None, files, moved, runs, (*named, *findings), record)


def _find_verdict(results: Mapping[str, Result], findings: Sequence[Finding]) -> Verdict:
    """Return the verdict of the worst graph, or a worse one from the comparison of steps."""
    worst = min((result.verdict for result in results.values()), key=VERDICT_ORDER.index)
    if any(finding.code in UNPROVEN_CODES for finding in findings):
        return min(worst, "unproven", key=VERDICT_ORDER.index)
    has_error = any(finding.severity == "error" for finding in findings)
    return min(worst, "wrong", key=VERDICT_ORDER.index) if has_error else worst
