"""Walk the arguments and results of operators: tensors and other items in lists, tuples and dicts.

PyTorch's own functions for trees support many more containers, and take longer than the operators of a small model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from fairway.torch_internals import OpOverload

Operator: TypeAlias = OpOverload
Item: TypeAlias = Any
"""An argument or a result of an operator: a tensor, a number, or a list, tuple or dict of such."""
Items: TypeAlias = Sequence[Item]
NamedItems: TypeAlias = Mapping[str, Item]


def map_items(change: Callable[[Item], Item], item: Item) -> Item:
    """Return the same containers with every item changed."""
    if isinstance(item, tuple):
        return tuple([map_items(change, inner) for inner in item])
    if isinstance(item, list):
        return [map_items(change, inner) for inner in item]
    if isinstance(item, dict):
        return {key: map_items(change, inner) for key, inner in item.items()}
    return change(item)


def list_items(item: Item) -> list[Item]:
    """Return the items inside all containers, in order."""
    if isinstance(item, dict):
        item = list(item.values())
    if not isinstance(item, tuple | list):
        return [item]
    items: list[Item] = []
    for inner in item:
        items += list_items(inner) if isinstance(inner, tuple | list | dict) else (inner,)
    return items
