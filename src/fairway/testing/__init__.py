"""What a plug-in's own tests call: the same checks that Fairway's remedies, translations and knowledge pass.

Each raises an AssertionError that says what is wrong. Nothing here needs pytest.
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
