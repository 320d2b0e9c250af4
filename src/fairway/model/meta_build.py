"""Builds a model without its parameters: they come from the checkpoint, so none is initialized or allocated before.

A parameter goes to the meta device when it is registered. Random initialization has no effect there and is skipped: a
network of 36 blocks draws a thousand times. Buffers are built as usual, since not all of them are in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch

from fairway.torch_internals import module_parameters, read_internal, replace_internal


@contextmanager
def build_without_parameters() -> Iterator[None]:
    """Within this context, new parameters have a shape and a dtype, but no values. Ties between modules stay."""
    plain = torch.nn.Module.register_parameter

    def register(self: torch.nn.Module, name: str, param: torch.nn.Parameter | None) -> None:
        if type(param) is torch.nn.Parameter and param.device.type != "meta":
            param = torch.nn.Parameter(param.detach().to("meta"), requires_grad=param.requires_grad)
        plain(self, name, param)

    with ExitStack() as stack:
        stack.enter_context(replace_internal("module_register_parameter", register))
        for name in ("tensor_normal", "tensor_uniform"):
            stack.enter_context(replace_internal(name, _skip_on_meta(read_internal(name))))
        yield


def _skip_on_meta(fill: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def fill_unless_meta(self: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        return self if self.device.type == "meta" else fill(self, *args, **kwargs)

    return fill_unless_meta


def find_tied_names(model: torch.nn.Module) -> list[list[str]]:
    """Return the names of each parameter and buffer; several if modules share one."""
    names: dict[int, list[str]] = {}
    every = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    for name, tensor in every:
        names.setdefault(id(tensor), []).append(name)
    return list(names.values())


def assign_state(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Give the model the checkpoint's tensors. Tied tensors stay tied. A tensor is copied only if its dtype changes."""
    owners = dict(model.named_modules(remove_duplicate=False))
    for names in find_tied_names(model):
        given = next((state[name] for name in names if name in state), None)
        if given is None:
            continue  # a buffer that is not part of a checkpoint
        old = model.get_parameter(names[0]) if _is_parameter(owners, names[0]) else model.get_buffer(names[0])
        new = given.to(old.dtype)
        if isinstance(old, torch.nn.Parameter):
            new = torch.nn.Parameter(new, requires_grad=old.requires_grad)
        for name in names:
            owner, _, last = name.rpartition(".")
            setattr(owners[owner], last, new)


def _is_parameter(owners: Mapping[str, torch.nn.Module], name: str) -> bool:
    owner, _, last = name.rpartition(".")
    return last in module_parameters(owners[owner])
