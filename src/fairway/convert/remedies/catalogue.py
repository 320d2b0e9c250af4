"""One flat table of remedies, in the order in which they are applied: rewrites first, graph repairs last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from fairway.convert.remedies import (
    attention_length_baked,
    bfloat16_without_kernel,
    causal_undecided,
    complex_picked,
    constant_read,
    float64_without_kernel,
    fully_masked_rows,
    half_mask_absorbed,
    hits_looped,
    input_output_name_clash,
    integer_mask_arithmetic,
    list_frozen,
    loop_unrolled,
    missing_translation,
    module_chosen_by_value,
    module_moved,
    mul_scalar,
    output_shape_fixed,
    parametrised_weight,
    rnn_batch_baked,
    rnn_time_baked,
    shortcut_branch,
    size_made_number,
    small_constant_dropped,
    sparse_weight,
    training_mode,
    transformers_patches,
    vmap_mask,
)
from fairway.convert.remedies.contract import STAGES, Remedy

_REMEDIES = (
    # The user's source.
    module_chosen_by_value.REMEDY,
    loop_unrolled.REMEDY,
    list_frozen.REMEDY,
    shortcut_branch.REMEDY,
    # The model.
    training_mode.REMEDY,
    parametrised_weight.REMEDY,
    sparse_weight.REMEDY,
    rnn_batch_baked.REMEDY,
    # A library, while it captures.
    constant_read.REMEDY,
    attention_length_baked.REMEDY,
    causal_undecided.REMEDY,
    vmap_mask.REMEDY,
    module_moved.REMEDY,
    size_made_number.REMEDY,
    hits_looped.REMEDY,
    small_constant_dropped.REMEDY,
    transformers_patches.REMEDY,
    # The translation to ONNX; of two for the same operator, the later wins.
    missing_translation.REMEDY,
    complex_picked.REMEDY,
    rnn_time_baked.REMEDY,
    fully_masked_rows.REMEDY,
    integer_mask_arithmetic.REMEDY,
    mul_scalar.REMEDY,
    # The graph.
    input_output_name_clash.REMEDY,
    half_mask_absorbed.REMEDY,
    bfloat16_without_kernel.REMEDY,
    float64_without_kernel.REMEDY,
    output_shape_fixed.REMEDY,
)

BUILT_IN: dict[str, Remedy] = {remedy.name: remedy for remedy in _REMEDIES}
"""Fairway's own remedies by name, which is also the name of the file."""


class Catalogue(Mapping[str, Remedy]):
    """Fairway's own remedies, and after those of the same stage the plug-ins'. These are loaded at the first look."""

    @cached_property
    def _all(self) -> dict[str, Remedy]:
        from fairway.convert.remedies.plugin_remedies import plugged_remedies

        every = [*BUILT_IN.values(), *plugged_remedies(BUILT_IN)]
        return {remedy.name: remedy for remedy in sorted(every, key=lambda one: STAGES.index(one.stage))}

    def __getitem__(self, name: str) -> Remedy:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


CATALOGUE = Catalogue()
"""Every remedy by its name."""
