"""torch.onnx's tables of translations, built once.

It builds them anew for each export, from onnxscript's source code, which is a second or so: half of a small export.
They are built here before the first fork, and attempts are handed copies.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any
from unittest.mock import patch

import onnxscript

DEFAULT = 20
"""The opset that torch 2.9–2.13 write unless told."""

_built: dict[tuple[tuple[str, Any], ...], Any] = {}


def build_tables() -> None:
    """Those of the opset that is written unless told. Without a word: torch warns of what is not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with suppress(Exception), built_tables():  # it only saves time
            _registry().from_torchlib(opset_version=DEFAULT)
    finally:
        logger.setLevel(level)


@contextmanager
def built_tables() -> Iterator[None]:
    """Within, torch.onnx.export takes copies of tables that were built before, and keeps those it builds."""
    try:
        registry = _registry()
        plain = registry.from_torchlib
    except (ImportError, AttributeError):
        yield
        return

    def copied(**asked: Any) -> Any:
        key = tuple(asked.items())
        if key not in _built:
            with _unparsed():
                _built[key] = plain(**asked)
        table = copy.copy(_built[key])
        table.functions = {target: [*known] for target, known in table.functions.items()}
        return table

    with patch.object(registry, "from_torchlib", staticmethod(copied)):
        yield


@contextmanager
def _unparsed() -> Iterator[None]:
    """Within, onnxscript tells a translation's domain without parsing its source; nothing else is asked of it."""
    if not isinstance(getattr(onnxscript.TracedOnnxFunction, "function_ir", None), property):
        yield  # not as in onnxscript 0.7
        return
    with patch.object(onnxscript.TracedOnnxFunction, "function_ir", property(lambda function: function.opset)):
        yield


def _registry() -> Any:
    """Private, seen in torch 2.9–2.13; where it is missing, torch builds its tables by itself."""
    return import_module("torch.onnx._internal.exporter._registration").ONNXRegistry
