"""Index masks built with torch.vmap pass the tracer as broadcasting, and torch.export with their lookups.

The TorchScript tracer cannot follow vmap's batched tensors: it raises `unordered_map::at`, or records the
example's sizes. A mask predicate such as `lambda b, h, q, k: k <= q`, mapped over one index vector after
another, is the same as one call on vectors that stand at right angles; so that call is made instead. It is
used only if, on the example, it gives exactly what vmap gives; otherwise vmap stays.

Non-strict torch.export follows vmap, but not `padding[b, k]` inside it, which asks for the index as a
number. There the call is wrapped in torch's own TransformGetItemToIndex, as transformers does.

transformers before 5 builds every mask this way; from 5 on only those with a predicate of their own.
Refuses under strict capture, which needs neither, under the script capture, which cannot compile vmap, and
where no module's code mentions vmap. Maps over anything but index vectors are left alone.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import torch
from packaging.version import Version
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex  # seen in 2.13, private

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Where

MENTIONS = ("vmap(", "and_mask_function", "or_mask_function")


class Mapped:
    """A vmapped function that knows its nesting."""

    def __init__(
        self, original: Callable[..., Any], function: Any, in_dims: Any, out_dims: Any, rest: dict[str, Any]
    ) -> None:
        self.function, self.in_dims, self.out_dims = function, in_dims, out_dims
        inner = function.plain if isinstance(function, Mapped) else function
        self.plain: Callable[..., Any] = original(inner, in_dims, out_dims, **rest)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        axes = None if kwargs else self._axes(args)
        if axes is None:
            return self.plain(*args, **kwargs)
        if torch._C._get_tracing_state() is None:
            with TransformGetItemToIndex():
                return self.plain(*args)
        # That same mode breaks the tracer, and the caller may have entered it, as transformers does.
        with torch._C.DisableTorchFunction():
            result = self._broadcast(args, axes)
        return result if _agree(result, self.plain, args) else self.plain(*args)

    def _axes(self, args: tuple[Any, ...]) -> list[int] | None:
        """Which argument each level maps, outermost first; None if it is not a nest over index vectors."""
        dims = self.in_dims if isinstance(self.in_dims, tuple) else (self.in_dims,) * len(args)
        mapped = [place for place, dim in enumerate(dims) if dim is not None]
        if self.out_dims != 0 or len(dims) != len(args) or len(mapped) != 1 or dims[mapped[0]] != 0:
            return None
        vector = args[mapped[0]]
        if not isinstance(vector, torch.Tensor) or vector.dim() != 1 or vector.is_floating_point():
            return None
        if not isinstance(self.function, Mapped):
            return mapped
        inner = self.function._axes(args)
        return None if inner is None or mapped[0] in inner else mapped + inner

    def _broadcast(self, args: tuple[Any, ...], axes: list[int]) -> Any:
        function: Any = self
        while isinstance(function, Mapped):
            function = function.function
        turned = list(args)
        for level, place in enumerate(axes):
            shape = [1] * len(axes)
            shape[level] = -1
            turned[place] = args[place].view(shape)
        result = function(*turned)
        if not isinstance(result, torch.Tensor) or result.dim() != len(axes):
            return None
        return result.expand([args[place].shape[0] for place in axes])


def _agree(result: Any, plain: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether vmap itself, run outside the trace on the example's values, gives exactly this."""
    if result is None:
        return False
    c_api: Any = torch._C  # the tracing state was seen to be set so in 2.13
    state = c_api._get_tracing_state()
    c_api._set_tracing_state(None)
    try:
        expected = plain(*args)
        return isinstance(expected, torch.Tensor) and torch.equal(result, expected)
    finally:
        c_api._set_tracing_state(state)


def detect(case: Case) -> Match | Refusal:
    if case.route.capture not in ("trace", "export"):
        return Refusal(f"the defect is not known under the {case.route.capture} capture")
    found = [(name, m) for name, m in case.model.named_modules() if _maps(type(m).__module__)]
    if not found:
        return Refusal("no module of the model builds a mask with torch.vmap")
    home = type(found[0][1]).__module__
    place = (Where(module=found[0][0] or type(found[0][1]).__name__, file=home),)
    how = "traced as broadcasting" if case.route.traced else "looked up by index"
    return Match(f"masks that {home} builds with torch.vmap {how}", place)


def _maps(module: str) -> bool:
    if module.startswith("torch."):
        return False
    if module.startswith("transformers.") and Version(metadata.version("transformers")) < Version("5"):
        return True
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError, KeyError):  # typed at a prompt, or made by exec: it may
        return True
    return any(mention in source for mention in MENTIONS)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    original = torch.vmap

    def vmap(func: Any, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", **rest: Any) -> Any:
        return Mapped(original, func, in_dims, out_dims, {"randomness": randomness, **rest})

    homes: tuple[Any, ...] = (torch, torch.func)
    for home in homes:
        home.vmap = vmap
    try:
        yield
    finally:
        for home in homes:
            home.vmap = original


REMEDY = Remedy(
    name="vmap_mask",
    cures="FW313",
    title="Captures vmapped index masks",
    stage="library",
    affected={"torch": "==2.13.*", "transformers": ">=4.53"},
    upstream=("pytorch/pytorch#172880",),
    safety="Broadcasting is used only where it equals vmap on the example; the lookup is torch's own.",
    detect=detect,
    apply=apply,
)
