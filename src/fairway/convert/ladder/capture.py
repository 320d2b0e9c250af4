"""One capture: the model in, a candidate file and the exporter's messages out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from fairway.convert.blocks.repeats import ShortenedModel
from fairway.convert.ladder.capture_export import export_program
from fairway.convert.ladder.capture_trace import trace_program
from fairway.convert.ladder.finish_file import finish_file
from fairway.convert.ladder.flat_model import FlatModel
from fairway.convert.ladder.route import Route
from fairway.convert.remedies.catalogue import CATALOGUE
from fairway.convert.remedies.contract import Case, Match
from fairway.convert.rewrite.candidates import RewriteCandidate
from fairway.convert.rewrite.find import Lines
from fairway.convert.types import Candidate
from fairway.diagnostics import Finding, Where
from fairway.model.dims import Point
from fairway.model.subject import Subject
from fairway.model.weight_storage import WeightMode


class OpsetNotHonoured(Exception):
    """The exporter wrote another opset than requested."""


@dataclass(frozen=True)
class CaptureContext:
    """Everything known before a capture that remedies may look at."""

    route: Route
    findings: tuple[Finding, ...] = ()
    """The findings of earlier rungs."""
    output_names: tuple[str, ...] = ()
    live: Lines | None = None
    """Suspicious lines that were seen to run and to vary; None if the model was not run."""


def make_case(
    subject: Subject, context: CaptureContext, point: Point, seed: int, cut: ShortenedModel | None = None
) -> tuple[Case, list[torch.Tensor]]:
    """Return the case that remedies look at, and example inputs at `point`.

    `cut` holds the blocks that were taken out of the model; they are put back into the graph.
    """
    tensors = subject.make(point, seed, "normal")
    args, kwargs = subject.call(tensors)
    case = Case(
        subject.model,
        args,
        kwargs,
        context.route,
        context.findings,
        subject.input_names,
        context.output_names,
        live=context.live,
        both_ways=subject.study.both_ways,
        cut=cut,
    )
    return case, tensors


def capture(
    subject: Subject,
    case: Case,
    matches: Sequence[tuple[str, Match]],
    tensors: Sequence[torch.Tensor],
    path: Path,
    weights: WeightMode | None,
) -> Candidate:
    """Capture, translate, repair and save a candidate. Runs in the attempt's own process."""
    with ExitStack() as stack, torch.no_grad(), _record_warnings() as caught:
        remedies = _apply_remedies(stack, case, matches)
        case.translations.update(subject.translations)  # the user's own take precedence
        clash = _resolve_name_clash(case)
        model = FlatModel(case.model, subject)
        if case.route.is_traced:
            program = trace_program(model, subject, case, tensors, path)
        else:
            program = export_program(model, subject, case, tensors, weights)
        opset, changes, stored = finish_file(program.model, subject, case, path, weights)
    if case.route.opset is not None and opset != case.route.opset:
        raise OpsetNotHonoured(f"expected opset {case.route.opset}, the file has opset {opset}")
    idle = remedies.find_idle(changes, case)
    rewrites = {id(rewrite): rewrite for _, match in matches for rewrite in _list_rewrites(match)}
    return Candidate(
        str(path),
        opset,
        case.output_names,
        remedies=tuple((name, match.note) for name, match in matches if name not in idle),
        warnings=_select_tracer_warnings(caught),
        edges=program.edges,
        guards=program.guards,
        one_sided=case.route.capture == "trace",
        decided=tuple(case.decided),
        constant=frozenset(case.answered - case.unanswered),
        clash=clash,
        stored=stored,
        rewritten=tuple(rewrite.describe() for rewrite in rewrites.values()),
        questions=program.questions,
    )


@contextmanager
def _record_warnings() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


@dataclass
class _AppliedRemedies:
    """The remedies that were entered, and which of them added graph passes or translations."""

    pass_owners: list[str] = field(default_factory=list)
    """For each graph pass the remedy that must change the graph to count as used, or an empty name."""
    translating: set[str] = field(default_factory=set)

    def find_idle(self, changes: Sequence[bool], case: Case) -> set[str]:
        """Return the remedies that did nothing. `changes` says for each pass whether it changed the graph."""
        changed = {owner for did_change, owner in zip(changes, self.pass_owners, strict=True) if did_change}
        idle = set(self.pass_owners) - changed
        return idle | ((self.translating | case.listed_if_used) - case.used - changed)


def _apply_remedies(stack: ExitStack, case: Case, matches: Sequence[tuple[str, Match]]) -> _AppliedRemedies:
    applied = _AppliedRemedies()
    for name, match in matches:
        names_before, translations_before = case.output_names, dict(case.translations)
        case.applying = name
        stack.enter_context(CATALOGUE[name].apply(case, match))
        if CATALOGUE[name].stage == "translation" and case.translations != translations_before:
            applied.translating.add(name)
        # A remedy that renamed outputs has been used, whatever its pass finds left to do.
        owner = name if case.output_names == names_before else ""
        applied.pass_owners += [owner] * (len(case.passes) - len(applied.pass_owners))
    return applied


def _resolve_name_clash(case: Case) -> tuple[str, ...]:
    """Rename outputs that have the name of an input, and return the names.

    Without this the file could not be judged. The finding keeps it from being verified.
    """
    clash = tuple(name for name in case.output_names if name in case.input_names)
    if clash:
        case.output_names = tuple(f"{name}_of_the_file" if name in clash else name for name in case.output_names)
    return clash


def _select_tracer_warnings(caught: Sequence[warnings.WarningMessage]) -> tuple[tuple[str, Where], ...]:
    return tuple(
        (str(warning.message), Where(file=warning.filename, line=warning.lineno))
        for warning in caught
        if warning.category.__name__ == "TracerWarning"
    )


def _list_rewrites(match: Match) -> list[RewriteCandidate]:
    """Return the rewrite that a remedy installs, if it installs any: the first of those that it found."""
    data = match.data[:1] if isinstance(match.data, tuple) else ()
    return [rewrite for rewrite in data if isinstance(rewrite, RewriteCandidate)]
