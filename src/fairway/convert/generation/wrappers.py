"""One call of a generator with its cache as plain tensors: what the graphs are captured from.

A cache goes in as `past_key_values[layer]["key"]` and comes out as `present[layer]["key"]`, so that the graph's names
are those of the tools that will run it. Every layer keeps its whole past, also where attention looks at a window only:
the mask cuts the window out. transformers is imported when a wrapper runs, never with this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Tensors = dict[str, torch.Tensor]


class CachedDecoder(torch.nn.Module):
    """A decoder on `seq` tokens after `past` ones; none before it is the prefill."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        past_key_values: Sequence[Tensors],
        position_ids: torch.Tensor | None = None,
    ) -> dict[str, Any]:
        from transformers import DynamicCache

        places = {} if position_ids is None else {"position_ids": position_ids}
        out = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=DynamicCache([(one["key"], one["value"]) for one in past_key_values]),
            use_cache=True,
            return_dict=True,
            **places,
        )
        return {"logits": out.logits, "present": _tensors(out.past_key_values)}


class Encoder(torch.nn.Module):
    """The encoder alone."""

    def __init__(self, model: Any) -> None:
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
    ) -> dict[str, Any]:
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
    """An encoder-decoder's decoder after the first step; the cross-attention's cache stays as it is."""

    def __init__(self, model: torch.nn.Module, hidden: int) -> None:
        super().__init__()
        self.model = model
        self.hidden = hidden

    def forward(
        self,
        input_ids: torch.Tensor,
        past_key_values: Sequence[dict[str, Tensors]],
        encoder_attention_mask: torch.Tensor | None = None,
    ) -> dict[str, Any]:
        from transformers import DynamicCache, EncoderDecoderCache
        from transformers.modeling_outputs import BaseModelOutput

        own, cross = (
            DynamicCache([(one[side]["key"], one[side]["value"]) for one in past_key_values])
            for side in ("decoder", "encoder")
        )
        # Its numbers are not read, the cache holds what was made of them; its length is, for the mask.
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
        return {"logits": out.logits, "present": [{"decoder": one} for one in present]}


class WholeSequences(torch.nn.Module):
    """The model on whole sequences at once and without a cache: what the truth is computed from."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(**inputs, use_cache=False, return_dict=True).logits
        return logits


def _tensors(cache: Any) -> list[Tensors]:
    return [{"key": layer.keys, "value": layer.values} for layer in cache.layers]
