"""What the user says of dims, in any of the forms people write, as one shape of sizes for each input tensor."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import torch

from fairway.diagnostics.errors import complain
from fairway.model.dims import UNDECLARED_HIGH, Size, parse_size
from fairway.model.spec import LONGEST
from fairway.model.tree import TreeLeaf


@dataclass
class Declared:
    """Shapes by leaf name, and the bounds that came with them (torch.export dims carry their own)."""

    shapes: dict[str, tuple[Size, ...]] = field(default_factory=dict)
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)


def declare(dims: Any, leaves: Sequence[TreeLeaf], top: Sequence[str]) -> Declared:
    """Reads `dims` against the tensors given. `top` are the names of forward's arguments, in order."""
    declared = Declared()
    by_name = {leaf.name: leaf.value for leaf in leaves}
    if dims is None:
        dims = {}
    if isinstance(dims, Sequence) and not isinstance(dims, str):
        if len(dims) > len(top):
            raise complain("FW002", f"dims has {len(dims)} entries; the inputs are: {', '.join(top) or 'none'}")
        dims = dict(zip(top, dims, strict=False))
    if not isinstance(dims, Mapping):
        raise complain("FW015", f"dims is {dims!r:.80}", todo=("Write dims={'" + "".join(top[:1]) + "': 'batch 3'}.",))
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
    if isinstance(what, str) or not isinstance(what, Mapping | Sequence):
        raise complain("FW003", f"{name}: declared {what!r}, but it holds several tensors: {', '.join(inside)}")
    items = what.items() if isinstance(what, Mapping) else enumerate(what)
    for key, item in items:
        _walk(f"{name}.{key}", item, tensors, declared)


def _shape(name: str, what: Any, tensor: torch.Tensor, declared: Declared) -> tuple[Size, ...]:
    rank = tensor.dim()
    if isinstance(what, str):
        what = _words(name, what)
    if what is None:
        what = {}
    if isinstance(what, Mapping):
        wrong = [axis for axis in what if not (isinstance(axis, int) and -rank <= axis < rank)]
        if wrong:
            raise complain("FW003", f"{name}: axis {wrong[0]!r} is declared, but the example has {rank} axes")
        named = {axis % rank: item for axis, item in what.items()}
        what = [named.get(axis) for axis in range(rank)]
    if not isinstance(what, Sequence):
        raise complain(
            "FW015", f"dims[{name!r}] is {what!r:.80}", todo=(f"Write {{{name!r}: 'batch 3'}} or {{axis: name}}.",)
        )
    if len(what) != rank:
        text = " ".join(str(item) for item in what)
        seen = f"the example has {rank}: {tuple(tensor.shape)}"
        raise complain("FW003", f"{name}: [{text}] declares {len(what)} sizes, {seen}")
    sizes = tuple(_size(name, axis, item, tensor.shape[axis], declared) for axis, item in enumerate(what))
    for axis, size in enumerate(sizes):
        if size.fixed is not None and size.fixed != tensor.shape[axis]:
            raise complain(
                "FW003", f"{name}: axis {axis} is declared {size.fixed}, the example tensor has {tensor.shape[axis]}"
            )
    return sizes


_WORD = re.compile(r"[^\s,()]*(?:\([^()]*\)[^\s,()]*)+|[^\s,]+")


def _words(name: str, text: str) -> list[str]:
    """The sizes in `batch time 3`, `batch, time` or `[batch, time]`; a size that is none gets a caret."""
    if len(text) > LONGEST:
        raise complain("FW001", f"{name}: {len(text)} characters, at most {LONGEST} are read: {text[:40]!r}…")
    bare = re.fullmatch(r"\s*\[(.*)\]\s*|\s*\(([^()]*)\)\s*", text)
    start, end = bare.span(bare.lastindex or 0) if bare else (0, len(text))
    words = list(_WORD.finditer(text, start, end))
    for word in words:
        try:
            parse_size(word[0])
        except ValueError as error:
            caret = " " * word.start() + "^"
            seen = f"{name}: a size belongs here: a number, a name, or 2*name+1"
            raise complain("FW001", f"{seen}\n    {text}\n    {caret}") from error
    return [word[0] for word in words]


def _size(name: str, axis: int, item: Any, seen: int, declared: Declared) -> Size:
    if item is None:
        return Size(str(seen))
    if isinstance(item, int | str):
        item = str(item)
        try:
            return parse_size(item)
        except ValueError as error:
            todo = ("Write a number, a name, or 2*name+1.",)
            raise complain("FW001", f"{name}, axis {axis}: {error}", todo=todo) from error
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
        slope, offset = item.fn(1) - item.fn(0), item.fn(0)
        _bound(root.__name__, root.min, root.max, declared)
        return parse_size(f"{slope}*{root.__name__}{offset:+d}" if offset else f"{slope}*{root.__name__}")
    if hasattr(item, "__name__"):
        _bound(item.__name__, item.min, item.max, declared)
        return Size(item.__name__)
    raise complain(
        "FW015",
        f"dims[{name!r}], axis {axis}, is {item!r:.80}",
        todo=("Give a number, a name, or a torch.export Dim for each axis.",),
    )


def _bound(name: str, low: Any, high: Any, declared: Declared) -> None:
    # torch writes "no upper bound" as an infinity of its own, and "no lower bound" as 0 or None. A dim of size 0 is
    # tested only where the user says so in `bounds`.
    least = max(1, int(low or 0))
    if isinstance(high, int) and high < 2**31:
        declared.bounds[name] = (least, high)
    elif least > 1:
        declared.bounds[name] = (least, max(UNDECLARED_HIGH, 4 * least))


def read_annotations(forward: Any) -> dict[str, list[str | None]]:
    """Dims from jaxtyping annotations on `forward`: `acc: Float[Tensor, "batch time 3"]`."""
    try:
        hints = inspect.get_annotations(forward, eval_str=True)
    except (NameError, SyntaxError, TypeError):
        return {}
    found = {}
    for name, hint in hints.items():
        arrays = [h for h in (hint, *get_args(hint)) if isinstance(getattr(h, "dim_str", None), str)]
        shape = _jaxtyping_shape(arrays[0].dim_str) if arrays else None
        if name != "return" and shape is not None:
            found[name] = shape
    return found


def _jaxtyping_shape(text: str) -> list[str | None] | None:
    """The sizes that an annotation names; None where it leaves the number of axes open or asks Python for a size."""
    sizes: list[str | None] = []
    for word in text.split():
        if word.startswith(("*", "...", "?")) or "{" in word:
            return None
        word = word.lstrip("#").rpartition("=")[2]  # `#batch` may broadcast; in `rows=4` the name is documentation
        sizes.append(None if word.startswith("_") else word)
    return sizes
