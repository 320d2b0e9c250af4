"""The parameters of a model's `forward`, for modules written in Python and for compiled TorchScript."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import torch

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.user_types import UserModel


def read_forward_signature(model: torch.nn.Module) -> inspect.Signature:
    """Return the parameters of `forward`. Those of TorchScript come from its schema, since it has no Python code."""
    forward: UserModel = model.forward
    if isinstance(model, torch.jit.ScriptModule):
        return _read_schema(forward.schema.arguments[1:])
    if isinstance(forward, torch.jit.ScriptFunction):
        return _read_schema(forward.schema.arguments)  # type: ignore[attr-defined]  # torch declares a method
    try:
        return inspect.signature(forward)
    except (TypeError, ValueError) as error:
        raise complain(
            Code.NOT_A_MODEL,
            f"{type(model).__name__}: Python does not know the parameters of this function",
            todo=("Wrap it in a function with named parameters: lambda x: torch.relu(x).",),
        ) from error


def _read_schema(arguments: Iterable[UserModel]) -> inspect.Signature:
    """Return a signature. In TorchScript, every parameter can be passed by name."""
    return inspect.Signature(
        [
            inspect.Parameter(
                item.name,
                inspect.Parameter.KEYWORD_ONLY if item.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=item.default_value if item.has_default_value() else inspect.Parameter.empty,
            )
            for item in arguments
        ]
    )
