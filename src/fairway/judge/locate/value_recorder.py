"""Record every value that PyTorch computes as a digest, with the module and the line that computed it."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from fairway.diagnostics import Where
from fairway.judge.locate.digest import Digest, compute_digest
from fairway.judge.runtimes.eager import run_eager, to_array
from fairway.judge.runtimes.items import Item, Items, NamedItems, Operator
from fairway.judge.runtimes.operator_watch import OperatorWatch
from fairway.model.source import is_model_source
from fairway.model.subject import Subject
from fairway.torch_internals import decomposition_table, read_schema, tree_leaves


@dataclass(frozen=True)
class RecordedValue:
    """A value that PyTorch computed."""

    number: int
    operator: str
    digest: Digest
    parents: tuple[int, ...]
    """The numbers of the values from which it was computed. Inputs and weights have none."""
    where: Where | None
    module: str
    kind: str
    """The module's class."""
    inner: bool = False
    """True for a step inside an operator, from torch's decomposition of it."""


class ValueRecorder(OperatorWatch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Records a digest of each operator's results. It does not keep the tensors."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.values: list[RecordedValue] = []
        self.numbers: set[int] = set()
        """The whole numbers among sizes and arguments."""
        self._names = {id(module): (name, type(module).__name__) for name, module in model.named_modules()}
        self._stack: list[tuple[str, str]] = [("", type(model).__name__)]
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._inner = False

    def watch(self, func: Operator, args: Items, kwargs: NamedItems) -> Item:
        result = func(*args, **kwargs)
        leaves = tree_leaves((args, kwargs))
        self.numbers.update(n for n in leaves if type(n) is int)
        parents = tuple(self._find_number(t) for t in leaves if isinstance(t, torch.Tensor))
        steps = self._decompose(func, args, kwargs)
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._record(str(func), tensor, (*parents, *steps))
        return result

    def _decompose(self, func: Operator, args: Items, kwargs: NamedItems) -> tuple[int, ...]:
        """Run an operator's decomposition to record intermediate values, and return their numbers."""
        taken = decomposition_table.get(func)
        if (
            taken is None
            or self._inner
            or read_schema(func).is_mutable
            or torch.Tag.nondeterministic_seeded in func.tags
        ):
            return ()
        before, self._inner = len(self.values), True
        try:
            with suppress(Exception), self:
                taken(*args, **kwargs)
        finally:
            self._inner = False
        return tuple(range(before, len(self.values)))

    def _record(self, operator: str, tensor: torch.Tensor, parents: tuple[int, ...]) -> None:
        if tensor.is_nested or tensor.layout != torch.strided:
            return
        self.numbers.update(tensor.shape)
        value_digest = compute_digest(to_array(tensor))
        if value_digest is None:
            return
        number = len(self.values)
        self._known[id(tensor)] = (weakref.ref(tensor), number)
        name, kind = self._stack[-1]
        self.values.append(
            RecordedValue(
                number,
                operator,
                value_digest,
                tuple(p for p in parents if p >= 0),
                find_user_line(),
                name,
                kind,
                self._inner,
            )
        )

    def _find_number(self, tensor: torch.Tensor) -> int:
        """Return a value's number. A new tensor is an input or a weight, and gets a number."""
        kept = self._known.get(id(tensor))
        if kept is not None and kept[0]() is tensor:
            return kept[1]
        before = len(self.values)
        self._record("", tensor, ())
        return before if len(self.values) > before else -1

    @contextmanager
    def track_modules(self) -> Iterator[None]:
        """Track the running module while inside."""

        def enter(module: torch.nn.Module, args: object) -> None:
            self._stack.append(self._names.get(id(module), (self._stack[-1][0], type(module).__name__)))

        def leave(module: torch.nn.Module, args: object, output: object) -> None:
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


def record_values(
    subject: Subject, tensors: Sequence[torch.Tensor], recorder: ValueRecorder | None = None
) -> ValueRecorder:
    """Run the model once, with attention and recurrent layers in their plain forms, and record every value."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    recorder = recorder or ValueRecorder(subject.model)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(
        False
    )  # the fast path runs entire layers in one step, and packs padded inputs
    try:
        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH), recorder.track_modules():
            warnings.simplefilter("ignore")  # setting the flag warns about missing GPUs
            with torch.backends.mkldnn.flags(enabled=False), recorder:
                run_eager(subject, tensors)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return recorder


def find_user_line() -> Where | None:
    """Return the innermost line outside torch and Fairway, up to the call of the model."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code is record_values.__code__:
            return None
        if is_model_source(code.co_filename):
            return Where(file=code.co_filename, line=frame.f_lineno, function=code.co_qualname)
        frame = frame.f_back  # type: ignore[assignment]  # the loop ends at None
    return None
