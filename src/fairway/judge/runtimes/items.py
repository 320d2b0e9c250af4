"""The arguments and results of operators: tensors and other items in lists, tuples and dicts.

PyTorch's own functions for trees know many more containers, and take longer than the operators of a small model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def map_items(change: Callable[[Any], Any], item: Any) -> Any:
    """Return the same containers with every item changed."""
    if isinstance(item, tuple):
        return tuple([map_items(change, one) for one in item])
    if isinstance(item, list):
        return [map_items(change, one) for one in item]
    if isinstance(item, dict):
        return {key: map_items(change, one) for key, one in item.items()}
    return change(item)


def list_items(item: Any) -> list[Any]:
    """Return the items inside all containers, in order."""
    if isinstance(item, dict):
        item = list(item.values())
    if not isinstance(item, tuple | list):
        return [item]
    items: list[Any] = []
    for one in item:
        items += list_items(one) if isinstance(one, tuple | list | dict) else (one,)
    return items
