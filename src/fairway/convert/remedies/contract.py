"""A remedy cures one named defect, reversibly, and says no with a reason.

`detect` looks at the case and answers `Match` or `Refusal`; it changes nothing. `apply` is a context manager: inside it
the model is captured and translated, after it everything is as it was. It may patch the model or a library, put entries
into `case.translations` (dynamo's `custom_translation_table`), append changes of torch.export's program to
`case.repairs`, or graph passes to `case.passes`. Whatever it does, the file is judged like any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, get_args

from fairway.convert.blocks.repeats import ShortenedModel
from fairway.convert.ladder.route import Route
from fairway.diagnostics import Finding, Where

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch

Stage = Literal["source", "model", "library", "translation", "graph"]
STAGES: tuple[Stage, ...] = get_args(Stage)
"""In the order in which remedies are applied."""


@dataclass
class Case:
    """What a remedy may look at, and the places where it may leave something for the exporter.

    `model` is the user's module in the attempt's own process: patching it touches nobody else's.
    `findings` are those of the earlier rungs. `args` and `kwargs` are the example inputs.
    """

    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    route: Route
    findings: tuple[Finding, ...] = ()
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    translations: dict[Any, Callable[..., Any]] = field(default_factory=dict)
    passes: list[Callable[[ir.Model], bool]] = field(default_factory=list)
    """Graph passes run on the exported model in order; each answers whether it changed anything."""
    repairs: list[Callable[[torch.export.ExportedProgram], None]] = field(default_factory=list)
    """Changes to torch.export's program, made before it is translated."""
    live: frozenset[tuple[str, int]] | None = None
    """Suspicious lines that were seen to run and to vary; None if the model was not run."""
    both_ways: frozenset[tuple[str, int]] | None = None
    """Lines of branches of which samples took both sides; None if no samples were run."""
    decided: list[tuple[str, int]] = field(default_factory=list)
    """Lines of branches on values that a remedy decided, as files and line numbers."""
    cut: ShortenedModel | None = None
    """The blocks that were taken out of the model, if any."""
    answered: set[tuple[str, int]] = field(default_factory=set)
    """Lines at which values that no input reaches were read, as files and line numbers."""
    unanswered: set[tuple[str, int]] = field(default_factory=set)
    """Lines at which other values were asked for."""
    applying: str = ""
    """The remedy whose `apply` is being entered."""
    used: set[str] = field(default_factory=set)
    """The remedies that were of use: one of their translations was called, say."""
    waiting: set[str] = field(default_factory=set)
    """The remedies besides translating ones that are told of only where they were of use."""

    @property
    def named(self) -> dict[str, Any]:
        """The example inputs by the names of forward's parameters."""
        signature = inspect.signature(self.model.forward)
        return dict(signature.bind(*self.args, **self.kwargs).arguments)


@dataclass(frozen=True)
class Match:
    """The defect is here. `where` names the places, `note` goes into the record."""

    note: str
    where: tuple[Where, ...] = ()
    data: Any = None


@dataclass(frozen=True)
class Refusal:
    """The defect is not here, or cannot be cured here, for a stated reason."""

    reason: str
    where: tuple[Where, ...] = ()


@dataclass(frozen=True)
class Remedy:
    """One entry of the catalogue.

    `cures` is the finding's code. `affected` are the versions in which the defect was seen, as PEP 440 specifiers by
    package. `safety` says in one line why the model still computes the same. A `source` remedy rewrites the user's
    code, so it must be proven equal in eager PyTorch before it may be used.
    """

    name: str
    cures: str
    title: str
    stage: Stage
    affected: dict[str, str]
    upstream: tuple[str, ...]
    safety: str
    detect: Callable[[Case], Match | Refusal]
    apply: Callable[[Case, Match], AbstractContextManager[None]]


@contextmanager
def translating(case: Case, table: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """The case with these translations in its table, each noting its use; with its own again afterwards."""
    before = dict(case.translations)
    case.translations.update({operator: noting(case, function) for operator, function in table.items()})
    try:
        yield
    finally:
        case.translations.clear()
        case.translations.update(before)


def noting(case: Case, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, noting at each call that the remedy being applied was of use.

    torch.onnx reads a translation's signature, which `wraps` hands on.
    """
    if getattr(function, _NOTES, False):
        return function
    name = case.applying

    @wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        case.used.add(name)
        return function(*args, **kwargs)

    setattr(noted, _NOTES, True)
    return noted


_NOTES = "_fairway_notes_its_use"


@contextmanager
def passing(case: Case, run: Callable[[ir.Model], bool]) -> Iterator[None]:
    """The case with one graph pass more; without it again afterwards."""
    case.passes.append(run)
    try:
        yield
    finally:
        case.passes.remove(run)


Applied = Iterator[None]
"""What the generator behind an `apply` yields, once."""
