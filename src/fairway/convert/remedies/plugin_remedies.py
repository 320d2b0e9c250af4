"""Load the remedies and translations of plug-ins, and keep them from breaking an export.

A plug-in may not take the name of a built-in remedy. If its `detect` raises, that counts as a refusal. If its `apply`
raises when it is entered, the remedy is left out. The file is judged like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from fairway.convert.remedies.contract import STAGES, Applied, Case, Match, Refusal, Remedy, Translation
from fairway.diagnostics.plugins import REMEDIES, TRANSLATIONS, accept_plugins

_LOG = logging.getLogger(__name__)


def load_plugin_remedies(taken: Collection[str]) -> list[Remedy]:
    """Return the remedies of all plug-ins. Errors in them are caught."""
    names = set(taken)

    def check(value: object) -> str:
        if not isinstance(value, Remedy):
            return f"expected a Remedy, got {value!r:.100}"
        if value.stage not in STAGES:
            return f"expected one of the stages {', '.join(STAGES)}, got {value.stage!r}"
        if value.name in names:
            return f"there is a remedy {value.name} already"
        names.add(value.name)
        return ""

    return [guard_errors(plugin.value, plugin.distribution) for plugin in accept_plugins(REMEDIES, check)]


def load_plugin_translations() -> dict[object, Translation]:
    """Return the translations of all plug-ins. If two translate one operator, the first is taken."""
    from fairway.diagnostics.errors import UserError
    from fairway.model.subject import check_translations

    table: dict[object, Translation] = {}

    def check(value: object) -> str:
        try:
            new = check_translations(value)
        except UserError as error:
            return error.finding.seen
        repeated = [str(operator) for operator in new if operator in table]
        if repeated:
            return f"translated by another plug-in already: {', '.join(repeated)}"
        table.update(new)
        return ""

    accept_plugins(TRANSLATIONS, check)
    return table


def guard_errors(remedy: Remedy, distribution: str) -> Remedy:
    """Return the remedy so that an error in it becomes a refusal or a warning."""

    def detect(case: Case) -> Match | Refusal:
        try:
            return remedy.detect(case)
        except Exception as error:
            return Refusal(f"{distribution} failed in detect: {type(error).__name__}: {error!s:.300}")

    @contextmanager
    def apply(case: Case, match: Match) -> Applied:
        with ExitStack() as stack:
            try:
                stack.enter_context(remedy.apply(case, match))
            except Exception as error:
                _LOG.warning("%s: %s was left out: %s: %s", distribution, remedy.name, type(error).__name__, error)
            yield

    return replace(remedy, detect=detect, apply=apply)
