"""Chooses the remedies of a rung. Rewrites of the user's source are proven equal in eager PyTorch before use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from fairway.convert.ladder.capture import CaptureContext, make_case
from fairway.convert.ladder.model_mode import set_eval_mode
from fairway.convert.remedies.catalogue import CATALOGUE
from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy
from fairway.convert.types import PlannedRung
from fairway.diagnostics import Code, Finding, Where
from fairway.diagnostics.errors import UserError, complain
from fairway.judge.judge import Judge
from fairway.judge.runtimes.eager import run_eager, to_array
from fairway.judge.samples import list_lattice_samples
from fairway.model.subject import Subject


@dataclass(frozen=True)
class Prescription:
    """Remedies for one rung, each with the number of the rewrite that was proven, and the reasons to refuse others."""

    chosen: tuple[tuple[str, int], ...] = ()
    refused: tuple[tuple[str, str, Where | None], ...] = ()


def prescribe(subject: Subject, step: PlannedRung, context: CaptureContext) -> Prescription:
    """Ask every remedy whether its defect is here. Runs in a separate process, since proofs run the model.

    A remedy that raises is refused with its error, and the others are not affected.
    """
    case, _ = make_case(subject, context, subject.example, 1)
    candidates = {n: r for n, r in CATALOGUE.items() if n != step.without and (step.rewrites or r.stage != "source")}
    answers = {name: _detect(remedy, case) for name, remedy in candidates.items()}
    set_eval_mode(subject.model)  # as the file will be judged; the remedies have seen the model's own mode
    chosen: list[tuple[str, int]] = []
    refused: list[tuple[str, str, Where | None]] = []
    for name, answer in answers.items():
        if CATALOGUE[name].stage != "source":
            chosen += [(name, 0)] if isinstance(answer, Match) else []
            refused += [(name, answer.reason, None)] if isinstance(answer, _Raised) else []
            continue
        place = answer.where[0] if answer.where else None
        number, reason = (None, answer.reason) if isinstance(answer, Refusal) else _find_proven_rewrite(subject, answer)
        if number is None:
            refused.append((name, reason, place))
        else:
            chosen.append((name, number))
    return Prescription(tuple(chosen), tuple(refused))


@dataclass(frozen=True)
class _Raised(Refusal):
    """The refusal of a remedy that raised an error while it looked at the model."""


def _detect(remedy: Remedy, case: Case) -> Match | Refusal:
    try:
        return remedy.detect(case)
    except Exception as error:  # a remedy reads the user's code, and may raise anything
        return _Raised(f"looking for the defect failed: {describe_error(error)}")


def _find_proven_rewrite(subject: Subject, match: Match) -> tuple[int | None, str]:
    reason = "no rewrite was found"
    for number, rewrite in enumerate(match.data):
        try:
            wrong = prove(subject, rewrite.install)
        except Exception as error:  # the proof runs the user's model, which may raise anything
            reason = f"the {rewrite.strategy} rewrite could not be compared: {describe_error(error)}"
            continue
        if wrong is None:
            return number, ""
        reason = f"the {rewrite.strategy} rewrite does not compute the same: {wrong}"
    return None, reason


def describe_error(error: Exception) -> str:
    """Return an error as one line: what was seen for a finding, else its kind and first line."""
    if isinstance(error, UserError):
        return error.finding.seen
    first = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {first}"


def prove(subject: Subject, install: Callable[[], AbstractContextManager[object]]) -> str | None:
    """Compare the changed model with the original at the corners of its domain; return the first difference, or None.

    This only chooses a rewrite to try. The file is judged against the original over the entire lattice.
    """

    def run_changed(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[npt.NDArray[np.generic]]:
        with install():
            return [to_array(t) for t in run_eager(subject, tensors)]

    outputs = run_eager(subject, subject.make(subject.example, 1, "normal"))
    judge = Judge(subject, run_changed, [f"output {i}" for i in range(len(outputs))])
    for sample in list_lattice_samples(subject, "quick"):
        trial = judge.take(sample)
        if trial.difference is not None:
            return f"{trial.difference.text}, at {sample}"
    failures = judge.find_failures()
    return f"the numbers differ at {failures[0].sample}" if failures else None


def find_matches(case: Case, prescription: Prescription) -> list[tuple[str, Match]]:
    """Find the prescribed matches again in this process, since they hold live code."""
    matches = []
    for name, number in prescription.chosen:
        answer = CATALOGUE[name].detect(case)
        if isinstance(answer, Match):
            if CATALOGUE[name].stage == "source":
                answer = Match(answer.note, answer.where, (answer.data[number],))
            matches.append((name, answer))
    return matches


@contextmanager
def apply_patches(model: torch.nn.Module, patches: Mapping[object, Callable[..., object]]) -> Iterator[None]:
    """Apply the user's own patches; remove them on leaving."""
    with ExitStack() as stack:
        for original, replacement in patches.items():
            owner, name = _find_owner(model, original)
            stack.callback(setattr, owner, name, original)
            setattr(owner, name, replacement)
        yield


def _find_owner(model: torch.nn.Module, original: object) -> tuple[object, str]:
    """Return the class or Python module whose attribute the function is, and the attribute's name."""
    for module in model.modules():
        for cls in type(module).__mro__:
            for name, value in vars(cls).items():
                if value is original:
                    return cls, name
    home = sys.modules.get(getattr(original, "__module__", ""))
    for name, value in vars(home).items() if home else ():
        if value is original:
            return home, name
    shown = getattr(original, "__qualname__", repr(original))
    raise complain(
        Code.BAD_PATCH, f"{shown} is not a method of the model or of its modules, nor a function of its file"
    )


def check_patches(subject: Subject) -> list[Finding]:
    """Prove that the user's patches compute the same, as is done for rewrites."""
    for original, replacement in subject.patches.items():
        if not callable(replacement):
            raise complain(Code.BAD_PATCH, f"the replacement {replacement!r} cannot be called")
        _find_owner(subject.model, original)
    wrong = prove(subject, lambda: apply_patches(subject.model, subject.patches)) if subject.patches else None
    if wrong is None:
        return []
    code = next(iter(subject.patches.values())).__code__
    where = Where(file=code.co_filename, line=code.co_firstlineno, function=code.co_name)
    return [Finding(Code.PATCH_NOT_EQUAL, wrong, where=where)]
