"""ONNX Runtime on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from fairway.judge.runtimes.eager import to_array
from fairway.judge.yardstick import Array
from fairway.model.weight_mappings import Mappings

LEAN = ("ConstantFolding", "FuseFp16InitializerToFp32NodeTransformer")
"""Optimisations that keep a second copy of weights."""


EVERY = 0.5
"""Seconds after which pages of weights are let go."""


class OrtSession:
    """One loaded file. Loading or running may raise whatever the runtime raises.

    A `lean` session leaves weights where they lie in the file, mapped, and computes a little slower: none is packed or
    folded into a copy at load, and memory that is no longer used goes back at once, pages of the file among it.
    `threads` are as many as PyTorch's by default; 0 stands for as many as there are cores.
    """

    def __init__(self, path: str | Path, lean: bool = False, threads: int | None = None) -> None:
        self._lean = lean
        options = onnxruntime.SessionOptions()
        if lean:
            options.add_session_config_entry("session.disable_prepacking", "1")
            options.enable_cpu_mem_arena = False
            options.enable_mem_pattern = False
        options.log_severity_level = 4
        options.intra_op_num_threads = torch.get_num_threads() if threads is None else threads
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=[*LEAN] if lean else None
        )
        self.input_names = [i.name for i in self._session.get_inputs()]
        self.output_names = [o.name for o in self._session.get_outputs()]
        kinds = [value.type for value in (*self._session.get_inputs(), *self._session.get_outputs())]
        self._bfloat16 = "tensor(bfloat16)" in kinds

    def run(self, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[Array]:
        with _letting_go() if self._lean else nullcontext():
            if self._bfloat16:
                return self._run_past_numpy(names, tensors)
            feeds = {name: np.asarray(to_array(tensor), order="C") for name, tensor in zip(names, tensors, strict=True)}
            return list(self._session.run(None, feeds))

    def _run_past_numpy(self, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[Array]:
        """bfloat16, which numpy lacks, goes in and comes out as torch's tensors."""
        value = onnxruntime.OrtValue
        feeds = {name: value.from_dlpack(tensor.contiguous()) for name, tensor in zip(names, tensors, strict=True)}
        got = self._session.run_with_ort_values(None, feeds)
        return [to_array(torch.utils.dlpack.from_dlpack(one)) for one in got]


@contextmanager
def _letting_go() -> Iterator[None]:
    """Within, pages of mapped weights do not pile up: a layer's are read again when it is their turn again."""
    over = threading.Event()

    def sweep() -> None:
        while not over.wait(EVERY):
            Mappings().forget()

    sweeper = threading.Thread(target=sweep, daemon=True)
    sweeper.start()
    try:
        yield
    finally:
        over.set()
        sweeper.join()
