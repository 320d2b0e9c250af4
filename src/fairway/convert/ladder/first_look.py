"""A look at the model before the first rung: equal blocks, the preflight, and suspicious lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from fairway.convert.blocks.equal_calls import select_uniform_repeats
from fairway.convert.blocks.repeats import Repeat, find_repeats, keep_more_blocks, shorten_model
from fairway.convert.ladder.cache_warmup import warm_up
from fairway.convert.ladder.preflight import run_fake, run_fake_preflight, run_preflight, run_real
from fairway.convert.ladder.prescribe import apply_patches, check_patches
from fairway.convert.ladder.session import ExportSession
from fairway.convert.rewrite.find import Lines, Suspect, find_suspects
from fairway.convert.rewrite.live_sites import find_live_lines
from fairway.convert.types import Preflight, Rung, Settings
from fairway.diagnostics import Code
from fairway.judge.answers import is_large
from fairway.judge.budget import EXPENSIVE_RUN_FLOPS, compute_volume
from fairway.judge.samples import choose_examples
from fairway.model.signatures import read_forward_signature
from fairway.model.subject import Subject
from fairway.workers.attempt import Outcome


@dataclass(frozen=True)
class FirstLook:
    """The results of running the model in PyTorch before anything is captured."""

    preflight: Preflight = field(default_factory=Preflight)
    suspects: tuple[Suspect, ...] = ()
    repeats: tuple[Repeat, ...] = ()
    """Runs of equal blocks, of which only the first two or three are captured."""

    @property
    def live(self) -> Lines:
        """The suspicious lines."""
        return frozenset((suspect.where.file or "", suspect.where.line or 0) for suspect in self.suspects)


def take_first_look(session: ExportSession) -> Outcome:
    """Look at the model in a separate process; the outcome's value is a `FirstLook`.

    Of equal blocks in a row only two or three are run. If that fails, all of them are.
    """
    runs = find_repeats(session.subject.model)
    outcome = session.workers.run(lambda on_event: _look_at_blocks(session, runs))
    if runs and (outcome.status != "done" or outcome.value.preflight.hopeless):
        outcome = session.workers.run(lambda on_event: _look_at_blocks(session, ()))
    return outcome


def look_at_more_blocks(session: ExportSession, look: FirstLook, rung: Rung) -> FirstLook:
    """Return the look to continue with after the first blocks failed: with three blocks of each run, or with all."""
    if any(finding.code == Code.BLOCKS_DIFFER for finding in rung.findings):
        repeats = keep_more_blocks(look.repeats)
        if repeats:
            return replace(look, repeats=repeats)
    outcome = session.workers.run(lambda on_event: look_at_model(session.subject, session.settings, ()))
    return outcome.value if outcome.status == "done" else replace(look, repeats=())


def blames_blocks(rung: Rung) -> bool:
    """Return whether the entire model may do better than its first blocks. A failure without a file does not count."""
    judged = rung.evidence is not None and rung.verdict != "verified"
    return judged or any(finding.code in (Code.BLOCKS_DIFFER, Code.RUNTIME_REFUSES) for finding in rung.findings)


def _look_at_blocks(session: ExportSession, runs: tuple[Repeat, ...]) -> FirstLook:
    """Look at the model, shortened by the runs of equal blocks that are also called alike."""
    subject = session.subject
    warm_up(subject)
    repeats = select_uniform_repeats(subject.model, runs, partial(run_fake, subject, subject.example)) if runs else ()
    return look_at_model(subject, session.settings, repeats)


def look_at_model(subject: Subject, settings: Settings, repeats: tuple[Repeat, ...]) -> FirstLook:
    """Run the preflight, check the user's patches, and find suspicious lines that vary. Changes the model."""
    shorten_model(subject.model, repeats)
    run = run_fake_preflight if settings.level == "none" else run_preflight
    preflight = run(subject, settings.remedies)
    if subject.patches and not preflight.hopeless:
        preflight = replace(preflight, findings=(*preflight.findings, *check_patches(subject)))
    args, kwargs = subject.call(subject.make(subject.example, 1, "normal"))
    arguments = read_forward_signature(subject.model).bind(*args, **kwargs).arguments
    with apply_patches(subject.model, subject.patches):
        if preflight.hopeless:
            return FirstLook(preflight, find_suspects(subject.model, arguments), repeats)
        study = None if settings.level == "none" else subject.study
        live = find_live_lines(subject.model, arguments, _list_runs(subject), study)
        return FirstLook(preflight, find_suspects(subject.model, arguments, live), repeats)


def _list_runs(subject: Subject) -> Iterator[Callable[[], object]]:
    """Yield the runs in which loop steps are counted. A large or expensive model runs on fake tensors if that works."""
    # A loop over blocks may take its second step only far from the examples, and its first above the smallest sizes.
    ends = ({dim.name: dim.sizes[end] for dim in subject.domain.dims} for end in (0, -1))
    points = (*choose_examples(subject, {}), *ends)
    if len({tuple(sorted(point.items())) for point in points}) == 1:
        return
    run = run_real
    cost = subject.study.flops_per_volume * sum(map(compute_volume, points))
    if is_large(subject.model) or cost > EXPENSIVE_RUN_FLOPS:
        with suppress(Exception):
            run_fake(subject, subject.example)
            run = run_fake
    yield from (partial(run, subject, point) for point in points)
