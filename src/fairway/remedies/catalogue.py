"""One flat table of remedies, in the order in which they are applied: rewrites first, graph repairs last."""

from __future__ import annotations

from fairway.remedies import (
    attention_length_baked,
    causal_undecided,
    fully_masked_rows,
    half_mask_absorbed,
    input_output_name_clash,
    integer_mask_arithmetic,
    loop_unrolled,
    module_chosen_by_value,
    mul_scalar,
    output_shape_fixed,
    rnn_batch_baked,
    rnn_time_baked,
    training_mode,
    vmap_mask,
)
from fairway.remedies.contract import Remedy

_REMEDIES = (
    # The user's source.
    module_chosen_by_value.REMEDY,
    loop_unrolled.REMEDY,
    # The model.
    training_mode.REMEDY,
    rnn_batch_baked.REMEDY,
    # A library, while it captures.
    attention_length_baked.REMEDY,
    causal_undecided.REMEDY,
    vmap_mask.REMEDY,
    # The translation to ONNX.
    rnn_time_baked.REMEDY,
    fully_masked_rows.REMEDY,
    integer_mask_arithmetic.REMEDY,
    mul_scalar.REMEDY,
    # The graph.
    input_output_name_clash.REMEDY,
    half_mask_absorbed.REMEDY,
    output_shape_fixed.REMEDY,
)

CATALOGUE: dict[str, Remedy] = {remedy.name: remedy for remedy in _REMEDIES}
"""Every remedy by its name, which is also the name of its file."""
