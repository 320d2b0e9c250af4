"""Remedies and translations that plug-ins bring, checked and kept from breaking an export.

A plug-in may do anything but take a built-in's name. Its `detect` that raises is a refusal; its `apply` that raises on
the way in is left out. What it does to the model is judged with the file, like everything else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from fairway.convert.remedies.contract import STAGES, Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics.plugins import REMEDIES, TRANSLATIONS, accepted

_LOG = logging.getLogger(__name__)


def plugged_remedies(taken: Collection[str]) -> list[Remedy]:
    """The plug-ins' remedies, guarded."""
    names = set(taken)

    def complaint(value: Any) -> str:
        if not isinstance(value, Remedy):
            return f"a Remedy is wanted, not {value!r:.100}"
        if value.stage not in STAGES:
            return f"the stage {value.stage!r} is none of {', '.join(STAGES)}"
        if value.name in names:
            return f"there is a remedy {value.name} already"
        names.add(value.name)
        return ""

    return [guarded(plugin.value, plugin.distribution) for plugin in accepted(REMEDIES, complaint)]


def plugged_translations() -> dict[Any, Callable[..., Any]]:
    """The plug-ins' translations; of two for one operator, the first's."""
    from fairway.diagnostics.errors import UserError
    from fairway.model.subject import check_translations

    table: dict[Any, Callable[..., Any]] = {}

    def complaint(value: Any) -> str:
        try:
            new = check_translations(value)
        except UserError as error:
            return error.finding.seen
        twice = [str(operator) for operator in new if operator in table]
        if twice:
            return f"translated by another plug-in already: {', '.join(twice)}"
        table.update(new)
        return ""

    accepted(TRANSLATIONS, complaint)
    return table


def guarded(remedy: Remedy, distribution: str) -> Remedy:
    """The remedy, whose errors are its own."""

    def detect(case: Case) -> Match | Refusal:
        try:
            return remedy.detect(case)
        except Exception as error:
            return Refusal(f"{distribution} failed to look: {type(error).__name__}: {error!s:.300}")

    @contextmanager
    def apply(case: Case, match: Match) -> Applied:
        with ExitStack() as stack:
            try:
                stack.enter_context(remedy.apply(case, match))
            except Exception as error:
                _LOG.warning("%s: %s was left out: %s: %s", distribution, remedy.name, type(error).__name__, error)
            yield

    return replace(remedy, detect=detect, apply=apply)
