"""What is wrong with torch's own translations, call by call, in torch 2.13 and onnxscript 0.7.2.

`tests/translations/test_better.py` exports each defect with torch's own and sees it still wrong; an entry whose test
goes red there can go. Where a call is none of these, torch's own translation is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple, cast

import torch

from fairway.convert.translations.builders import KIND, is_float

Given = Mapping[str, Any]


class Defect(NamedTuple):
    """Why torch's own is not used, and for which arguments."""

    reason: str
    here: Callable[[Given], bool] = lambda given: True


_ATEN = torch.ops.aten
_BYTES = "divides where PyTorch multiplies by the inverse, and refuses ranges other than a byte's"

BETTER: dict[torch._ops.OpOverload, Defect] = {
    _ATEN.scalar_tensor.default: Defect(
        "a float64 number is rounded to float32 on its way",
        lambda given: given.get("dtype") == KIND.DOUBLE and isinstance(given["s"], int | float),
    ),
    _ATEN.log_sigmoid.default: Defect("the logarithm of a sigmoid that underflowed is minus infinity"),
    _ATEN.logcumsumexp.default: Defect("elements far below the row's largest come out as minus infinity"),
    _ATEN.scatter_reduce.two: Defect("a mean overwrites instead of averaging", lambda given: given["reduce"] == "mean"),
    _ATEN.cross_entropy_loss.default: Defect(
        "label_smoothing is left out, and class probabilities are read as classes",
        lambda given: bool(given.get("label_smoothing")) or is_float(given["target"]),
    ),
    _ATEN.hamming_window.default: Defect("ONNX's window has other numbers than PyTorch's"),
    _ATEN.bincount.default: Defect(
        "weights are refused, and so is a least length that depends on a size",
        lambda given: given.get("weights") is not None or not isinstance(given.get("minlength", 0), int),
    ),
    _ATEN.unique_consecutive.default: Defect(
        "the only dim is refused when it is counted from the end",
        lambda given: len(given["self"].shape) == 1 and given.get("dim") == -1,
    ),
    _ATEN.histc.default: Defect(
        "a range found in the data is refused", lambda given: given.get("min", 0) == given.get("max", 0)
    ),
    _ATEN.squeeze.dim: Defect(
        "a dim that is not 1 is squeezed all the same",
        lambda given: bool(given["self"].shape) and given["self"].shape[given["dim"]] != 1,
    ),
    _ATEN.roll.default: Defect(
        "a shift that depends on a size is refused",
        lambda given: not all(isinstance(shift, int) for shift in given["shifts"]),
    ),
    _ATEN.repeat_interleave.Tensor: Defect(
        "output_size is refused", lambda given: given.get("output_size") is not None
    ),
    _ATEN.fake_quantize_per_tensor_affine.default: Defect(_BYTES),
    _ATEN.fake_quantize_per_tensor_affine.tensor_qparams: Defect(_BYTES),
    _ATEN.fake_quantize_per_channel_affine.default: Defect(_BYTES),
}
"""Operators that torch has a translation of. Ours is taken where the defect is."""


def where_better(
    ours: Callable[..., Any], theirs: Callable[..., Any], here: Callable[[Given], bool]
) -> Callable[..., Any]:
    """Our translation for the calls that torch's gets wrong, torch's for the others."""
    signature = inspect.signature(ours)

    @wraps(ours)
    def translate(*args: Any, **kwargs: Any) -> Any:
        chosen = ours if here(signature.bind(*args, **kwargs).arguments) else theirs
        return chosen(*args, **kwargs)

    return translate


def torchs_own(operator: Any) -> Callable[..., Any] | None:
    """torch.onnx's translation of an operator, or None.

    torch's own registry says the same, but takes a second to build. Private names, seen in torch 2.9–2.13 and
    onnxscript 0.5–0.7; where they are gone, everything counts as missing, and ours is used.
    """
    try:
        import_module("onnxscript.function_libs.torch_lib.ops")  # fills the registry
        import_module("torch.onnx._internal.exporter._torchlib.ops")
        registry: Any = import_module("onnxscript.function_libs.torch_lib.registration").default_registry
        torchlib: Any = import_module("torch.onnx._internal.exporter._torchlib._torchlib_registry")
        for meta in torchlib.get_torchlib_ops():
            if meta.fx_target is operator and not meta.is_complex:
                return cast(Callable[..., Any], meta.onnx_function)
        name = operator.name()
        found = registry[name].overloads if name in registry else ()
        return found[0] if found else None
    except (ImportError, AttributeError):
        return None
