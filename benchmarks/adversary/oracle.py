"""The plain check: PyTorch beside ONNX Runtime on explicit inputs, with stated tolerances."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from case import Call, RightFile, Trap, WrongFile
from torch import nn

RELATIVE_TOLERANCE = 1e-3
"""Of the output's largest finite element, or of each element for cases marked `elementwise`."""
HALF_TOLERANCE = 2e-2
"""The same for 16-bit outputs."""


def flatten_call(call: Call) -> dict[str, torch.Tensor]:
    """Return the tensors of a call by name; those in lists and dicts get a path such as `xs.0`."""

    def walk(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                yield from walk(f"{name}.{index}", item)
        elif isinstance(value, dict):
            for key, item in value.items():
                yield from walk(f"{name}.{key}", item)

    return dict(pair for name, value in call.items() for pair in walk(name, value))


def flatten_outputs(outputs: Any) -> list[np.ndarray]:
    tensors = flatten_call({"output": outputs})
    return [to_array(tensor) for tensor in tensors.values()]


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """Keep 0-d tensors 0-d; complex ones become pairs of floats, as torch's exporter writes them."""
    tensor = tensor.detach().resolve_conj()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return np.array(tensor.numpy())


def run_torch(model: nn.Module, call: Call) -> list[np.ndarray]:
    with torch.no_grad():
        return flatten_outputs(model(**copy.deepcopy(call)))


class File:
    """An ONNX file in ONNX Runtime, with one thread and without a log."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.inputs = [item.name for item in self.session.get_inputs()]

    def run(self, call: Call) -> list[np.ndarray]:
        arrays = {name: to_array(tensor) for name, tensor in flatten_call(call).items()}
        if not set(self.inputs) <= set(arrays) and len(self.inputs) == len(arrays):
            arrays = dict(zip(self.inputs, arrays.values(), strict=True))
        return list(self.session.run(None, {name: arrays[name] for name in self.inputs if name in arrays}))


def compare(
    ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], elementwise: bool = False, tolerance: float = 0.0
) -> str:
    """Return what differs between PyTorch's outputs and the file's, or an empty string."""
    if len(ours) != len(theirs):
        return f"{len(theirs)} outputs for {len(ours)}"
    for index, (own, their) in enumerate(zip(ours, theirs, strict=True)):
        if own.shape != their.shape:
            return f"output {index}: shape {list(their.shape)} for {list(own.shape)}"
        if own.dtype != their.dtype:
            return f"output {index}: dtype {their.dtype} for {own.dtype}"
        different = find_different(own, their, elementwise, tolerance)
        if different.any():
            place = tuple(int(k) for k in np.argwhere(different)[0])
            return (
                f"output {index}{list(place)}: {their[place]} for {own[place]}, {different.sum()} of {different.size}"
            )
    return ""


def find_different(own: np.ndarray, their: np.ndarray, elementwise: bool, tolerance: float) -> np.ndarray:
    if own.dtype.kind != "f":
        return np.asarray(own != their)
    relative = max(tolerance or RELATIVE_TOLERANCE, HALF_TOLERANCE if own.dtype.itemsize == 2 else 0.0)
    a, b = own.astype(np.float64), their.astype(np.float64)
    finite = np.isfinite(a)
    scale = np.abs(a) if elementwise else np.abs(a[finite]).max(initial=0.0)
    with np.errstate(invalid="ignore"):
        far = np.abs(a - b) > relative * scale
        other_kind = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    return np.where(finite & np.isfinite(b), far, other_kind)


def check_probes(
    path: Path, case: Trap | WrongFile, probes: Sequence[Call], sequence: bool = False
) -> tuple[str, list[str]]:
    """Return why the file is wrong (empty if it is right at every probe), and the difference at each probe.

    PyTorch runs in eval mode, as every exporter writes it.
    """
    try:
        file = File(path)
    except Exception as error:
        return f"the runtime refuses the file: {str(error)[:200]}", []
    lasting = case.build().eval()
    differences = []
    for call in probes:
        models = [case.build().eval(), lasting] if sequence else [case.build().eval()]
        for model in models:
            torch.manual_seed(7)
            expected = run_torch(model, call)
            try:
                difference = compare(expected, file.run(call), case.elementwise, case.tolerance)
            except Exception as error:
                difference = f"the runtime refuses a legal input: {str(error)[:200]}"
            if difference and sequence and model is lasting:
                difference = f"after {len(differences)} earlier calls: {difference}"
            if difference:
                break
        differences.append(difference)
    first = next((f"probe {i}: {text}" for i, text in enumerate(differences) if text), "")
    return first, differences


def check_right(path: Path, case: RightFile, calls: Sequence[Call]) -> str:
    """Return what speaks against a right file, by the plain comparison or the case's own check."""
    try:
        file = File(path)
    except Exception as error:
        return f"the runtime refuses the file: {str(error)[:200]}"
    for index, call in enumerate(calls):
        expected = run_torch(case.build(), call)
        try:
            found = file.run(call)
        except Exception as error:
            return f"input {index}: the runtime refuses a legal input: {str(error)[:200]}"
        if case.check is None:
            difference = compare(expected, found, tolerance=case.tolerance)
        else:
            difference = case.check(call, expected, found)
        if difference:
            return f"input {index}: {difference}"
    return ""
