"""Replace an attribute of a module, class or object while a block runs.

All of Fairway patches through `patch_attribute`, so that a check can list the patches that were not undone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class AttributePatch:
    """One attribute that is replaced at the moment."""

    owner: object
    name: str

    def __str__(self) -> str:
        """Return the dotted name, such as `torch.nn.modules.module.Module.to`."""
        home = getattr(self.owner, "__module__", None) if isinstance(self.owner, type) else None
        owner = getattr(self.owner, "__qualname__", None) or getattr(self.owner, "__name__", type(self.owner).__name__)
        return ".".join(filter(None, (home, owner, self.name)))


_active: list[AttributePatch] = []


@contextmanager
def patch_attribute(owner: object, name: str, value: object) -> Iterator[None]:
    """Set an existing attribute inside the block and restore it afterwards.

    An attribute that `owner` inherits is deleted again, so that the inherited one is found as before.
    """
    is_inherited = name not in vars(owner)
    original = getattr(owner, name) if is_inherited else vars(owner)[name]
    patch = AttributePatch(owner, name)
    setattr(owner, name, value)
    _active.append(patch)
    try:
        yield
    finally:
        _active.remove(patch)
        if is_inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


def list_active_patches() -> list[AttributePatch]:
    """Return the patches that were made and not undone yet, oldest first."""
    return [*_active]
