"""A warm process: what every small export needs is built once, and each model's process is forked from it."""

from __future__ import annotations

import functools
import logging
import tempfile
import warnings

import torch


def warm_up() -> None:
    """Imports, and one small export of each kind."""
    from torch.onnx._internal.exporter import _registration  # private; seen in torch 2.13

    from fairway.convert.export import preload_modules

    torch.set_num_threads(1)
    preload_modules()
    registry = _registration.ONNXRegistry
    # onnxscript's tables are the same each time, and building them is half of a small export.
    registry.from_torchlib = classmethod(functools.cache(registry.from_torchlib.__func__))
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    model, example = torch.nn.Linear(4, 3).eval(), torch.ones(2, 3, 4)
    with tempfile.TemporaryDirectory() as folder:
        program = torch.export.export(model, (example,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
        torch.onnx.export(program, dynamo=True, verbose=False)
        torch.onnx.export(model, (example,), f"{folder}/traced.onnx", dynamo=False)
