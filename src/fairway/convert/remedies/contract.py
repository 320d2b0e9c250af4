"""The contract of a remedy, which cures one named defect reversibly or refuses with a reason.

`detect` looks at the case and returns `Match` or `Refusal`. It changes nothing. `apply` is a context manager. The model
is captured and translated inside it, and afterwards everything is as it was. `apply` may patch the model or a library
(with `patch_attribute`), put entries into `case.translations` (dynamo's `custom_translation_table`), append changes of
torch.export's program to `case.repairs`, or append graph passes to `case.passes`. The file is judged like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, get_args

from fairway.convert.blocks.repeats import ShortenedModel
from fairway.convert.ladder.route import Route
from fairway.diagnostics import Finding, Where
from fairway.model.signatures import read_forward_signature

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch

Stage = Literal["source", "model", "library", "translation", "graph"]
STAGES: tuple[Stage, ...] = get_args(Stage)
"""The stages in the order in which their remedies are applied."""

Line = tuple[str, int]
"""A file and a line number."""

Translation = Callable[..., Any]
"""A function that calls ONNX operators, with the signature of a torch operator."""


@dataclass
class Case:
    """The model that a remedy looks at, and the places where it leaves something for the exporter.

    `model` is the user's module in the attempt's own process, so patching it affects no other process.
    `findings` are those of the earlier rungs. `args` and `kwargs` are the example inputs.
    """

    model: torch.nn.Module
    args: tuple[object, ...]
    kwargs: dict[str, object]
    route: Route
    findings: tuple[Finding, ...] = ()
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    translations: dict[object, Translation] = field(default_factory=dict)
    passes: list[Callable[[ir.Model], bool]] = field(default_factory=list)
    """Graph passes, run in order on the exported model. Each returns whether it changed anything."""
    repairs: list[Callable[[torch.export.ExportedProgram], torch.export.ExportedProgram]] = field(default_factory=list)
    """Functions from torch.export's program to the one that is translated."""
    live: frozenset[Line] | None = None
    """Suspicious lines that were seen to run and to vary; None if the model was not run."""
    both_ways: frozenset[Line] | None = None
    """Lines of branches of which samples took both sides; None if no samples were run."""
    decided: list[Line] = field(default_factory=list)
    """Lines of branches on values that a remedy decided."""
    cut: ShortenedModel | None = None
    """The blocks that were taken out of the model, if any."""
    answered: set[Line] = field(default_factory=set)
    """Lines that read values that no input reaches."""
    unanswered: set[Line] = field(default_factory=set)
    """Lines that asked for other values."""
    applying: str = ""
    """The remedy whose `apply` is being entered."""
    used: set[str] = field(default_factory=set)
    """The remedies that had an effect. For example, one of their translations was called."""
    listed_if_used: set[str] = field(default_factory=set)
    """The remedies that the record names only if they are in `used`. Those with translations are always so."""

    @property
    def named_inputs(self) -> dict[str, object]:
        """The example inputs by the names of forward's parameters."""
        signature = read_forward_signature(self.model)
        return dict(signature.bind(*self.args, **self.kwargs).arguments)

    def list_if_used(self) -> Callable[[], None]:
        """Return a function that the remedy calls when it has an effect. If it does not, the record leaves it out."""
        name = self.applying
        self.listed_if_used.add(name)
        return lambda: self.used.add(name)


@dataclass(frozen=True)
class Match:
    """The defect is here. `where` names the places, and `note` goes into the record."""

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
    code, so it must be proven equal in eager PyTorch before it is used.
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
    order: int = 100
    """Position within the stage. Lower numbers are applied first, equal ones by name."""
    retried_without: bool = False
    """Whether a route whose file is not verified with this remedy is tried once without it."""


@contextmanager
def add_translations(case: Case, table: Mapping[Any, Translation]) -> Iterator[None]:
    """Put translations into the case's table inside the block. Each of them records its use."""
    before = dict(case.translations)
    case.translations.update({operator: track_use(case, function) for operator, function in table.items()})
    try:
        yield
    finally:
        case.translations.clear()
        case.translations.update(before)


def track_use(case: Case, function: Translation) -> Translation:
    """Return a function that also records, when it is called, that the remedy being applied was used.

    torch.onnx reads a translation's signature, which `wraps` keeps.
    """
    if getattr(function, _TRACKS_USE, False):
        return function
    name = case.applying

    @wraps(function)
    def translate_and_track(*args: object, **kwargs: object) -> object:
        case.used.add(name)
        return function(*args, **kwargs)

    setattr(translate_and_track, _TRACKS_USE, True)
    return translate_and_track


_TRACKS_USE = "_fairway_tracks_use"


@contextmanager
def add_pass(case: Case, run: Callable[[ir.Model], bool]) -> Iterator[None]:
    """Add a graph pass to the case inside the block."""
    case.passes.append(run)
    try:
        yield
    finally:
        case.passes.remove(run)


Applied = Iterator[None]
"""The return type of the generator function behind an `apply`, which yields once."""
