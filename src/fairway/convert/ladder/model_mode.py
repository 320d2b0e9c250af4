"""The model's mode: the one place that sets it, and the finding on a model that was left in training mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fairway.convert.ladder.model_state import ModelState
from fairway.diagnostics import Code, Finding, Where
from fairway.judge.runtimes.eager import run_eager
from fairway.model.subject import Subject
from fairway.torch_internals import DropoutNd, NormBase

_MODE_DEPENDENT_LAYERS = (
    DropoutNd,
    NormBase,
    torch.nn.RNNBase,
    torch.nn.MultiheadAttention,
)
MAX_LISTED_MODULES = 5


def set_eval_mode(model: torch.nn.Module) -> None:
    """Set the mode in which files are captured and judged, for the rest of this process."""
    model.eval()


@contextmanager
def keep_mode(model: torch.nn.Module) -> Iterator[None]:
    """Return every module to its own mode on leaving."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def find_training_modules(model: torch.nn.Module) -> list[str]:
    """Return the modules in training mode whose output depends on the mode."""
    names = []
    for name, module in model.named_modules():
        if not module.training or not isinstance(module, _MODE_DEPENDENT_LAYERS):
            continue
        # Recurrent and attention layers depend on the mode only through their dropout.
        if getattr(module, "dropout", 1) != 0 and getattr(module, "p", 1) != 0:
            names.append(name or type(module).__name__)
    return names


def find_mode_dependence(subject: Subject, tensors: list[torch.Tensor], state: ModelState) -> list[str]:
    """Return the root's name if the model's outputs depend on its mode although no layer is known to.

    Both runs start from the same state, since a model may change it.
    """
    model = subject.model
    if not any(module.training for module in model.modules()):
        return []
    with keep_mode(model):
        try:
            torch.manual_seed(13)
            as_given = run_eager(subject, tensors)
            if state.find_changes():
                state.restore()
            torch.manual_seed(13)
            set_eval_mode(model)
            in_eval_mode = run_eager(subject, tensors)
        except Exception:
            return []  # PyTorch refuses the example; the preflight run reports that
        finally:
            if state.find_changes():
                state.restore()
    same = all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(as_given, in_eval_mode, strict=True))
    return [] if same else [type(model).__name__]


def report_training_mode(model: torch.nn.Module, training: list[str]) -> Finding:
    """Return the finding on modules that are in training mode."""
    kinds = {name: type(dict(model.named_modules()).get(name, model)).__name__ for name in training}
    shown = ", ".join(f"{name} ({kind})" for name, kind in list(kinds.items())[:MAX_LISTED_MODULES])
    more = f" and {len(kinds) - MAX_LISTED_MODULES} more" if len(kinds) > MAX_LISTED_MODULES else ""
    return Finding(Code.TRAINING_MODE, f"{shown}{more}", where=Where(module=training[0]), data={"modules": training})
