"""A look at every operator that PyTorch runs, also inside `torch.cond`, `while_loop` and `scan`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator  # seen to work in torch 2.9–2.13; no public counterpart
from torch.utils._python_dispatch import TorchDispatchMode  # as above


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """While inside, `watch` is called in place of each operator."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above

    def watch(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Each kind of watch says what it does here; there is nothing that all of them do."""
        raise NotImplementedError

    def prepare(self, func: HigherOrderOperator) -> None:
        """Called before `torch.cond` and its like run. Does nothing by default."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, HigherOrderOperator):
            self.prepare(func)
            return func(*map(self._inside, args), **(kwargs or {}))
        return self.watch(func, args, kwargs or {})

    def _inside(self, item: Any) -> Any:
        """A branch or a loop's body runs with the mode taken off the stack: put it back for that long."""
        return self._again(item) if callable(item) and not isinstance(item, torch.Tensor) else item

    def _again(self, body: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return body(*args, **kwargs)

        return run
