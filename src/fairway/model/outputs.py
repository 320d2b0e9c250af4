"""The values that forward returns, as named tensors."""

from __future__ import annotations

import torch

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.tree import Tree, TreeLeaf, flatten


def find_output_leaves(value: Tree) -> list[TreeLeaf]:
    """Return the tensors among the outputs, by path; refuse a model that returns none."""
    leaves = flatten(value)
    if not leaves:
        raise complain(Code.NO_OUTPUTS, f"expected a tensor from forward, got {value!r:.80}")
    tensors = [leaf for leaf in leaves if isinstance(leaf.value, torch.Tensor)]
    if not tensors:
        raise complain(Code.NON_TENSOR_OUTPUT, describe_leaf(leaves[0]))
    return tensors


def find_non_tensors(value: Tree) -> dict[str, TreeLeaf]:
    """Return the outputs that are not tensors, by path: ONNX has no way to return them."""
    return {leaf.name: leaf for leaf in flatten(value) if not isinstance(leaf.value, torch.Tensor)}


def describe_leaf(leaf: TreeLeaf) -> str:
    """Describe an output that is not a tensor."""
    place = f"output {leaf.name}" if leaf.name else "the output"
    return f"{place} is of type {type(leaf.value).__name__}: {leaf.value!r:.80}"


def get_output_tensors(value: Tree) -> tuple[torch.Tensor, ...]:
    return tuple(leaf.value for leaf in find_output_leaves(value))


def name_outputs(leaves: list[TreeLeaf], given: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the user's names, or names from the structure: dict keys and fields, or output_0, output_1, …"""
    if given is not None:
        if len(given) != len(leaves) or len(set(given)) != len(given):
            own = [leaf.name or "output" for leaf in leaves]
            raise complain(
                Code.NAMES_DO_NOT_FIT, f"output_names: expected a distinct name for each of {own}, got {list(given)}"
            )
        return given
    names = []
    for leaf in leaves:
        name = leaf.name
        names.append("output" if not name else f"output_{name}" if name[0].isdigit() else name)
    return tuple(names)
