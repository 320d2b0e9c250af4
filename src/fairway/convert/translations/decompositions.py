"""Operators that are written in torch, in one flat table. Importing it is fast: no onnxscript."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairway.convert.translations import (
    bessel,
    error_functions,
    float_parts,
    fractional_pools,
    matrix_functions,
    rearrangements,
)
from fairway.torch_internals import OpOverload

DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    **bessel.DECOMPOSITIONS,
    **error_functions.DECOMPOSITIONS,
    **float_parts.DECOMPOSITIONS,
    **fractional_pools.DECOMPOSITIONS,
    **matrix_functions.DECOMPOSITIONS,
    **rearrangements.DECOMPOSITIONS,
}
"""Every decomposition by its operator."""
