"""Checks for the tests of a plug-in: those that Fairway's remedies, translations and knowledge pass.

Each raises an AssertionError that says what is wrong. pytest is not needed.
"""

from __future__ import annotations

from fairway.testing.knowledge_checks import check_knowledge
from fairway.testing.operator_trial import Trial
from fairway.testing.remedy_checks import check_apply, check_detect, check_metadata, check_remedy, make_case
from fairway.testing.translation_checks import check_translations

__all__ = [
    "Trial",
    "check_apply",
    "check_detect",
    "check_knowledge",
    "check_metadata",
    "check_remedy",
    "check_translations",
    "make_case",
]
