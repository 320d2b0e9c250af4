"""Lists of rows that differ in length, as one tensor of all their steps and the number of steps of each row.

`[layer(row[:n]) for row, n in zip(x, lengths)]` has rows of a length that no operator for loops can collect. Here the
steps of all rows go through the layer together, which is right if it treats each step by itself. The proof in eager
PyTorch decides that.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fairway.convert.rewrite.iterables import Rows, over
from fairway.convert.rewrite.repeat import collect
from fairway.convert.rewrite.scalars import RuntimeValue, Unrewritable
from fairway.torch_internals import check

PART = "_part"
"""The name of all rows' steps in the expression that they go through."""


@dataclass(frozen=True)
class RaggedElement:
    """The element of a comprehension: a row, how many steps of it count, and what they go through."""

    row: ast.expr
    count: ast.expr
    through: ast.expr
    is_repeated: bool
    """Whether `count` says how often each step is repeated."""


class Ragged:
    """The list: the steps of all rows, and the number of steps of each."""

    def __init__(self, steps: torch.Tensor, lengths: torch.Tensor) -> None:
        self.steps, self.lengths = steps, lengths

    def __len__(self) -> int:
        return self.lengths.shape[0]


def read_ragged(element: ast.expr, target: ast.expr) -> RaggedElement | None:
    """Return the parts of an element with exactly one part whose length depends on the item."""
    names = {name.id for name in ast.walk(target) if isinstance(name, ast.Name)}
    chosen = [node for node in ast.walk(element) if isinstance(node, ast.expr) and _is_ragged(node, names)]
    if len(chosen) != 1:
        return None
    node = chosen[0]
    new = copy.deepcopy(element)
    for old, copied in zip(ast.walk(element), ast.walk(new), strict=True):
        if old is node:
            through = _Replace(copied).visit(new)
            break
    if isinstance(node, ast.Call):
        row, count = _read_repeat(node)
        return RaggedElement(row, count, through, True)
    assert isinstance(node, ast.Subscript)
    if isinstance(node.slice, ast.Slice):
        assert node.slice.upper is not None
        return RaggedElement(node.value, node.slice.upper, through, False)
    assert isinstance(node.slice, ast.Tuple)
    *before, last = node.slice.elts
    assert isinstance(last, ast.Slice)
    assert last.upper is not None
    index = before[0] if len(before) == 1 else ast.Tuple(before, ast.Load())
    row = ast.copy_location(ast.Subscript(node.value, index, ast.Load()), node)
    return RaggedElement(row, last.upper, through, False)


class _Replace(ast.NodeTransformer):
    def __init__(self, node: ast.AST) -> None:
        self._node = node

    def visit(self, node: ast.AST) -> RuntimeValue:
        return ast.copy_location(ast.Name(PART, ast.Load()), node) if node is self._node else super().visit(node)


def _is_ragged(node: ast.expr, names: set[str]) -> bool:
    def depends(part: ast.expr | None) -> bool:
        return part is not None and any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(part))

    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "repeat_interleave":
            return False
        row, count = _read_repeat(node)
        return depends(row) and depends(count)
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
        return False
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    last = parts[-1]
    if not isinstance(last, ast.Slice) or last.lower is not None or last.step is not None or not depends(last.upper):
        return False
    return not any(isinstance(part, ast.Slice) for part in parts[:-1])


def _read_repeat(node: ast.Call) -> tuple[ast.expr, ast.expr]:
    """Return the rows and the counts of a call of the function or of the method."""
    assert isinstance(node.func, ast.Attribute)
    base = node.func.value
    given = list(node.args)
    if not (isinstance(base, ast.Name) and base.id == "torch"):
        given = [base, *given]
    return (given[0], given[1]) if len(given) > 1 else (given[0], ast.Constant(None))


def make_ragged(
    held: RuntimeValue,
    row: Callable[[object], object],
    count: Callable[[object], object],
    through: Callable[[torch.Tensor], torch.Tensor],
    is_repeated: bool,
) -> Ragged:
    """Return the list of a comprehension with rows of different lengths."""
    rows = _to_tensor(collect(over(held), row))
    counts = _to_tensor(collect(over(held), count)).to(torch.int64)
    if is_repeated:
        steps = torch.repeat_interleave(rows.flatten(0, 1), counts.flatten(), dim=0)
        return Ragged(through(steps), counts.sum(1))
    return Ragged(through(rows[_mask(counts, rows.shape[1])]), counts)


def _to_tensor(held: RuntimeValue) -> torch.Tensor:
    if isinstance(held, Rows):
        return held.tensor
    return torch.stack([torch.as_tensor(item) for item in held])


def _mask(lengths: torch.Tensor, longest: RuntimeValue) -> torch.Tensor:
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)


def split_ragged(held: torch.Tensor, sizes: RuntimeValue, dim: int = 0) -> RuntimeValue:
    """Return `torch.split(held, sizes.tolist())`."""
    if isinstance(sizes, torch.Tensor) and dim == 0:
        return Ragged(held, sizes)
    return torch.split(held, sizes.tolist() if isinstance(sizes, torch.Tensor) else sizes, dim)


def pad_sequence(
    held: RuntimeValue, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> torch.Tensor:
    if isinstance(held, Rows):  # rows of one length
        return held.tensor if batch_first else held.tensor.transpose(0, 1)
    if not isinstance(held, Ragged):
        return torch.nn.utils.rnn.pad_sequence(held, batch_first, padding_value, padding_side)
    if padding_side != "right":
        raise Unrewritable("rows of different lengths are padded on the left")
    longest = held.lengths.max().item()
    if isinstance(longest, torch.SymInt):
        check(longest >= 0)
    shape = [held.lengths.shape[0], longest, *held.steps.shape[1:]]
    padded = torch.full(shape, padding_value, dtype=held.steps.dtype, device=held.steps.device)
    padded = padded.index_put((_mask(held.lengths, longest),), held.steps)
    return padded if batch_first else padded.transpose(0, 1)
