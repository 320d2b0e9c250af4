"""Find out whether the inputs fit a file, and whether only the runtime's optimizer makes it wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx

from fairway.judge.yardstick import Array
from fairway.model.ort_session import SessionSettings, open_session


def takes_inputs(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> bool:
    """Return whether the inputs have the names, dtypes and ranks that the file declares; it may lack unused ones.

    If they do not, the inputs are at fault, and no node is.
    """
    weights = {tensor.name for tensor in proto.graph.initializer}
    declared = {value.name: value.type.tensor_type for value in proto.graph.input if value.name not in weights}
    return declared.keys() <= feeds.keys() and all(
        tensor.elem_type == onnx.helper.np_dtype_to_tensor_dtype(feeds[name].dtype)
        and (not tensor.HasField("shape") or len(tensor.shape.dim) == feeds[name].ndim)
        for name, tensor in declared.items()
    )


def is_broken_by_optimizer(path: str, feeds: Mapping[str, Array], is_right: Callable[[Sequence[Array]], bool]) -> bool:
    """Return whether the file is right in ONNX Runtime without its optimizer, and wrong or refused with it."""

    def run(settings: SessionSettings) -> bool:
        try:
            return is_right(open_session(path, settings).run(None, dict(feeds)))
        except Exception:  # a runtime may raise anything; a refusal is not right
            return False

    return run(SessionSettings(1, "ORT_DISABLE_ALL")) and not run(SessionSettings(1))
