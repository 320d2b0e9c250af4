"""Reads the user's declaration of dims, in any of its forms, into one shape for each input tensor."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import SupportsInt, get_args

import torch

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.dims import UNDECLARED_HIGH, Size, parse_size
from fairway.model.spec import MAX_LINE_CHARACTERS
from fairway.model.torch_arguments import DynamicAxes, read_dynamic_axes
from fairway.model.tree import TreeLeaf
from fairway.model.user_types import UserDims


@dataclass
class DeclaredDims:
    """Shapes by leaf name, and the bounds that came with them (torch.export dims carry their own)."""

    shapes: dict[str, tuple[Size, ...]] = field(default_factory=dict)
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)


def read_dims(dims: UserDims, leaves: Sequence[TreeLeaf], top: Sequence[str]) -> DeclaredDims:
    """Match `dims` with the example tensors. `top` are the names of forward's arguments, in order."""
    declared = DeclaredDims()
    by_name = {leaf.name: leaf.value for leaf in leaves}
    if isinstance(dims, DynamicAxes):
        dims = read_dynamic_axes(dims, leaves)
    if dims is None:
        dims = {}
    if isinstance(dims, Sequence) and not isinstance(dims, str):
        if len(dims) > len(top):
            raise complain(
                Code.UNKNOWN_INPUT,
                f"dims: expected one entry for each input ({', '.join(top) or 'none'}), got {len(dims)}",
            )
        dims = dict(zip(top, dims, strict=False))
    if not isinstance(dims, Mapping):
        raise complain(
            Code.BAD_INPUTS,
            f"dims: expected a mapping by input name, got {dims!r:.80}",
            todo=("Write dims={'" + "".join(top[:1]) + "': 'batch 3'}.",),
        )
    for name, declaration in dims.items():
        _read_declaration(str(name), declaration, by_name, declared)
    for name, tensor in by_name.items():
        declared.shapes.setdefault(name, tuple(Size(str(n)) for n in tensor.shape))
    return declared


def _read_declaration(
    name: str, declaration: UserDims, tensors: Mapping[str, torch.Tensor], declared: DeclaredDims
) -> None:
    if name in tensors:
        declared.shapes[name] = _read_shape(name, declaration, tensors[name], declared)
        return
    inside = [n for n in tensors if n.startswith(name + ".")]
    if not inside:
        known = ", ".join(tensors) or "none"
        raise complain(Code.UNKNOWN_INPUT, f"dims names {name!r}; the inputs are: {known}")
    if declaration is None:
        return
    if isinstance(declaration, str) or not isinstance(declaration, Mapping | Sequence):
        raise complain(
            Code.SPEC_CONTRADICTS_EXAMPLE,
            f"{name}: declared {declaration!r}, but it holds several tensors: {', '.join(inside)}",
        )
    items = declaration.items() if isinstance(declaration, Mapping) else enumerate(declaration)
    for key, item in items:
        _read_declaration(f"{name}.{key}", item, tensors, declared)


def _read_shape(name: str, declaration: UserDims, tensor: torch.Tensor, declared: DeclaredDims) -> tuple[Size, ...]:
    rank = tensor.dim()
    if isinstance(declaration, str):
        declaration = _split_sizes(name, declaration)
    if declaration is None:
        declaration = {}
    if isinstance(declaration, Mapping):
        wrong = [axis for axis in declaration if not (isinstance(axis, int) and -rank <= axis < rank)]
        if wrong:
            raise complain(
                Code.SPEC_CONTRADICTS_EXAMPLE, f"{name}: axis {wrong[0]!r} is declared, but the example has {rank} axes"
            )
        named = {axis % rank: item for axis, item in declaration.items()}
        declaration = [named.get(axis) for axis in range(rank)]
    if not isinstance(declaration, Sequence):
        raise complain(
            Code.BAD_INPUTS,
            f"dims[{name!r}]: expected the sizes of all axes, got {declaration!r:.80}",
            todo=(f"Write {{{name!r}: 'batch 3'}} or {{axis: name}}.",),
        )
    if len(declaration) != rank:
        text = " ".join(str(item) for item in declaration)
        seen = f"the example has {rank}: {tuple(tensor.shape)}"
        raise complain(Code.SPEC_CONTRADICTS_EXAMPLE, f"{name}: [{text}] declares {len(declaration)} sizes, {seen}")
    sizes = tuple(_read_size(name, axis, item, tensor.shape[axis], declared) for axis, item in enumerate(declaration))
    for axis, size in enumerate(sizes):
        if size.constant_value is not None and size.constant_value != tensor.shape[axis]:
            raise complain(
                Code.SPEC_CONTRADICTS_EXAMPLE,
                f"{name}: axis {axis} is declared {size.constant_value}, the example tensor has {tensor.shape[axis]}",
            )
    return sizes


