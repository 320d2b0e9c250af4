"""Masks that torch.vmap builds from indices can be traced, and captured by torch.export.

The TorchScript tracer cannot follow vmap's batched tensors. It raises `unordered_map::at`, or records the example's
sizes. A mask predicate such as `lambda b, h, q, k: k <= q`, mapped over one index vector after another, is the same as
one call on the vectors along different dims. That call is made instead, but only if it gives exactly what vmap gives on
the example.

Non-strict torch.export follows vmap, but not `padding[b, k]` inside it, which asks for the index as a number. There the
call is wrapped in torch's own TransformGetItemToIndex, as transformers does.

transformers before 5 builds every mask this way. From 5 on it does so only for masks with a custom predicate. Refuses
under strict capture, which needs neither, under the script capture, which cannot compile vmap, and if no module's code
mentions vmap. Maps over anything but index vectors are left alone.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import contextmanager
from importlib import metadata

import torch
from packaging.version import Version

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Code, Where
from fairway.torch_internals import (
    DisableTorchFunction,
    TransformGetItemToIndex,
    Untyped,
    get_tracing_state,
    replace_internals,
    set_tracing_state,
    tree_leaves,
)

MENTIONS = ("vmap(", "and_mask_function", "or_mask_function")


class VmappedFunction:
    """A function mapped by vmap, which keeps the functions nested inside it."""

    def __init__(
        self,
        original: Callable[..., Untyped],
        function: Untyped,
        in_dims: Untyped,
        out_dims: Untyped,
        rest: dict[str, Untyped],
        note_use: Callable[[], None] = lambda: None,
    ) -> None:
        self.function, self.in_dims, self.out_dims = function, in_dims, out_dims
        self.note_use = note_use
        inner = function.plain if isinstance(function, VmappedFunction) else function
        self.plain: Callable[..., Untyped] = original(inner, in_dims, out_dims, **rest)

    def __call__(self, *args: object, **kwargs: object) -> object:
        axes = None if kwargs else self._axes(args)
        if axes is None:
            return self.plain(*args, **kwargs)
        if get_tracing_state() is None:
            with _NotedLookups(self.note_use):
                return self.plain(*args)
        # That same mode breaks the tracer, and the caller may have entered it, as transformers does.
        with DisableTorchFunction():
            result = self._broadcast(args, axes)
        if not _is_equal_to_vmap(result, self.plain, args):
            return self.plain(*args)
        self.note_use()
        return result

    def _axes(self, args: tuple[object, ...]) -> list[int] | None:
        """Return the argument that each level maps, outermost first; None if these are not all index vectors."""
        dims = self.in_dims if isinstance(self.in_dims, tuple) else (self.in_dims,) * len(args)
        mapped = [place for place, dim in enumerate(dims) if dim is not None]
        if self.out_dims != 0 or len(dims) != len(args) or len(mapped) != 1 or dims[mapped[0]] != 0:
            return None
        vector = args[mapped[0]]
        if not isinstance(vector, torch.Tensor) or vector.dim() != 1 or vector.is_floating_point():
            return None
        if not isinstance(self.function, VmappedFunction):
            return mapped
        inner = self.function._axes(args)
        return None if inner is None or mapped[0] in inner else mapped + inner

    def _broadcast(self, args: tuple[Untyped, ...], axes: list[int]) -> Untyped:
        function: Untyped = self
        while isinstance(function, VmappedFunction):
            function = function.function
        reshaped = list(args)
        for level, position in enumerate(axes):
            shape = [1] * len(axes)
            shape[level] = -1
            reshaped[position] = args[position].view(shape)
        result = function(*reshaped)
        if not isinstance(result, torch.Tensor) or result.dim() != len(axes):
            return None
        return result.expand([args[position].shape[0] for position in axes])


class _NotedLookups(TransformGetItemToIndex):
    """torch's own mode, which also notes the lookups that it replaces."""

    def __init__(self, note_use: Callable[[], None]) -> None:
        super().__init__()
        self._note_use = note_use

    def __torch_function__(self, func: Untyped, types: Untyped, args: Untyped = (), kwargs: Untyped = None) -> Untyped:
        if func is torch.Tensor.__getitem__ and all(isinstance(i, torch.Tensor) for i in tree_leaves(args[1])):
            self._note_use()
        return super().__torch_function__(func, types, args, kwargs)


def _is_equal_to_vmap(result: Untyped, plain: Callable[..., Untyped], args: tuple[Untyped, ...]) -> bool:
    """Return whether vmap itself, run outside the trace on the example's values, gives exactly this result."""
    if result is None:
        return False
    state = get_tracing_state()
    set_tracing_state(None)
    try:
        expected = plain(*args)
        return isinstance(expected, torch.Tensor) and torch.equal(result, expected)
    finally:
        set_tracing_state(state)


def detect(case: Case) -> Match | Refusal:
    if case.route.capture not in ("trace", "export"):
        return Refusal(f"the defect is not known under the {case.route.capture} capture")
    modules = [(name, m) for name, m in case.model.named_modules() if _uses_vmap(type(m).__module__)]
    if not modules:
        return Refusal("no module of the model builds a mask with torch.vmap")
    name, module = modules[0]
    home = type(module).__module__
    place = (Where(module=name or type(module).__name__, file=home),)
    how = "traced as broadcasting" if case.route.is_traced else "looked up by index"
    return Match(f"masks that {home} builds with torch.vmap {how}", place)


def _uses_vmap(module: str) -> bool:
    if module.startswith("torch."):
        return False
    if module.startswith("transformers.") and Version(metadata.version("transformers")) < Version("5"):
        return True
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError, KeyError):  # no source, as for code typed at a prompt or made by exec: it may
        return True
    return any(mention in source for mention in MENTIONS)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    original, note_use = torch.vmap, case.list_if_used()

    def vmap(
        func: object, in_dims: object = 0, out_dims: object = 0, randomness: str = "error", **rest: object
    ) -> object:
        return VmappedFunction(original, func, in_dims, out_dims, {"randomness": randomness, **rest}, note_use)

    with replace_internals({"vmap": vmap, "func_vmap": vmap}):
        yield


REMEDY = Remedy(
    name="vmap_mask",
    cures=Code.VMAP_MASK,
    title="Captures vmapped index masks",
    stage="library",
    affected={"torch": "==2.13.*", "transformers": ">=4.53"},
    upstream=("pytorch/pytorch#172880",),
    safety="Broadcasting is used only where it equals vmap on the example; the lookup is torch's own.",
    detect=detect,
    apply=apply,
    order=40,
)
