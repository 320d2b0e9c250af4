"""One capture: the model in, a candidate file and what the exporter said out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

from fairway.convert.blocks.repeats import ShortenedModel
from fairway.convert.ladder.questions import Question
from fairway.convert.ladder.route import Route
from fairway.convert.pieces.piece import Piece
from fairway.convert.remedies.catalogue import CATALOGUE
from fairway.convert.remedies.contract import Case, Match
from fairway.convert.rewrite.candidates import RewriteCandidate
from fairway.diagnostics import Where
from fairway.model.dims import Point
from fairway.model.outputs import output_tensors
from fairway.model.subject import Subject
from fairway.model.weight_storage import Mode, WeightStorage


class OpsetNotHonoured(Exception):
    """The exporter wrote another opset than asked."""


class TranslationError(Exception):
    """The model was captured, but could not be turned into ONNX."""


class Flat(torch.nn.Module):
    """The model behind a plain signature: tensors in, a tuple of tensors out.

    Exporters handle that best: dataclasses, keyword-only arguments and nested containers never reach them.
    """

    def __init__(self, model: torch.nn.Module, subject: Subject) -> None:
        super().__init__()
        self.model = model
        self._call = subject.call
        self.training = model.training

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, kwargs = self._call(tensors)
        return output_tensors(self.model(*args, **kwargs))


@dataclass(frozen=True)
class Captured:
    """A candidate on disk, and everything the exporter said while making it."""

    path: str
    opset: int
    output_names: tuple[str, ...] = ()
    remedies: tuple[tuple[str, str], ...] = ()
    """Names of the remedies that did something, each with its note."""
    warned: tuple[tuple[str, Where], ...] = ()
    edges: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Sizes at which the capture's own range constraints end, to be tested on both sides."""
    guards: tuple[str, ...] | None = None
    """Conditions on the dims under which the captured program is valid; None if the route writes none down."""
    sampled_because: str = ""
    """Why sizes can only be sampled, if there are no guards; empty for a trace."""
    one_sided: bool = False
    """Whether the file holds one side only of every branch on values or sizes."""
    decided: tuple[tuple[str, int], ...] = ()
    """Lines of branches on values that a remedy decided."""
    constant: frozenset[tuple[str, int]] = frozenset()
    """Lines at which values were read that no input reaches, and no others."""
    clash: tuple[str, ...] = ()
    """Names that are both input and output, left unresolved because remedies are off."""
    stored: WeightStorage = field(default_factory=WeightStorage)
    rewritten: tuple[dict[str, str], ...] = ()
    """Functions of the model that were written anew: their names, and their texts before and after."""
    questions: tuple[Question, ...] = ()
    """What the capture asked about sizes, with the lines that asked."""
    pieces: tuple[Piece, ...] = ()
    """The captures that were joined in this file, in the order in which their regions are asked."""
    sides: tuple[Point, ...] = ()
    """Points on either side of each condition that chooses a piece."""


def capture(
    subject: Subject,
    case: Case,
    matches: Sequence[tuple[str, Match]],
    tensors: Sequence[torch.Tensor],
    output_names: Sequence[str],
    path: Path,
    cut: ShortenedModel,
    weights: Mode | None,
) -> Captured:
    """Captures, translates, repairs and saves the candidate. Runs in the attempt's own process.

    `cut` says which blocks were taken out of the model, to be put back into the graph.
    """
    from fairway.convert.ladder.capture_export import export_program
    from fairway.convert.ladder.capture_trace import trace_program
    from fairway.convert.ladder.finish import finish

    case.output_names, case.cut = tuple(output_names), cut
    with ExitStack() as stack, torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        owners: list[str] = []
        translating: set[str] = set()
        for name, match in matches:
            named, known = case.output_names, dict(case.translations)
            case.applying = name
            stack.enter_context(CATALOGUE[name].apply(case, match))
            if CATALOGUE[name].stage == "translation" and case.translations != known:
                translating.add(name)
            if case.output_names == named:  # renaming is work done, whatever the pass finds left to do
                owners += [name] * (len(case.passes) - len(owners))
            else:
                owners += [""] * (len(case.passes) - len(owners))
        case.translations.update(subject.translations)  # the user's own win
        clash = tuple(n for n in case.output_names if n in case.input_names)
        if clash:
            # Told apart so that the file can be judged at all; the finding keeps it from being verified.
            case.output_names = tuple(f"{n}_of_the_file" if n in clash else n for n in case.output_names)
        flat = Flat(case.model, subject)
        guards: tuple[str, ...] | None = None
        edges: dict[str, tuple[int, ...]] = {}
        questions: tuple[Question, ...] = ()
        if case.route.traced:
            model = trace_program(flat, subject, case, tensors, path)
        else:
            model, edges, guards, questions = export_program(flat, subject, case, tensors, cut, weights)
        opset, changed, stored = finish(model, subject, case, path, cut, weights)
    if case.route.opset is not None and opset != case.route.opset:
        raise OpsetNotHonoured(f"opset {case.route.opset} was asked, the file has {opset}")
    warned = tuple(
        (str(w.message), Where(file=w.filename, line=w.lineno))
        for w in caught
        if w.category.__name__ == "TracerWarning"
    )
    idle = {o for o in owners if not any(did for did, owner in zip(changed, owners, strict=True) if owner == o)}
    idle |= (translating | case.waiting) - case.used - {o for did, o in zip(changed, owners, strict=True) if did}
    used = tuple((name, match.note) for name, match in matches if name not in idle)
    rewrites = {id(one): one for _, match in matches for one in _rewrites(match)}
    rewritten = tuple(one.told() for one in rewrites.values())
    return Captured(
        str(path),
        opset,
        case.output_names,
        used,
        warned,
        edges,
        guards,
        "",
        case.route.capture == "trace",
        tuple(case.decided),
        frozenset(case.answered - case.unanswered),
        clash,
        stored,
        rewritten,
        questions,
    )


def _rewrites(match: Match) -> Sequence[RewriteCandidate]:
    """The one that a remedy installs, if it installs any: the first of those that it found."""
    data = match.data[:1] if isinstance(match.data, tuple) else ()
    return [one for one in data if isinstance(one, RewriteCandidate)]


def dynamic_axes(subject: Subject) -> list[dict[int, Any]]:
    """For each input: its varying axes, with the size that varies."""
    return [{axis: size for axis, size in enumerate(s.shape) if size.names} for s in subject.spec]


Program = tuple[ir.Model, dict[str, tuple[int, ...]], tuple[str, ...], tuple[Question, ...]]
"""A captured program, the sizes at which its range constraints end, its guards, and the lines that asked for them."""


def case_for(
    subject: Subject, route: Route, findings: Sequence[Any], point: Point, seed: int
) -> tuple[Case, list[torch.Tensor]]:
    """The case that remedies look at, with example inputs at `point`."""
    tensors = subject.make(point, seed, "normal")
    args, kwargs = subject.call(tensors)
    case = Case(subject.model, args, kwargs, route, tuple(findings), subject.input_names)
    case.both_ways = subject.study.both_ways
    return case, tensors
