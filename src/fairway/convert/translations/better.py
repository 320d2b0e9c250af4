"""The calls for which torch's own translations are wrong, in torch 2.13 and onnxscript 0.7.2.

`tests/translations/test_better.py` exports each of them with torch's translation and checks that it is still wrong. An
entry whose test fails there can be removed. For all other calls torch's own translation is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple, cast

import torch

from fairway import torch_internals
from fairway.convert.translations.builders import KIND, GraphValue, is_float, is_none
from fairway.torch_internals import OpOverload, Untyped, import_torchlib

Arguments = Mapping[str, Any]
"""The arguments of one call, by name."""


class Defect(NamedTuple):
    """The reason why torch's translation is not used, and the arguments for which it is wrong."""

    reason: str
    is_present: Callable[[Arguments], bool] = lambda arguments: True


_ATEN = torch.ops.aten
_BYTES = "divides where PyTorch multiplies by the inverse, and refuses ranges other than a byte's"

DEFECTS: dict[OpOverload, Defect] = {
    _ATEN.scalar_tensor.default: Defect(
        "a float64 number is rounded to float32 on its way",
        lambda arguments: arguments.get("dtype") == KIND.DOUBLE and isinstance(arguments["s"], int | float),
    ),
    _ATEN.log_sigmoid.default: Defect("the logarithm of a sigmoid that underflowed is minus infinity"),
    _ATEN.atan2.default: Defect("0 over a negative number gives -π instead of π, and NaN becomes 0"),
    _ATEN.logcumsumexp.default: Defect("elements far below the row's largest come out as minus infinity"),
    _ATEN.scatter_reduce.two: Defect(
        "a mean overwrites instead of averaging", lambda arguments: arguments["reduce"] == "mean"
    ),
    _ATEN.cumsum.default: Defect(
        "floats are added up in float32, and in float64 by PyTorch",
        lambda arguments: _makes_narrow_float(arguments["self"], arguments.get("dtype")),
    ),
    _ATEN.cross_entropy_loss.default: Defect(
        "label_smoothing is left out, class probabilities are read as classes, and a call without a batch is refused",
        lambda arguments: (
            bool(arguments.get("label_smoothing")) or is_float(arguments["target"]) or len(arguments["self"].shape) == 1
        ),
    ),
    _ATEN.scatter_add.default: Defect(
        "a tensor without dims is refused by the runtime", lambda arguments: not arguments["self"].shape
    ),
    _ATEN.nonzero.default: Defect(
        "a tensor without dims gives indices of one", lambda arguments: not arguments["self"].shape
    ),
    _ATEN.hamming_window.default: Defect("ONNX's window has other numbers than PyTorch's"),
    _ATEN.bincount.default: Defect(
        "weights are refused, and so is a least length that depends on a size",
        lambda arguments: arguments.get("weights") is not None or not isinstance(arguments.get("minlength", 0), int),
    ),
    _ATEN.unique_consecutive.default: Defect(
        "types other than int32 and int64 are refused, and so are several dims",
        lambda arguments: (
            len(arguments["self"].shape) != 1
            or arguments.get("dim") is not None
            or arguments["self"].dtype not in (KIND.INT32, KIND.INT64)
        ),
    ),
    _ATEN.histc.default: Defect(
        "a range taken from the data is refused",
        lambda arguments: arguments.get("min", 0) == arguments.get("max", 0),
    ),
    _ATEN.squeeze.dim: Defect(
        "a dim that is not 1 is squeezed too",
        lambda arguments: bool(arguments["self"].shape) and arguments["self"].shape[arguments["dim"]] != 1,
    ),
    _ATEN.roll.default: Defect(
        "a shift that depends on a size is refused",
        lambda arguments: not all(isinstance(shift, int) for shift in arguments["shifts"]),
    ),
    _ATEN.repeat_interleave.Tensor: Defect(
        "output_size is refused", lambda arguments: arguments.get("output_size") is not None
    ),
    _ATEN.fake_quantize_per_tensor_affine.default: Defect(_BYTES),
    _ATEN.fake_quantize_per_tensor_affine.tensor_qparams: Defect(_BYTES),
    _ATEN.fake_quantize_per_channel_affine.default: Defect(_BYTES),
}
"""Operators that torch translates. Our translation is used for the calls with the defect."""


def _makes_narrow_float(value: GraphValue, dtype: int | None) -> bool:
    kind = value.dtype if dtype is None or is_none(dtype) else KIND(dtype)
    return bool(kind.is_floating_point()) and kind != KIND.DOUBLE


def choose_translation(
    ours: Callable[..., GraphValue], theirs: Callable[..., GraphValue], is_wrong: Callable[[Arguments], bool]
) -> Callable[..., GraphValue]:
    """Return a translation that uses ours for the calls that torch's translates wrongly, and torch's for the others."""
    signature = inspect.signature(ours)

    @wraps(ours)
    def translate(*args: GraphValue, **kwargs: GraphValue) -> GraphValue:
        chosen = ours if is_wrong(signature.bind(*args, **kwargs).arguments) else theirs
        return chosen(*args, **kwargs)

    return translate


def find_torch_translation(operator: Untyped) -> Callable[..., GraphValue] | None:
    """torch.onnx's translation of an operator, or None.

    torch's own registry says the same, but takes a second to build. Private names, seen in torch 2.9–2.13 and
    onnxscript 0.5–0.7; where they are gone, everything counts as missing, and ours is used.
    """
    try:
        import_module("onnxscript.function_libs.torch_lib.ops")  # fills the registry
        import_torchlib()
        registry: Untyped = import_module("onnxscript.function_libs.torch_lib.registration").default_registry
        for meta in torch_internals.get_torchlib_ops():
            if meta.fx_target is operator and not meta.is_complex:
                return cast(Callable[..., GraphValue], meta.onnx_function)
        name = operator.name()
        overloads = registry[name].overloads if name in registry else ()
        return overloads[0] if overloads else None
    except (ImportError, AttributeError):
        return None
