"""torchvision without its binary part: PyPI's wheel of it is for CUDA, and only its Python part is needed here."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import torch

_declared: list[torch.library.Library] = []
"""Kept, since a library that goes takes its operators along."""


def declare_operators() -> None:
    """The operators' names alone, so that `import torchvision` goes through; to call one is an error."""
    where = importlib.util.find_spec("torchvision")
    if where is None or where.origin is None or _declared:
        return
    text = (Path(where.origin).parent / "_meta_registrations.py").read_text()
    names = {*re.findall(r'register_meta\("(\w+)"\)', text), *re.findall(r"torchvision::(\w+)", text)}
    library = torch.library.Library("torchvision", "DEF")
    for name in sorted(names):
        library.define(f"{name}(Tensor x) -> Tensor")
    _declared.append(library)