_WORD = re.compile(r"[^\s,()]*(?:\([^()]*\)[^\s,()]*)+|[^\s,]+")


def _split_sizes(name: str, text: str) -> list[str]:
    """Split `batch time 3`, `batch, time` or `[batch, time]` into sizes; an error points at the place with a caret."""
    if len(text) > MAX_LINE_CHARACTERS:
        raise complain(
            Code.SPEC_SYNTAX, f"{name}: {len(text)} characters, at most {MAX_LINE_CHARACTERS} are read: {text[:40]!r}…"
        )
    bare = re.fullmatch(r"\s*\[(.*)\]\s*|\s*\(([^()]*)\)\s*", text)
    start, end = bare.span(bare.lastindex or 0) if bare else (0, len(text))
    words = list(_WORD.finditer(text, start, end))
    for word in words:
        try:
            parse_size(word[0])
        except ValueError as error:
            caret = " " * word.start() + "^"
            seen = f"{name}: a size belongs here: a number, a name, or 2*name+1"
            raise complain(Code.SPEC_SYNTAX, f"{seen}\n    {text}\n    {caret}") from error
    return [word[0] for word in words]


def _read_size(name: str, axis: int, item: UserDims, seen: int, declared: DeclaredDims) -> Size:
    if item is None:
        return Size(str(seen))
    if isinstance(item, int | str):
        item = str(item)
        try:
            return parse_size(item)
        except ValueError as error:
            todo = ("Write a number, a name, or 2*name+1.",)
            raise complain(Code.SPEC_SYNTAX, f"{name}, axis {axis}: {error}", todo=todo) from error
    return _read_torch_dim(name, axis, item, seen, declared)


def _read_torch_dim(name: str, axis: int, item: UserDims, seen: int, declared: DeclaredDims) -> Size:
    """Read a torch.export Dim: a hint (AUTO, DYNAMIC, STATIC), a named one with bounds, or one derived from it."""
    label = getattr(getattr(item, "type", None), "name", None)
    if label == "STATIC":
        return Size(str(seen))
    if label in ("AUTO", "DYNAMIC"):
        size = Size(re.sub(r"\W", "_", f"{name}_{axis}"))
        _note_bounds(size.text, getattr(item, "min", None), getattr(item, "max", None), declared)
        return size
    root = getattr(item, "root", None)
    if root is not None:
        slope, offset = item.fn(1) - item.fn(0), item.fn(0)
        _note_bounds(root.__name__, root.min, root.max, declared)
        return parse_size(f"{slope}*{root.__name__}{offset:+d}" if offset else f"{slope}*{root.__name__}")
    if hasattr(item, "__name__"):
        _note_bounds(item.__name__, item.min, item.max, declared)
        return Size(item.__name__)
    raise complain(
        Code.BAD_INPUTS,
        f"dims[{name!r}], axis {axis}: expected a size, got {item!r:.80}",
        todo=("Give a number, a name, or a torch.export Dim for each axis.",),
    )


def _note_bounds(name: str, low: SupportsInt | None, high: object, declared: DeclaredDims) -> None:
    # torch writes "no upper bound" as its own infinity, and "no lower bound" as 0 or None. A dim of size 0 is
    # tested only if the user declares it in `bounds`.
    least = max(1, int(low or 0))
    if isinstance(high, int) and high < 2**31:
        declared.bounds[name] = (least, high)
    elif least > 1:
        declared.bounds[name] = (least, max(UNDECLARED_HIGH, 4 * least))


def read_annotations(forward: Callable[..., object]) -> dict[str, list[str | None]]:
    """Return dims from jaxtyping annotations on `forward`: `acc: Float[Tensor, "batch time 3"]`."""
    try:
        hints = inspect.get_annotations(forward, eval_str=True)
    except (NameError, SyntaxError, TypeError):
        return {}
    shapes = {}
    for name, hint in hints.items():
        arrays = [h for h in (hint, *get_args(hint)) if isinstance(getattr(h, "dim_str", None), str)]
        shape = _read_jaxtyping_shape(arrays[0].dim_str) if arrays else None
        if name != "return" and shape is not None:
            shapes[name] = shape
    return shapes


def _read_jaxtyping_shape(text: str) -> list[str | None] | None:
    """Return the sizes of an annotation, or None if it leaves the number of axes open or computes a size in Python."""
    sizes: list[str | None] = []
    for word in text.split():
        if word.startswith(("*", "...", "?")) or "{" in word:
            return None
        word = word.lstrip("#").rpartition("=")[2]  # `#batch` may broadcast; in `rows=4` the name is documentation
        sizes.append(None if word.startswith("_") else word)
    return sizes
