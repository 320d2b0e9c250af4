"""Run PyTorch itself, unchanged or with weights and inputs moved by rounding errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch

from fairway.judge.runtimes.items import Item, Items, NamedItems, Operator
from fairway.judge.runtimes.operator_watch import OperatorWatch
from fairway.judge.yardstick import Array
from fairway.model.outputs import find_output_leaves
from fairway.model.subject import Subject
from fairway.torch_internals import is_dynamo_loaded, tree_leaves

NARROW_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def run_eager(subject: Subject, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return PyTorch's own answer. Inputs are cloned, because forward may write into them."""
    args, kwargs = subject.call([t.clone() for t in tensors])
    with torch.no_grad(), disable_compilation():
        return [leaf.value for leaf in find_output_leaves(subject.model(*args, **kwargs))]


def disable_compilation() -> AbstractContextManager[object]:
    """Keep `torch.cond` and similar operators from compiling, which fails the second time inside a dispatch mode.

    There is nothing to do before the compiler is loaded, and loading it takes over a second.
    """
    loaded = is_dynamo_loaded()
    return torch.compiler.set_stance("force_eager") if loaded else nullcontext()


@contextmanager
def set_export_flags() -> Iterator[None]:
    """Set the flags by which a model sees that it is being exported, while it runs with plain tensors."""
    flags = ("_is_compiling_flag", "_is_exporting_flag")  # seen to work in torch 2.13; no public counterpart
    before = [getattr(torch.compiler, flag) for flag in flags]
    for flag in flags:
        setattr(torch.compiler, flag, True)
    try:
        yield
    finally:
        for flag, value in zip(flags, before, strict=True):
            setattr(torch.compiler, flag, value)


_MOVING_OPERATORS = ("_to_copy", "clone", "copy_", "embedding", "index_select", "index", "gather", "cat", "stack")
"""Operators, other than views, that move numbers without rounding them."""


class _RoundingRecorder(OperatorWatch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Records the float dtypes in which something is computed, not only stored or moved."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def watch(self, func: Operator, args: Items, kwargs: NamedItems) -> Item:
        result = func(*args, **kwargs)
        if not func.is_view and func.overloadpacket.__name__ not in _MOVING_OPERATORS:
            self.seen.update(
                t.dtype for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.dtype in NARROW_DTYPES
            )
        return result


def find_roundoff(subject: Subject, tensors: Sequence[torch.Tensor]) -> float:
    """Return the unit roundoff of the coarsest arithmetic in the model.

    Weights stored in bfloat16 and used in float32 round like float32.
    """
    try:
        with _RoundingRecorder() as rounds:
            run_eager(subject, tensors)
    except Exception:  # a dispatch mode cannot watch this model, so only the dtypes of the tensors are known
        return 1.0
    return max((torch.finfo(dtype).eps for dtype in rounds.seen), default=1.0)


@contextmanager
def nudge_weights(model: torch.nn.Module, seed: int, roundoff: float = 1.0) -> Iterator[None]:
    """Move the parameters by about one rounding error while inside, to see which answers depend on that.

    The error is that of the tensor's own dtype, or `roundoff` if that is smaller.
    """
    generator = torch.Generator().manual_seed(seed)
    kept = [(t, t.data) for t in model.parameters() if t.dtype in NARROW_DTYPES]
    try:
        for tensor, data in kept:
            noise = torch.randn(data.shape, generator=generator) * min(torch.finfo(data.dtype).eps, roundoff)
            tensor.data = (data.double() * (1 + noise.double())).to(data.dtype)
        yield
    finally:
        for tensor, data in kept:
            tensor.data = data


def nudge_inputs(tensors: Sequence[torch.Tensor], seed: int, roundoff: float = 1.0) -> list[torch.Tensor]:
    """Return the inputs, with floats moved by about one rounding error."""
    generator = torch.Generator().manual_seed(seed)
    moved = []
    for tensor in tensors:
        if tensor.dtype in NARROW_DTYPES:
            noise = torch.randn(tensor.shape, generator=generator) * min(torch.finfo(tensor.dtype).eps, roundoff)
            moved.append((tensor.double() * (1 + noise.double())).to(tensor.dtype))
        else:
            moved.append(tensor)
    return moved


def to_array(tensor: torch.Tensor) -> Array:
    """Return a numpy array. bfloat16, which numpy lacks, becomes float32. Complex numbers become pairs."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor.resolve_conj())
    return np.asarray(tensor.resolve_neg())
