"""What forward returns, as named tensors."""

from __future__ import annotations

from typing import Any

import torch

from fairway.diagnostics.errors import complain
from fairway.model.tree import TreeLeaf, flatten


def output_leaves(value: Any) -> list[TreeLeaf]:
    """The output's tensors by path; what else there is, is left out."""
    leaves = flatten(value)
    if not leaves:
        raise complain("FW208", f"forward returned {value!r:.80}")
    tensors = [leaf for leaf in leaves if isinstance(leaf.value, torch.Tensor)]
    if not tensors:
        raise complain("FW209", described(leaves[0]))
    return tensors


def left_out(value: Any) -> dict[str, TreeLeaf]:
    """What is no tensor, by path: ONNX cannot carry it."""
    return {leaf.name: leaf for leaf in flatten(value) if not isinstance(leaf.value, torch.Tensor)}


def described(leaf: TreeLeaf) -> str:
    place = f"output {leaf.name}" if leaf.name else "the output"
    return f"{place} is of type {type(leaf.value).__name__}: {leaf.value!r:.80}"


def output_tensors(value: Any) -> tuple[torch.Tensor, ...]:
    return tuple(leaf.value for leaf in output_leaves(value))


def name_outputs(leaves: list[TreeLeaf], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
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
