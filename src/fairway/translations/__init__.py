"""Translations of ATen operators that torch.onnx lacks or gets wrong, in one flat table.

Each is a function that calls ONNX operators, in the form that `custom_translation_table` takes. They are grouped by
what they compute. Importing this package imports onnxscript, so it is imported where it is used.
"""

from __future__ import annotations

from fairway.translations import (
    counting,
    distances,
    linear,
    losses,
    ordering,
    picking,
    pooling,
    quantized,
    running,
    scattering,
    special,
)
from fairway.translations.building import Table

TRANSLATIONS: Table = {
    **counting.TABLE,
    **distances.TABLE,
    **linear.TABLE,
    **losses.TABLE,
    **ordering.TABLE,
    **picking.TABLE,
    **pooling.TABLE,
    **quantized.TABLE,
    **running.TABLE,
    **scattering.TABLE,
    **special.TABLE,
}
"""Every translation by its operator."""
