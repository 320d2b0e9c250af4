"""Translations of ATen operators that torch.onnx lacks or gets wrong, in one flat table.

Each is a function that calls ONNX operators, in the form that `custom_translation_table` takes. They are grouped by
what they compute. Importing this package imports onnxscript, so it is imported where it is used.
"""

from __future__ import annotations

from fairway.convert.translations import cumulative as running
from fairway.convert.translations import distances, losses, special
from fairway.convert.translations import fake_quantize as quantized
from fairway.convert.translations import gathers as picking
from fairway.convert.translations import histograms as counting
from fairway.convert.translations import linear_algebra as linear
from fairway.convert.translations import pools as pooling
from fairway.convert.translations import scatters as scattering
from fairway.convert.translations import sorts as ordering
from fairway.convert.translations.builders import Table

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
