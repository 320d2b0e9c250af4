"""torch.onnx's tables of translations, built once.

It builds them again for each export, from onnxscript's source code. That takes about a second, half of a small export.
They are built here before the first fork, and attempts get copies.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import onnxscript

from fairway.torch_internals import read_internal, replace_internal

DEFAULT_OPSET = 20
"""The opset that torch 2.9–2.13 write by default."""

_built: dict[tuple[tuple[str, Any], ...], Any] = {}


def build_tables() -> None:
    """Build the tables of the default opset. torch's warnings about packages that are not installed are hidden."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with suppress(Exception), use_built_tables():  # it only saves time
            read_internal("registry_from_torchlib")(opset_version=DEFAULT_OPSET)
    finally:
        logger.setLevel(level)


@contextmanager
def use_built_tables() -> Iterator[None]:
    """Within the block, torch.onnx.export takes copies of tables that were built before, and keeps those it builds."""
    try:
        plain = read_internal("registry_from_torchlib")
    except (ImportError, AttributeError):
        yield
        return

    def copy_table(**options: Any) -> Any:
        key = tuple(options.items())
        if key not in _built:
            with _skip_parsing():
                _built[key] = plain(**options)
        table = copy.copy(_built[key])
        table.functions = {target: [*translations] for target, translations in table.functions.items()}
        return table

    with replace_internal("registry_from_torchlib", staticmethod(copy_table)):
        yield


@contextmanager
def _skip_parsing() -> Iterator[None]:
    """Within the block, onnxscript returns a translation's domain without parsing its source."""
    if not isinstance(getattr(onnxscript.TracedOnnxFunction, "function_ir", None), property):
        yield  # not as in onnxscript 0.7
        return
    with replace_internal("traced_function_ir", property(lambda function: function.opset)):
        yield
