"""Building a model without its parameters: they come from the checkpoint, so none is drawn or given room before.

A parameter goes to the meta device the moment it is registered. What is drawn for it afterwards is nothing there, so
the drawing is left out: a network of 36 blocks draws a thousand times.
Buffers are built as they are, since not all of them are in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch


@contextmanager
def bare() -> Iterator[None]:
    """Within, modules keep of each new parameter its shape and dtype alone; ties between modules stay."""
    plain = torch.nn.Module.register_parameter

    def register(self: torch.nn.Module, name: str, param: torch.nn.Parameter | None) -> None:
        if type(param) is torch.nn.Parameter and param.device.type != "meta":
            param = torch.nn.Parameter(param.detach().to("meta"), requires_grad=param.requires_grad)
        plain(self, name, param)

    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.nn.Module, "register_parameter", register))
        for name in ("normal_", "uniform_"):
            stack.enter_context(patch.object(torch.Tensor, name, _not_on_meta(getattr(torch.Tensor, name))))
        yield


def _not_on_meta(fill: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def filled(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self if self.device.type == "meta" else fill(self, *args, **kwargs)

    return filled


def tied(model: torch.nn.Module) -> list[list[str]]:
    """The names of each parameter and buffer: several where modules share one."""
    names: dict[int, list[str]] = {}
    every = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    for name, tensor in every:
        names.setdefault(id(tensor), []).append(name)
    return list(names.values())


def assign(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Gives the model the checkpoint's own tensors, where it has their dtype: nothing is copied, and ties stay tied."""
    owners = dict(model.named_modules(remove_duplicate=False))
    for names in tied(model):
        given = next((state[name] for name in names if name in state), None)
        if given is None:
            continue  # a buffer that is no part of a checkpoint
        old = model.get_parameter(names[0]) if _is_parameter(owners, names[0]) else model.get_buffer(names[0])
        new = given.to(old.dtype)
        if isinstance(old, torch.nn.Parameter):
            new = torch.nn.Parameter(new, requires_grad=old.requires_grad)
        for name in names:
            owner, _, last = name.rpartition(".")
            setattr(owners[owner], last, new)


def _is_parameter(owners: Mapping[str, torch.nn.Module], name: str) -> bool:
    owner, _, last = name.rpartition(".")
    return last in owners[owner]._parameters
