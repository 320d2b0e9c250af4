"""Translations of ATen operators that torch.onnx lacks or translates wrongly, in one flat table.

Each is a function that calls ONNX operators, in the form that `custom_translation_table` takes. They are grouped by
what they compute. Importing this package imports onnxscript, which is slow, so it is imported inside functions.
"""

from __future__ import annotations

from fairway.convert.translations import (
    cumulative,
    distances,
    factors,
    fake_quantize,
    gamma,
    gathers,
    histograms,
    linear_algebra,
    losses,
    pools,
    recurrences,
    rotations,
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
    **factors.TABLE,
    **rotations.TABLE,
    **recurrences.TABLE,
    **gamma.TABLE,
}
"""Every translation by its operator."""
