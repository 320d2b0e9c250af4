"""Follow the tensors that no input reaches, and compute their real values while a model is captured.

A capture computes with tensors that have no values. But parameters, buffers and tensors that `forward` creates from
plain numbers do have values, and so has everything computed from these alone. Each such tensor is followed with its
real counterpart, on which every call is repeated. When the model asks for a value, the real one is the answer.

A tensor is followed only if every argument of every call behind it was. Sizes of inputs are symbols while torch.export
captures, and a call that takes one is not followed. A tensor that a call outside writes into is forgotten, with its
views.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from fairway.convert.remedies.constants.calls import RealCall
from fairway.convert.remedies.constants.real_values import FollowedTensors, QuestionSink
from fairway.convert.remedies.constants.repeat_call import get_property_name
from fairway.torch_internals import DisableTorchFunction, Untyped

_NOT_REPEATED = {
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
"""Functions that are not repeated, since they compute nothing or have other effects."""
_PROPERTIES = {"T", "mT", "H", "mH", "data", "real", "imag"}


class Constants(torch.overrides.TorchFunctionMode):
    """Inside this mode, questions about values that no input reaches are answered in `model`'s forward."""

    def __init__(self, model: torch.nn.Module, on_question: QuestionSink = lambda origins: None) -> None:
        super().__init__()
        self._model, self._on_question = model, on_question
        self._followed = FollowedTensors(model, on_question)
        self._depth = 0

    @contextmanager
    def follow_calls(self) -> Iterator[None]:
        """Follow the model's calls from here on. Its tensors have the values that they have now."""
        self._followed = FollowedTensors(self._model, self._on_question)
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
            with DisableTorchFunction():
                self._followed.start()
        self._depth += 1

    def _end(self) -> None:
        self._depth -= 1

    def __torch_function__(
        self, func: Untyped, types: Untyped, args: Sequence[Untyped] = (), kwargs: Untyped = None
    ) -> Untyped:
        kwargs = kwargs or {}
        # Strict capture and torch.cond run Dynamo, which would read this as part of the model.
        if torch.compiler.is_dynamo_compiling() or not self._depth or _is_not_repeated(func):
            return func(*args, **kwargs)
        call = RealCall(self._followed, func, args, kwargs)
        if call.is_answered:
            return call.answer
        result = func(*call.args, **call.kwargs)
        call.finish(result)
        return result


def _is_not_repeated(func: object) -> bool:
    name = get_property_name(func)
    return name not in _PROPERTIES if name is not None else getattr(func, "__name__", "") in _NOT_REPEATED
