"""Every value that PyTorch computes on the way, as a digest, with the module and the line that made it."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch._decomp import decomposition_table  # seen to work in torch 2.9–2.13; no public counterpart
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves  # as above

from fairway.diagnostics import Where
from fairway.judge.locate.digest import Digest, digest
from fairway.judge.runtimes.eager import run_eager, to_array
from fairway.judge.runtimes.operator_watch import Watch
from fairway.model.source import is_models
from fairway.model.subject import Subject


@dataclass(frozen=True)
class Made:
    """One value of PyTorch's."""

    number: int
    operator: str
    digest: Digest
    parents: tuple[int, ...]
    """The numbers of the values it was made from; inputs and weights have none."""
    where: Where | None
    module: str
    kind: str
    """The module's class."""
    inner: bool = False
    """A step inside an operator, as torch would take it apart."""


class Listener(Watch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Digests what each operator gives. Nothing is kept alive."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.heard: list[Made] = []
        self.numbers: set[int] = set()
        """Whole numbers that sizes and arguments were."""
        self._names = {id(module): (name, type(module).__name__) for name, module in model.named_modules()}
        self._stack: list[tuple[str, str]] = [("", type(model).__name__)]
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._inner = False

    def watch(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = func(*args, **kwargs)
        leaves = tree_leaves((args, kwargs))
        self.numbers.update(n for n in leaves if type(n) is int)
        parents = tuple(self._number(t) for t in leaves if isinstance(t, torch.Tensor))
        steps = self._steps(func, args, kwargs)
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._hear(str(func), tensor, (*parents, *steps))
        return result

    def _steps(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, ...]:
        """Takes an operator apart, for what stands between its inputs and its result."""
        taken = decomposition_table.get(func)
        if taken is None or self._inner or func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags:
            return ()
        before, self._inner = len(self.heard), True
        try:
            with suppress(Exception), self:
                taken(*args, **kwargs)
        finally:
            self._inner = False
        return tuple(range(before, len(self.heard)))

    def _hear(self, operator: str, tensor: torch.Tensor, parents: tuple[int, ...]) -> None:
        if tensor.is_nested or tensor.layout != torch.strided:
            return
        self.numbers.update(tensor.shape)
        got = digest(to_array(tensor))
        if got is None:
            return
        number = len(self.heard)
        self._known[id(tensor)] = (weakref.ref(tensor), number)
        name, kind = self._stack[-1]
        self.heard.append(
            Made(number, operator, got, tuple(p for p in parents if p >= 0), here(), name, kind, self._inner)
        )

    def _number(self, tensor: torch.Tensor) -> int:
        """The value's number; a tensor that was not seen yet is an input or a weight, and gets one."""
        kept = self._known.get(id(tensor))
        if kept is not None and kept[0]() is tensor:
            return kept[1]
        before = len(self.heard)
        self._hear("", tensor, ())
        return before if len(self.heard) > before else -1

    @contextmanager
    def modules(self) -> Iterator[None]:
        """Keeps track of which module runs."""

        def enter(module: torch.nn.Module, args: Any) -> None:
            self._stack.append(self._names.get(id(module), (self._stack[-1][0], type(module).__name__)))

        def leave(module: torch.nn.Module, args: Any, output: Any) -> None:
            self._stack.pop()

        handles = [
            register_module_forward_pre_hook(enter),
            register_module_forward_hook(leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def listen(subject: Subject, tensors: Sequence[torch.Tensor], listener: Listener | None = None) -> Listener:
    """Runs the model once, attention and recurrent layers in their plain forms, and hears every value."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    listener = listener or Listener(subject.model)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # it takes whole layers in one step, and packs what is padded
    try:
        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH), listener.modules():
            warnings.simplefilter("ignore")  # setting the flag speaks of GPUs that are not there
            with torch.backends.mkldnn.flags(enabled=False), listener:
                run_eager(subject, tensors)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return listener


def here() -> Where | None:
    """The innermost line that is neither torch's nor ours, up to the call of the model."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code is listen.__code__:
            return None
        if is_models(code.co_filename):
            return Where(file=code.co_filename, line=frame.f_lineno, function=code.co_qualname)
        frame = frame.f_back  # type: ignore[assignment]  # the loop ends at None
    return None
