"""Finds out by trials why PyTorch refuses an input: its dtype, an index that was drawn, or a size."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from fairway.judge.runtimes.eager import run_eager
from fairway.model.dims import Point, describe_point
from fairway.model.spec import TensorSpec
from fairway.model.subject import Subject

TRIALS_SECONDS = 5.0
"""All trials of one refusal end after this time."""

_TRIED_DTYPES = ("float32", "int64", "float64", "float16", "bfloat16", "bool")
_ABOUT_DTYPES = re.compile(r"dtype|scalar type|data type|Float|Double|Half|Long|Int\b|not implemented for")


def explain_refusal(subject: Subject, error: BaseException, point: Point) -> tuple[str, ...]:
    """Return what to do about a refusal at a point, as far as trials with other inputs show it."""
    trials = _Trials(subject, dict(point))
    text = str(error)
    if _ABOUT_DTYPES.search(text) and (declaration := trials.find_dtypes()):
        return (f"Declare the dtype that the model computes in: {declaration}.",)
    if "index out of range" in text or "out of bounds" in text:
        limit = trials.find_index_limit()
        if limit:
            return (f"Declare the limit of the index: {limit}.",)
    dim = trials.find_size_limit()
    if dim is not None:
        name, low, most = dim
        return (
            f"Declare {name}={low}..{most}: forward works up to {name}={most} and fails at {name}={most + 1}.",
            "Or change forward, such as the length of a table of positions.",
        )
    if "index out of range" in text:
        return ("If the input is an index into an embedding, declare its limit: `ids: int64[batch, seq] < 30522`.",)
    return ()


@dataclass
class _Trials:
    subject: Subject
    point: dict[str, int]
    started: float = field(default_factory=time.monotonic)

    def find_dtypes(self) -> str:
        """Return the spec lines of the inputs that are accepted in another dtype, or an empty text."""
        spec = self.subject.spec
        tensors = self._draw(self.point)
        groups = [[index] for index in range(len(spec))]
        groups += [[index for index, item in enumerate(spec) if item.dtype == spec[0].dtype]] if len(spec) > 1 else []
        for group in groups:
            for dtype in _TRIED_DTYPES:
                if dtype == spec[group[0]].dtype:
                    continue
                changed = [_convert(t, dtype) if index in group else t for index, t in enumerate(tensors)]
                if self._accepts(changed):
                    return ", ".join(_describe(spec[index], dtype) for index in group)
        return ""

    def find_index_limit(self) -> str:
        """Return the spec line of the first whole-number input that must stay below a limit, or an empty text."""
        tensors = self._draw(self.point)
        for index, item in enumerate(self.subject.spec):
            if "int" not in item.dtype or tensors[index].numel() == 0:
                continue

            def accepts(limit: int, index: int = index) -> bool:
                changed = [t.clamp(0, limit - 1) if number == index else t for number, t in enumerate(tensors)]
                return self._accepts(changed)

            most = int(tensors[index].max()) + 1
            limit = _find_last(accepts, 1, most)
            if limit is not None and limit < most:
                return f"`{item.name}: {item.dtype}[{', '.join(map(str, item.shape))}] < {limit}`"
        return ""

    def find_size_limit(self) -> tuple[str, int, int] | None:
        """Return the first dim that must be smaller than at the point, with its lowest and its largest legal size."""
        for dim in self.subject.domain.dims:
            sizes = [size for size in dim.sizes if size <= self.point[dim.name]] if len(dim.sizes) < 10**6 else []

            def accepts(number: int, name: str = dim.name, sizes: Sequence[int] = sizes) -> bool:
                return self._accepts(self._draw({**self.point, name: sizes[number]}))

            last = _find_last(accepts, 0, len(sizes) - 1) if len(sizes) > 1 else None
            if last is not None and last < len(sizes) - 1:
                return dim.name, dim.low, sizes[last]
        return None

    def _draw(self, point: Point) -> list[torch.Tensor]:
        return self.subject.make(point, 1, "normal")

    def _accepts(self, tensors: list[torch.Tensor]) -> bool:
        if time.monotonic() - self.started > TRIALS_SECONDS:
            return False
        try:
            run_eager(self.subject, tensors)
        except Exception:
            return False
        return True


def _find_last(accepts: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the last accepted number from `low` on, by halving; None if `low` is refused."""
    if not accepts(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if accepts(middle) else (low, middle - 1)
    return low


def _convert(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the tensor in another dtype. Numbers that become whole may be indices, so they become zeros."""
    return torch.zeros_like(tensor, dtype=getattr(torch, dtype)) if "int" in dtype else tensor.to(getattr(torch, dtype))


def _describe(spec: TensorSpec, dtype: str) -> str:
    return f"`{spec.name}: {dtype}[{', '.join(map(str, spec.shape))}]`"


def describe_refusal(error: BaseException, point: Point) -> str:
    """Return the first line of an error of PyTorch, with the sizes at which it was raised."""
    first = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {first}, at {describe_point(point)}"
