"""Brings the model into the state in which it is captured or judged; every worker calls this first."""

from __future__ import annotations

from fairway.convert.ladder.cache_warmup import warm_up
from fairway.convert.ladder.model_mode import set_eval_mode
from fairway.convert.types import Preflight
from fairway.diagnostics import Code
from fairway.model.subject import Subject


def prepare_for_judging(subject: Subject, remedies: bool) -> None:
    """Fill growing caches. With remedies on, also set eval mode: a model left in training mode is judged in eval mode.

    The finding FW202 reports that.
    """
    if remedies:
        set_eval_mode(subject.model)
    warm_up(subject)


def prepare_for_capture(subject: Subject, preflight: Preflight) -> None:
    """Fill growing caches, and set eval mode unless the mode was seen to matter: then a remedy handles it."""
    if not any(finding.code == Code.TRAINING_MODE for finding in preflight.findings):
        set_eval_mode(subject.model)
    warm_up(subject)
