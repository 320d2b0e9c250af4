"""Watch every operator that PyTorch runs, also inside `torch.cond`, `while_loop` and `scan`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fairway.judge.runtimes.items import Item, Items, NamedItems, Operator
from fairway.torch_internals import HigherOrderOperator, TorchDispatchMode


class OperatorWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """While inside, `watch` is called instead of each operator."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above

    def watch(self, func: Operator, args: Items, kwargs: NamedItems) -> Item:
        """Run an operator, or something else instead of it."""
        raise NotImplementedError

    def prepare(self, func: HigherOrderOperator) -> None:
        """Prepare for `torch.cond` or a similar operator. Does nothing by default."""

    def __torch_dispatch__(
        self, func: Operator, types: object, args: Items = (), kwargs: NamedItems | None = None
    ) -> Item:
        if isinstance(func, HigherOrderOperator):
            self.prepare(func)
            return func(*map(self._wrap_argument, args), **(kwargs or {}))
        return self.watch(func, args, kwargs or {})

    def _wrap_argument(self, item: Item) -> Item:
        """Return a branch or a loop's body so that it runs with this mode, which torch removes for it."""
        return self._wrap_body(item) if callable(item) and not isinstance(item, torch.Tensor) else item

    def _wrap_body(self, body: Callable[..., Item]) -> Callable[..., Item]:
        def run(*args: Item, **kwargs: Item) -> Item:
            with self:
                return body(*args, **kwargs)

        return run
