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
from fairway.model.ort_session import SessionSettings, open_session
from fairway.model.weight_mappings import Mappings

SWEEP_SECONDS = 0.5
"""Time between two releases of weight pages."""


class OrtSession:
    """A loaded file. Loading or running may raise whatever the runtime raises.

    A `lean` session maps weights from the file and computes a little slower. It packs or folds no weight into a copy
    when it loads, and it returns unused memory at once, also pages of the file. By default a session has as many
    `threads` as PyTorch; 0 means one for each core.
    """

    def __init__(self, path: str | Path, lean: bool = False, threads: int | None = None) -> None:
        self._is_lean = lean
        threads = torch.get_num_threads() if threads is None else threads
        self._session = open_session(path, SessionSettings(threads, is_lean=lean))
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        self.input_names = [value.name for value in inputs]
        self.output_names = [value.name for value in outputs]
        self._has_bfloat16 = any(value.type == "tensor(bfloat16)" for value in (*inputs, *outputs))

    def run(self, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[Array]:
        with _release_weight_pages() if self._is_lean else nullcontext():
            if self._has_bfloat16:
                return self._run_without_numpy(names, tensors)
            feeds = {name: np.asarray(to_array(tensor), order="C") for name, tensor in zip(names, tensors, strict=True)}
            return list(self._session.run(None, feeds))

    def _run_without_numpy(self, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[Array]:
        """Feed and fetch torch tensors, because numpy has no bfloat16."""
        wrap = onnxruntime.OrtValue.from_dlpack
        feeds = {name: wrap(tensor.contiguous()) for name, tensor in zip(names, tensors, strict=True)}
        values = self._session.run_with_ort_values(None, feeds)
        return [to_array(torch.utils.dlpack.from_dlpack(value)) for value in values]


@contextmanager
def _release_weight_pages() -> Iterator[None]:
    """Release pages of mapped weights regularly while inside. A layer's pages are read again when it runs again."""
    is_over = threading.Event()

    def sweep() -> None:
        while not is_over.wait(SWEEP_SECONDS):
            Mappings().forget()

    sweeper = threading.Thread(target=sweep, daemon=True)
    sweeper.start()
    try:
        yield
    finally:
        is_over.set()
        sweeper.join()
