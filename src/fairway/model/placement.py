"""Refuses models and tensors that cannot be compared here: on another device, without values, or under autocast."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain

_QUANTIZED_LAYERS = ("torch.ao.nn.quantized.dynamic", "torch.ao.nn.intrinsic.quantized.dynamic")


def refuse_autocast() -> None:
    """Refuse an export inside `with torch.autocast(...)`: its dtypes would reach the comparison and not the file."""
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            dtype = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
            raise complain(Code.AUTOCAST_ON, f"autocast to {dtype} is enabled for the device {device}")


def check_model(model: torch.nn.Module) -> None:
    """Refuse a model with a tensor that has no values or is not on the CPU, or with layers that PyTorch quantized."""
    for name, module in model.named_modules():
        if type(module).__module__.startswith(_QUANTIZED_LAYERS):
            seen = f"{name or 'the model'} is a {type(module).__name__} made by quantize_dynamic"
            raise complain(Code.QUANTIZED_BY_TORCH, seen)
    for tensors in (model.named_parameters(), model.named_buffers()):
        for name, tensor in tensors:
            if isinstance(tensor, torch.nn.UninitializedParameter | torch.nn.UninitializedBuffer):
                seen = f"{name} of the model has no values yet: its lazy module has never run"
                todo = ("Run the model once on example inputs before it is exported.",)
                raise complain(Code.META_TENSOR, seen, todo=todo)
            check_tensor(f"{name} of the model", tensor)


def check_inputs(inputs: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Refuse an example tensor that has no values or is not on the CPU."""
    for name, tensor in inputs:
        check_tensor(f"the input {name!r}", tensor)


def check_tensor(name: str, tensor: torch.Tensor) -> None:
    kind = tensor.device.type
    if kind == "meta":
        raise complain(Code.META_TENSOR, f"{name} is on the meta device")
    if kind != "cpu":
        raise complain(Code.OTHER_DEVICE, f"{name} is on the device {tensor.device}")
