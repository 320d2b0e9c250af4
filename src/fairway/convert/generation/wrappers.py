"""Modules that the graphs are captured from: one call of a generator, with its cache as plain tensors.

A cache goes in as `past_key_values[layer]["key"]` and comes out as `present[layer]["key"]`, so that the graph has the
names that the tools expect. Every layer keeps its complete past, also if attention is limited to a window: the mask
selects the window. transformers is imported when a wrapper runs, never with this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from fairway.model.tree import Tree

Tensors: TypeAlias = dict[str, torch.Tensor]

TransformersModel: TypeAlias = Any
TransformersCache: TypeAlias = Any
"""Objects of transformers, whose types are not imported with this module."""


class CachedDecoder(torch.nn.Module):
    """A decoder on `seq` tokens after `past` others; with a past of 0 it is the prefill."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        past_key_values: Sequence[Tensors],
        position_ids: torch.Tensor | None = None,
    ) -> dict[str, Tree]:
        from transformers import DynamicCache

        places = {} if position_ids is None else {"position_ids": position_ids}
        out = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=DynamicCache([(layer["key"], layer["value"]) for layer in past_key_values]),
            use_cache=True,
            return_dict=True,
            **places,
        )
        return {"logits": out.logits, "present": _tensors(out.past_key_values)}


class Encoder(torch.nn.Module):
    """The encoder alone."""

    def __init__(self, model: TransformersModel) -> None:
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, **inputs: torch.Tensor) -> Tensors:
        return {"last_hidden_state": self.encoder(**inputs, return_dict=True).last_hidden_state}


class FirstStep(torch.nn.Module):
    """An encoder-decoder's decoder without a past; it makes both caches."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        encoder_attention_mask: torch.Tensor | None = None,
    ) -> dict[str, Tree]:
        from transformers import DynamicCache, EncoderDecoderCache
        from transformers.modeling_outputs import BaseModelOutput

        out = self.model(
            decoder_input_ids=input_ids,
            encoder_outputs=BaseModelOutput(last_hidden_state=encoder_hidden_states),
            attention_mask=encoder_attention_mask,
            past_key_values=EncoderDecoderCache(DynamicCache(), DynamicCache()),
            use_cache=True,
            return_dict=True,
        )
        cache = out.past_key_values
        pairs = zip(_tensors(cache.self_attention_cache), _tensors(cache.cross_attention_cache), strict=True)
        return {"logits": out.logits, "present": [{"decoder": own, "encoder": cross} for own, cross in pairs]}


class NextStep(torch.nn.Module):
    """An encoder-decoder's decoder after the first step. The cross-attention's cache does not change."""

    def __init__(self, model: torch.nn.Module, hidden: int) -> None:
        super().__init__()
        self.model = model
        self.hidden = hidden

    def forward(
        self,
        input_ids: torch.Tensor,
        past_key_values: Sequence[dict[str, Tensors]],
        encoder_attention_mask: torch.Tensor | None = None,
    ) -> dict[str, Tree]:
        from transformers import DynamicCache, EncoderDecoderCache
        from transformers.modeling_outputs import BaseModelOutput

        own, cross = (
            DynamicCache([(layer[side]["key"], layer[side]["value"]) for layer in past_key_values])
            for side in ("decoder", "encoder")
        )
        # The mask needs the length of the states. Their values are not read; the cache contains the results.
        key = past_key_values[0]["encoder"]["key"]
        states = key.new_zeros(key.shape[0], key.shape[2], self.hidden)
        out = self.model(
            decoder_input_ids=input_ids,
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=encoder_attention_mask,
            past_key_values=EncoderDecoderCache(own, cross),
            use_cache=True,
            return_dict=True,
        )
        present = _tensors(out.past_key_values.self_attention_cache)
        return {"logits": out.logits, "present": [{"decoder": layer} for layer in present]}


class WholeSequences(torch.nn.Module):
    """The model on complete sequences without a cache. The truth is computed with it."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(**inputs, use_cache=False, return_dict=True).logits
        return logits


def _tensors(cache: TransformersCache) -> list[Tensors]:
    return [{"key": layer.keys, "value": layer.values} for layer in cache.layers]
