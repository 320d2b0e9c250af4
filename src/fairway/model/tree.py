"""Nested values as named leaves and back: lists, tuples, dicts, dataclasses, and anything that looks like them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

Tree: TypeAlias = Any
"""A nested value: lists, tuples, dicts and dataclasses of tensors, slots or other leaves."""


@dataclass(frozen=True)
class Slot:
    """Marks the place of a tensor in a template by its number."""

    index: int


@dataclass(frozen=True)
class TreeLeaf:
    path: tuple[str, ...]
    value: Tree

    @property
    def name(self) -> str:
        return ".".join(self.path)


def flatten(value: Tree, path: tuple[str, ...] = ()) -> list[TreeLeaf]:
    """Return every leaf with its path. Everything that is not a container is a leaf, except None."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [leaf for key, item in value.items() for leaf in flatten(item, (*path, str(key)))]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return flatten(fields, path)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return flatten(dict(zip(value._fields, value, strict=True)), path)
    if isinstance(value, list | tuple):
        return [leaf for i, item in enumerate(value) for leaf in flatten(item, (*path, str(i)))]
    return [TreeLeaf(path, value)]


def make_template(value: Tree, counter: list[int] | None = None) -> Tree:
    """Return the same structure with a `Slot` for each tensor, numbered in the order of `flatten`."""
    counter = [0] if counter is None else counter

    def put(item: Tree) -> Tree:
        if isinstance(item, torch.Tensor):
            counter[0] += 1
            return Slot(counter[0] - 1)
        return _rebuild(item, put)

    return put(value)


def fill_template(shape: Tree, tensors: Sequence[torch.Tensor]) -> Tree:
    """Return the template with its slots filled."""

    def put(item: Tree) -> Tree:
        return tensors[item.index] if isinstance(item, Slot) else _rebuild(item, put)

    return put(shape)


def _rebuild(value: Tree, put: Callable[[Tree], Tree]) -> Tree:
    if isinstance(value, Slot | type):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(put(item) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(put(item) for item in value)
    if type(value) is dict:
        return {key: put(item) for key, item in value.items()}
    if isinstance(value, Mapping):
        # OrderedDict and transformers' ModelOutput are built again from the same keys.
        return type(value)(**{key: put(item) for key, item in value.items()})
    if dataclasses.is_dataclass(value):
        # dataclasses.replace refuses fields that are not arguments of __init__.
        new = copy.copy(value)
        for item in dataclasses.fields(value):
            object.__setattr__(new, item.name, put(getattr(value, item.name)))
        return new
    return value
