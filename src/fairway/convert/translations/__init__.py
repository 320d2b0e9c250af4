"""Translations of ATen operators that torch.onnx lacks or translates wrongly, in one flat table.

Each is a function that calls ONNX operators, in the form that `custom_translation_table` takes. They are grouped by
what they compute. Importing this package imports onnxscript, which is slow, so it is imported inside functions.
"""

from __future__ import annotations

from fairway.convert.translations import (
    cumulative,
    distances,
    fake_quantize,
    gathers,
    histograms,
    linear_algebra,
    losses,
    pools,
    scatters,
    sorts,
    special,
)
from fairway.convert.translations.builders import Table

TRANSLATIONS: Table = {
    **histograms.TABLE,
    **distances.TABLE,
    **linear_algebra.TABLE,
    **losses.TABLE,
    **sorts.TABLE,
    **gathers.TABLE,
    **pools.TABLE,
    **fake_quantize.TABLE,
    **cumulative.TABLE,
    **scatters.TABLE,
    **special.TABLE,
}
"""Every translation by its operator."""
