"""ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from fairway.evidence.yardstick import Array
from fairway.runtimes.eager import to_array


class OrtSession:
    """One loaded file. Loading or running may raise whatever the runtime raises."""

    def __init__(self, path: str | Path) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = torch.get_num_threads()
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.input_names = [i.name for i in self._session.get_inputs()]
        self.output_names = [o.name for o in self._session.get_outputs()]

    def run(self, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[Array]:
        feeds = {name: np.ascontiguousarray(to_array(tensor)) for name, tensor in zip(names, tensors, strict=True)}
        return list(self._session.run(None, feeds))
