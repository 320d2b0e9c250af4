"""What the user says of dims, in any of the forms people write, as one shape of sizes for each input tensor."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fairway.errors import complain
from fairway.subject.dims import Size, parse_size
from fairway.subject.tree import Leaf


@dataclass
class Declared:
    """Shapes by leaf name, and the bounds that came with them (torch.export dims carry their own)."""

    shapes: dict[str, tuple[Size, ...]] = field(default_factory=dict)
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)


def declare(dims: Any, leaves: Sequence[Leaf], top: Sequence[str]) -> Declared:
    """Reads `dims` against the tensors given. `top` are the names of forward's arguments, in order."""
    declared = Declared()
    by_name = {leaf.name: leaf.value for leaf in leaves}
    if dims is None:
        dims = {}
    if isinstance(dims, Sequence) and not isinstance(dims, str):
        dims = dict(zip(top, dims, strict=False))
    for name, what in dims.items():
        _walk(str(name), what, by_name, declared)
    for name, tensor in by_name.items():
        declared.shapes.setdefault(name, tuple(Size(str(n)) for n in tensor.shape))
    return declared


def _walk(name: str, what: Any, tensors: Mapping[str, torch.Tensor], declared: Declared) -> None:
    if name in tensors:
        declared.shapes[name] = _shape(name, what, tensors[name], declared)
        return
    inside = [n for n in tensors if n.startswith(name + ".")]
    if not inside:
        known = ", ".join(tensors) or "none"
        raise complain("FW002", f"dims names {name!r}; the inputs are: {known}")
    if what is None:
        return
    items = what.items() if isinstance(what, Mapping) else enumerate(what)
    for key, item in items:
        _walk(f"{name}.{key}", item, tensors, declared)


def _shape(name: str, what: Any, tensor: torch.Tensor, declared: Declared) -> tuple[Size, ...]:
    rank = tensor.dim()
    if isinstance(what, str):
        what = [part for part in re.split(r"[\s,]+(?![^(]*\))", what.strip().strip("[]()")) if part]
    if what is None:
        what = {}
    if isinstance(what, Mapping):
        wrong = [axis for axis in what if not -rank <= int(axis) < rank]
        if wrong:
            raise complain("FW003", f"{name}: axis {wrong[0]} is declared, but the example has {rank} axes")
        named = {int(axis) % rank: item for axis, item in what.items()}
        what = [named.get(axis) for axis in range(rank)]
    if len(what) != rank:
        text = " ".join(str(item) for item in what)
        raise complain("FW003", f"{name}: declared [{text}] has {len(what)} sizes, the example {rank} {tuple(tensor.shape)}")
    sizes = tuple(_size(name, axis, item, tensor.shape[axis], declared) for axis, item in enumerate(what))
    for axis, size in enumerate(sizes):
        if size.fixed is not None and size.fixed != tensor.shape[axis]:
            raise complain(
                "FW003", f"{name}: axis {axis} is declared {size.fixed}, the example tensor has {tensor.shape[axis]}"
            )
    return sizes


def _size(name: str, axis: int, item: Any, seen: int, declared: Declared) -> Size:
    if item is None:
        return Size(str(seen))
    if isinstance(item, int):
        return Size(str(item))
    if isinstance(item, str):
        try:
            return parse_size(item)
        except ValueError as error:
            raise complain("FW001", f"{name}, axis {axis}: {error}") from error
    return _torch_dim(name, axis, item, seen, declared)


def _torch_dim(name: str, axis: int, item: Any, seen: int, declared: Declared) -> Size:
    """A torch.export Dim: a hint (AUTO, DYNAMIC, STATIC), a named one with bounds, or one derived from it."""
    label = getattr(getattr(item, "type", None), "name", None)
    if label == "STATIC":
        return Size(str(seen))
    if label in ("AUTO", "DYNAMIC"):
        size = Size(re.sub(r"\W", "_", f"{name}_{axis}"))
        _bound(size.text, getattr(item, "min", None), getattr(item, "max", None), declared)
        return size
    root = getattr(item, "root", None)
    if root is not None:
        a = item.fn(1) - item.fn(0)
        _bound(root.__name__, root.min, root.max, declared)
        return parse_size(f"{a}*{root.__name__}+{item.fn(0)}")
    if hasattr(item, "__name__"):
        _bound(item.__name__, item.min, item.max, declared)
        return Size(item.__name__)
    raise complain("FW015", f"{name}, axis {axis}: {item!r} is not a size, a name or a torch.export Dim")


def _bound(name: str, low: Any, high: Any, declared: Declared) -> None:
    # torch writes "no upper bound" as an infinity of its own; only a plain number is a declaration.
    if isinstance(high, int) and high < 2**31:
        declared.bounds[name] = (int(low or 0), high)


def read_annotations(forward: Any) -> dict[str, str]:
    """Dims from jaxtyping annotations on `forward`: `acc: Float[Tensor, "batch time 3"]`."""
    try:
        hints = inspect.get_annotations(forward, eval_str=True)
    except (NameError, SyntaxError, TypeError):
        return {}
    found = {}
    for name, hint in hints.items():
        text = getattr(hint, "dim_str", None)
        if name != "return" and isinstance(text, str) and "..." not in text and "*" not in text.split():
            found[name] = text
    return found
