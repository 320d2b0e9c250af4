"""The checks that Fairway's own translations and knowledge pass."""

import fairway_softclip
import torch
from fairway_softclip import knowledge
from fairway_softclip.translations import TRANSLATIONS

from fairway.testing import check_knowledge, check_translations


def test_the_translation_gives_what_pytorch_gives():
    functions = {
        "one knee": lambda x: torch.ops.softclip.soft_clip(x, 1.0),
        "half": lambda x: torch.ops.softclip.soft_clip(x.half(), 0.5),
        "double": lambda x: torch.ops.softclip.soft_clip(x.double(), 0.25),
        "layer": fairway_softclip.SoftClip(2.0),
    }
    odd = torch.tensor([[1.0, -1.0, 0.0, float("nan")], [float("inf"), -float("inf"), 1e4, -2.0]])
    points = [(torch.randn(2, 5),), (torch.randn(1, 1),), (torch.randn(3, 0),), (odd,)]
    check_translations(TRANSLATIONS, functions, points, tolerance=1e-3)


def test_the_knowledge_is_whole():
    assert [entry.id for entry in check_knowledge(knowledge)] == ["softclip-not-scriptable"]
