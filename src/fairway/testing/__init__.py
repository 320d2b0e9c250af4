"""What a plug-in's own tests call: the same checks that Fairway's remedies, translations and knowledge pass.

Each raises an AssertionError that says what is wrong. Nothing here needs pytest.
"""

from __future__ import annotations

from fairway.testing.knowledge import check_knowledge
from fairway.testing.remedies import check_apply, check_detect, check_metadata, check_remedy, make_case
from fairway.testing.translations import check_translations
from fairway.testing.trial import Trial

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
