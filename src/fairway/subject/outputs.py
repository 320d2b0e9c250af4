"""What forward returns, as named tensors."""

from __future__ import annotations

from typing import Any

import torch

from fairway.errors import complain
from fairway.subject.tree import Leaf, flatten


def output_leaves(value: Any) -> list[Leaf]:
    """The output's tensors by path; refuses outputs that ONNX cannot carry."""
    leaves = flatten(value)
    for leaf in leaves:
        if not isinstance(leaf.value, torch.Tensor):
            place = f"output {leaf.name}" if leaf.name else "the output"
            raise complain("FW209", f"{place} is of type {type(leaf.value).__name__}: {leaf.value!r:.80}")
    if not leaves:
        raise complain("FW208", f"forward returned {value!r:.80}")
    return leaves


def output_tensors(value: Any) -> tuple[torch.Tensor, ...]:
    return tuple(leaf.value for leaf in output_leaves(value))


def name_outputs(leaves: list[Leaf], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """The user's names, or names from the structure: dict keys and fields as they are, places as output_0, output_1."""
    if wanted is not None:
        if len(wanted) != len(leaves) or len(set(wanted)) != len(wanted):
            found = [leaf.name or "output" for leaf in leaves]
            raise complain("FW011", f"output_names gives {list(wanted)}; forward returns {found}")
        return wanted
    names = []
    for leaf in leaves:
        name = leaf.name
        names.append("output" if not name else f"output_{name}" if name[0].isdigit() else name)
    return tuple(names)
