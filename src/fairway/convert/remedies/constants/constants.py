"""Follow the tensors that no input reaches, and compute their values for real while a model is captured.

A capture computes with tensors that have no values. Parameters, buffers and what `forward` creates from plain numbers
have values all the same, and so has everything computed from these alone. Each such tensor is followed beside its real
counterpart, on which every call is repeated. When the model asks for a value, the real one answers.

A tensor is followed only if every argument of every call behind it was. Sizes of inputs are symbols while torch.export
captures; a call that takes one is not followed. What is written into from outside is forgotten, with its views.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from fairway.convert.remedies.constants.calls import RealCall
from fairway.convert.remedies.constants.real_values import Asked, Followed
from fairway.convert.remedies.constants.repeat_call import property_name

_PASSED_ON = {
    "__repr__",
    "__str__",
    "__hash__",
    "__deepcopy__",
    "__reduce_ex__",
    "__setstate__",
    "__dlpack__",
    "backward",
    "register_hook",
    "retain_grad",
    "requires_grad_",
    "share_memory_",
    "pin_memory",
    "record_stream",
}
"""Functions that are not repeated, since they compute nothing or have effects of their own."""
_PROPERTIES = {"T", "mT", "H", "mH", "data", "real", "imag"}


class Constants(torch.overrides.TorchFunctionMode):
    """While entered, questions about values that no input reaches are answered inside `model`'s forward."""

    def __init__(self, model: torch.nn.Module, asked: Asked = lambda origins: None) -> None:
        super().__init__()
        self._model, self._asked = model, asked
        self._followed = Followed(model, asked)
        self._depth = 0

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow the model's calls from here on. Its tensors have the values that they have now."""
        self._followed = Followed(self._model, self._asked)
        hooks = (
            self._model.register_forward_pre_hook(lambda *_: self._begin()),
            self._model.register_forward_hook(lambda *_: self._end(), always_call=True),
        )
        try:
            with self:
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _begin(self) -> None:
        if self._depth == 0:
            with torch._C.DisableTorchFunction():
                self._followed.start()
        self._depth += 1

    def _end(self) -> None:
        self._depth -= 1

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Strict capture and torch.cond run Dynamo, which would read this as part of the model.
        if torch.compiler.is_dynamo_compiling() or not self._depth or _is_passed_on(func):
            return func(*args, **kwargs)
        call = RealCall(self._followed, func, args, kwargs)
        if call.is_answered:
            return call.answer
        result = func(*call.args, **call.kwargs)
        call.finish(result)
        return result


def _is_passed_on(func: Any) -> bool:
    name = property_name(func)
    return name not in _PROPERTIES if name is not None else getattr(func, "__name__", "") in _PASSED_ON
