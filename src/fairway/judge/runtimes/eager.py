"""PyTorch itself, as it is and moved by rounding errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves  # seen to work in torch 2.9–2.13; no public counterpart

from fairway.judge.runtimes.operator_watch import Watch
from fairway.judge.yardstick import Array
from fairway.model.outputs import output_leaves
from fairway.model.subject import Subject

NARROW = (torch.float32, torch.float16, torch.bfloat16)


def run_eager(subject: Subject, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """PyTorch's own answer. Inputs are cloned, since forward may write into them."""
    args, kwargs = subject.call([t.clone() for t in tensors])
    with torch.no_grad(), uncompiled():
        return [leaf.value for leaf in output_leaves(subject.model(*args, **kwargs))]


def uncompiled() -> AbstractContextManager[object]:
    """`torch.cond` and its kind compile themselves when called, which fails the second time inside a dispatch mode.

    Before anything has loaded the compiler there is nothing to hold it back from, and loading it takes over a second.
    """
    loaded = "torch._dynamo" in sys.modules
    return torch.compiler.set_stance("force_eager") if loaded else nullcontext()


@contextmanager
def as_exported() -> Iterator[None]:
    """Models that ask whether they are being exported are told so, while they run with plain tensors."""
    flags = ("_is_compiling_flag", "_is_exporting_flag")  # seen to work in torch 2.13; no public counterpart
    before = [getattr(torch.compiler, flag) for flag in flags]
    for flag in flags:
        setattr(torch.compiler, flag, True)
    try:
        yield
    finally:
        for flag, value in zip(flags, before, strict=True):
            setattr(torch.compiler, flag, value)


_MOVES = ("_to_copy", "clone", "copy_", "embedding", "index_select", "index", "gather", "cat", "stack")
"""Operators besides views that hand numbers on and round none."""


class _Rounds(Watch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Notes in which float dtypes something is computed, rather than kept or handed on."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def watch(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if not func.is_view and func.overloadpacket.__name__ not in _MOVES:
            self.seen.update(t.dtype for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.dtype in NARROW)
        return result


def rounding(subject: Subject, tensors: Sequence[torch.Tensor]) -> float:
    """The unit roundoff of the coarsest arithmetic in the model. Weights kept in bfloat16 and used in float32 round
    like float32."""
    try:
        with _Rounds() as rounds:
            run_eager(subject, tensors)
    except Exception:  # a model that a dispatch mode cannot watch: the dtypes of the tensors must do
        return 1.0
    return max((torch.finfo(dtype).eps for dtype in rounds.seen), default=1.0)


@contextmanager
def nudged(model: torch.nn.Module, seed: int, roundoff: float = 1.0) -> Iterator[None]:
    """Parameters moved by about one rounding error while inside, to see which answers hang on a hair.

    The error is that of the tensor's own dtype, or `roundoff` where the arithmetic is finer.
    """
    generator = torch.Generator().manual_seed(seed)
    kept = [(t, t.data) for t in model.parameters() if t.dtype in NARROW]
    try:
        for tensor, data in kept:
            noise = torch.randn(data.shape, generator=generator) * min(torch.finfo(data.dtype).eps, roundoff)
            tensor.data = (data.double() * (1 + noise.double())).to(data.dtype)
        yield
    finally:
        for tensor, data in kept:
            tensor.data = data


def nudge(tensors: Sequence[torch.Tensor], seed: int, roundoff: float = 1.0) -> list[torch.Tensor]:
    """Float inputs moved by about one rounding error."""
    generator = torch.Generator().manual_seed(seed)
    moved = []
    for tensor in tensors:
        if tensor.dtype in NARROW:
            noise = torch.randn(tensor.shape, generator=generator) * min(torch.finfo(tensor.dtype).eps, roundoff)
            moved.append((tensor.double() * (1 + noise.double())).to(tensor.dtype))
        else:
            moved.append(tensor)
    return moved


def to_array(tensor: torch.Tensor) -> Array:
    """As numpy. bfloat16, which numpy lacks, becomes float32, which holds all its values; complex becomes pairs."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor.resolve_conj())
    return np.asarray(tensor.resolve_neg())
